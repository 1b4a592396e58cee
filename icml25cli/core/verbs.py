"""Command groups whose verb defaults to ``run``, and the options every verb has.

``icml25 quantize tiny`` means ``icml25 quantize run tiny``. Knows Typer and the catalogue. Does not know any command.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command

from icml25cli.catalog import COMMANDS, paper
from icml25cli.core.errors import UsageError
from icml25cli.core.usage import ORIGINS, SHARED, check_values, nearest, unknown_variables, variable

if TYPE_CHECKING:
    from typer._click.shell_completion import CompletionItem

DEFAULT_VERB = "run"


@dataclass
class Settings:
    """What the options of every command said; the root command holds it as the context's object."""

    quiet: bool = False
    debug: bool = False
    log_file: Path | None = None


def markup_mode() -> Literal["rich"] | None:
    """Help with colours and frames on a terminal that has them, plain text elsewhere, where it also loads faster."""
    on_terminal = bool(sys.stdout) and sys.stdout.isatty()
    return "rich" if on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" else None


def _read_config(ctx: typer.Context, value: Path | None) -> Path | None:
    shared = {name: os.environ[variable(name)] for name in SHARED if os.environ.get(variable(name))}
    table: dict[str, Any] = {}
    if value is not None and not ctx.resilient_parsing:
        from icml25cli.core.config import read_config

        words = [word for word in ctx.command_path.split()[1:] if word != DEFAULT_VERB]
        group = ctx.parent.command if ctx.parent and ctx.parent.parent else None
        verbs = {str(verb) for verb in getattr(group, "commands", ())} - {DEFAULT_VERB}
        options = {
            opt.lstrip("-").replace("-", "_"): str(param.name)
            for param in ctx.command.params
            if param.param_type_name == "option" and param.expose_value
            for opt in param.opts
            if opt.startswith("--")
        }
        table = read_config(value, words, options=options, verbs=verbs)
        repeated = {param.name for param in ctx.command.params if getattr(param, "multiple", False)}
        table = {k: [v] if k in repeated and not isinstance(v, list) else v for k, v in table.items()}
    ctx.default_map = table | shared
    ctx.meta[ORIGINS] = dict.fromkeys(table, str(value)) | {name: variable(name) for name in shared}
    return value


def _set_quiet(ctx: typer.Context, value: bool) -> bool:
    ctx.ensure_object(Settings).quiet |= value
    return value


def _set_debug(ctx: typer.Context, value: bool) -> bool:
    ctx.ensure_object(Settings).debug |= value
    return value


def _set_log_file(ctx: typer.Context, value: Path | None) -> Path | None:
    ctx.ensure_object(Settings).log_file = value
    return value


def _every_command(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Read options from a TOML file, in a table named like the command: seed = 1.",
            is_eager=True,
            callback=_read_config,
            expose_value=False,
            envvar="ICML25_CONFIG",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, no notes.", callback=_set_quiet, expose_value=False)
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file",
            metavar="FILE",
            help="Append progress and notes to a file.",
            callback=_set_log_file,
            expose_value=False,
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show the traceback of an error.", is_eager=True, callback=_set_debug, expose_value=False
        ),
    ] = False,
) -> None:
    """Carries the declarations of the options every command has."""


def _house_options() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_every_command)
    return get_command(app).params


class Verb(TyperCommand):
    """A verb with the options every command has, run under the display they ask for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *_house_options()]
        params: list[Any] = self.params
        for param in params:
            param.show_envvar = False  # every option has one, by one rule: the manual page tells it
            if param.type_descriptor.is_ranged and not param.metavar:  # the range follows in brackets
                param.metavar = f"<{param.type_descriptor.ranged_type_name}>"

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())  # an answer, as for a group; Typer itself makes an error of it
            raise typer.Exit
        if ctx.auto_envvar_prefix:
            _name_environment(self, ctx.auto_envvar_prefix)
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            check_values(ctx)
        return rest

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        from icml25cli.core.progress import display, note, warn

        settings = ctx.ensure_object(Settings)
        with display(quiet=settings.quiet, log_file=settings.log_file):
            for sentence in unknown_variables(ctx):
                warn(sentence)
            if "-" in ctx.params.values() and sys.stdin.isatty():
                note("reading what is typed here; Ctrl-D ends it")
            return super().invoke(ctx)


def _name_environment(command: Any, prefix: str) -> None:
    """Let options whose parameter is called otherwise (``--eval``) have the variable that their own name promises."""
    for param in command.params:
        for opt in param.opts:
            if opt.startswith("--") and opt.lstrip("-").replace("-", "_") != param.name and not param.envvar:
                param.envvar = variable(opt, prefix)


class Group(TyperGroup):
    """A group that shows its help when nothing follows it."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit
        return super().parse_args(ctx, args)

    # Not given, --help is False and not None: None would load pydantic to become False.
    def get_help_option(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


class DefaultVerbGroup(Group):
    """A group that puts ``run`` before a first word that is no verb."""

    known_inputs: Callable[[], Iterable[str]] = staticmethod(lambda: ())

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            if not ctx.resilient_parsing:
                self._refuse_mistyped_verb(args[0])
            args = [DEFAULT_VERB, *args]
        run = self.commands[DEFAULT_VERB]
        # `run` is silent on the command line, so it is silent in the environment: ICML25_QUANTIZE_METHOD.
        run.context_settings = {**run.context_settings, "auto_envvar_prefix": ctx.auto_envvar_prefix}
        return super().parse_args(ctx, args)

    def _refuse_mistyped_verb(self, word: str) -> None:
        if any(mark in word for mark in "-/.") or os.path.lexists(word):
            return
        near = nearest(word.lower(), self.commands, cutoff=0.7)
        if near and word not in self.known_inputs():
            raise UsageError(
                f"'{word}' is no verb, file or known name",
                hint=f"did you mean '{near}'? Use './{word}' for a file of that name",
            )

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        super().format_help(ctx, formatter)
        run = self.commands[DEFAULT_VERB]
        run.format_help(run.context_class(run, info_name=f"[{DEFAULT_VERB}]", parent=ctx), formatter)

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[CompletionItem]:  # type: ignore[override]
        results = super().shell_complete(ctx, incomplete)
        run = self.commands[DEFAULT_VERB]
        inner = run.context_class(run, info_name=DEFAULT_VERB, parent=ctx)
        for param in run.params:
            if isinstance(param, TyperArgument):
                results.extend(param.shell_complete(inner, incomplete))
                break
        return results + [item for item in run.shell_complete(inner, incomplete) if item.value not in ("--help",)]


def taking(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb options that other verbs have, too, by the functions that make something of them.

    Where a parameter of the verb is called like a maker, the command line has the maker's parameters, and the verb gets
    what it returns. A parameter that several of them name is one option.
    """

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        hints: dict[str, Any] = {}
        shown: dict[str, inspect.Parameter] = {}
        names = {of: tuple(inspect.signature(of).parameters) for of in (verb, *makers.values())}
        for name, parameter in inspect.signature(verb).parameters.items():
            maker = makers.get(name)
            source = inspect.signature(maker).parameters if maker else {name: parameter}
            types = _types(maker or verb, without=makers)
            for each, declared in source.items():
                shown.setdefault(each, declared.replace(kind=inspect.Parameter.KEYWORD_ONLY))
                hints.setdefault(each, types[each])

        def run(**given: Any) -> None:
            made = {name: maker(**{each: given[each] for each in names[maker]}) for name, maker in makers.items()}
            verb(**made, **{name: given[name] for name in names[verb] if name not in made})

        run.__name__, run.__doc__, run.__annotations__ = verb.__name__, verb.__doc__, hints
        run.__signature__ = inspect.Signature([*shown.values()])  # type: ignore[attr-defined]
        return run

    return decorate


def _types(function: Callable[..., Any], without: Iterable[str]) -> dict[str, Any]:
    """What parameters are, but those whose types may be known to type checkers alone."""
    said = {name: hint for name, hint in function.__annotations__.items() if name not in {*without, "return"}}
    holder = type("Annotated", (), {"__annotations__": said})
    return get_type_hints(holder, globalns=function.__globals__, include_extras=True)


class _App(typer.Typer):
    def command(self, name: str | None = None, *, cls: type[TyperCommand] = Verb, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().command(name, cls=cls, **kwargs)


def paper_group(name: str, known_inputs: Callable[[], Iterable[str]] = lambda: ()) -> typer.Typer:
    """The Typer app of the paper behind command ``name``, its help and citation taken from the catalogue.

    Args:
        known_inputs: words that are an INPUT though no file has that name, such as model aliases.
    """
    found = paper(name)
    group = type("PaperGroup", (DefaultVerbGroup,), {"known_inputs": staticmethod(known_inputs)})
    app = _App(
        name=name,
        cls=group,
        help=f"{found.help}\n\n{found.title}. {found.authors}. ICML 2025. {found.link}",
        add_completion=False,
        rich_markup_mode=markup_mode(),
        subcommand_metavar=f"[VERB={DEFAULT_VERB}] ...",
    )
    app.callback()(lambda: None)  # without a callback Typer flattens a group of one verb into a plain command
    return app


def service(name: str) -> typer.Typer:
    """The Typer app of a command that serves all papers."""
    return _App(name=name, cls=Group, help=COMMANDS[name].help, add_completion=False, rich_markup_mode=markup_mode())
