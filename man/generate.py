"""Write the manual pages from the program itself: `python man/generate.py [DIRECTORY]`.

Every option, argument and verb comes from the Typer app, so a page cannot say what the program does not do. The
EXAMPLES come from examples.toml, what COLUMNS of reports say from columns.toml. Pages carry no date: the same program
gives the same pages.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from icml25cli.catalog import COMMANDS, Command, Paper
from icml25cli.core.usage import ENVIRONMENT_PREFIX
from icml25cli.core.verbs import DEFAULT_VERB
from icml25cli.main import app as root

HERE = Path(__file__).parent

EXIT_STATUS = (
    ("0", "Done."),
    ("1", "The answer is no, or none can be given: a failed check or gate, a leak, an undecided question."),
    ("2", "Usage: the command line, environment or configuration file asks for what does not exist."),
    ("3", "Bad input: a file, model or run directory cannot be used as it is."),
    ("4", "A needed part is missing or out of reach; the message gives the command that brings it."),
    ("70", "Internal error."),
    ("74", "Output cannot be written, or exists already."),
    ("130, 143", "Interrupted or terminated; finished work is kept and the message says how to resume."),
    ("141", "The reader closed the pipe."),
)


def escape(text: str) -> str:
    """Text safe inside roff: backslashes, hyphens that must stay hyphens, and control characters at a line's start."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())


def paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [".PP", escape(" ".join(paragraph.split()))]
    return lines


def parameter(param: Any, command: Any) -> list[str]:
    context = command.context_class(command, info_name=command.name)
    if param.param_type_name == "argument":
        name = f"\\fI{escape(param.display_name_raw)}\\fR"
    else:
        kind = (param.metavar or param.display_type(context)).strip("<>").removeprefix("list[").removesuffix("]")
        value = "" if param.is_flag else f" \\fI{escape(kind)}\\fR"
        names = [*param.opts, *param.secondary_opts]
        name = ", ".join(f"\\fB{escape(opt)}\\fR" for opt in sorted(names, key=len)) + value
    says = param.help or ""
    default = param.default
    if default not in (None, True, False, "", (), []) and "[default" not in says:
        shown = ", ".join(map(str, default)) if isinstance(default, (list, tuple)) else default
        says += f" Default: {shown}."
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    if low is not None:
        says += f" From {low:.10g}{'' if high is None else f' to {high:.10g}'}."
    return [".TP", name, escape(" ".join(says.split()))]


def usage(command_line: str, command: Any) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    names = [(param.display_name_raw.strip("[]"), param.required) for param in arguments]
    words = "".join(f" {name}" if required else f" [{name}]" for name, required in names)
    return [".PP", f"\\fB{escape(command_line)}\\fR\\fI{escape(words)}\\fR [\\fIOPTIONS\\fR]"]


def verb_section(name: str, command: Any, title: str | None) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    lines = [f".SS {escape(title)}", *usage(name, command)] if title else []
    lines += paragraphs(command.help or "")
    for param in [*arguments, *options]:
        lines += parameter(param, command)
    return lines


def examples(name: str) -> list[str]:
    table = tomllib.loads((HERE / "examples.toml").read_text(encoding="utf-8"))
    lines = [".SH EXAMPLES"]
    for example in table[name]:
        lines += [".PP", escape(example["says"]), ".PP", ".RS 4", f"\\fB{escape(example['command'])}\\fR", ".RE"]
    return lines


def columns(name: str) -> list[str]:
    """What the report's columns say, where they are explained."""
    table = tomllib.loads((HERE / "columns.toml").read_text(encoding="utf-8"))
    if name not in table:
        return []
    lines = [".SH COLUMNS", *paragraphs("What the report's main columns say; in JSON, _ stands for a space.")]
    for column, says in (table[name] | table["every"]).items():
        lines += [".TP", f"\\fB{escape(column)}\\fR", escape(says)]
    return lines


def common_tail(name: str) -> list[str]:
    prefix = f"{ENVIRONMENT_PREFIX}_{name.upper().replace('-', '_') if name != 'icml25' else 'COMMAND'}"
    lines = [
        ".SH ENVIRONMENT",
        *paragraphs(
            f"Every option can be set by {prefix}_OPTION (for a verb, {prefix}_VERB_OPTION); seed, device, threads and "
            f"method also by {ENVIRONMENT_PREFIX}_OPTION for all commands. The command line wins over the environment, "
            "the environment over the file given with --config. ICML25_CACHE_DIR moves the cache, HF_HUB_OFFLINE=1 "
            "forbids hubs, NO_COLOR turns colour off."
        ),
        ".SH FILES",
        *paragraphs(
            "A file for --config is TOML with a table for each command and a sub-table for each other verb; keys are "
            "long options without the dashes in front. Arguments cannot be set. A verb reads its own table only:"
        ),
        ".PP",
        ".RS 4",
        ".nf",
        *(
            escape(line)
            for line in ("[quantize]", "calib-tokens = 4096", "rotation = ['none']", "", "[quantize.encode]", "q = 10")
        ),
        ".fi",
        ".RE",
        ".SH EXIT STATUS",
    ]
    for code, says in EXIT_STATUS:
        lines += [".TP", f"\\fB{code}\\fR", escape(says)]
    return lines


def header(page: str, summary: str) -> list[str]:
    return [
        f'.TH "{page.upper()}" "1" "" "icml25 {version("icml25")}" "icml25"',
        ".SH NAME",
        f"{escape(page)} \\- {escape(summary.rstrip('.'))}",
    ]


def root_page() -> str:
    command = get_command(root)
    lines = header("icml25", "eighteen ICML 2025 papers as commands on your own models and data")
    lines += [".SH SYNOPSIS", "\\fBicml25\\fR \\fICOMMAND\\fR [\\fIVERB\\fR] [\\fIINPUT\\fR...] [\\fIOPTIONS\\fR]"]
    lines += [".SH DESCRIPTION", *paragraphs(command.help or ""), ".SH OPTIONS"]
    for param in command.params:
        lines += parameter(param, command)
    lines += [".SH COMMANDS"]
    for name, entry in COMMANDS.items():
        if entry.module:
            lines += [".TP", f"\\fBicml25\\-{escape(name)}\\fR(1)", escape(entry.help)]
    return "\n".join([*lines, *examples("icml25"), *common_tail("icml25")]) + "\n"


def command_page(entry: Command) -> str:
    assert entry.module
    command: Any = get_command(import_module(entry.module).app)
    lines = [*header(f"icml25-{entry.name}", entry.help), ".SH SYNOPSIS"]
    name = f"icml25 {entry.name}"
    if isinstance(command, TyperGroup):
        verbs = dict(command.commands)
        for verb, inner in verbs.items():
            lines += usage(f"{name} [{verb}]" if verb == DEFAULT_VERB else f"{name} {verb}", inner)
        lines += [".SH DESCRIPTION", *paragraphs(command.help or ""), ".SH VERBS"]
        for verb, inner in verbs.items():
            lines += verb_section(f"{name} {verb}", inner, verb)
    else:
        lines += [*usage(name, command), ".SH DESCRIPTION"]
        lines += verb_section(name, command, None)
    lines += [*columns(entry.name), *examples(entry.name), *common_tail(entry.name)]
    if isinstance(entry, Paper):
        lines += [".SH SOURCE", *paragraphs(f"{entry.authors}. {entry.title}. ICML 2025. {entry.link}")]
    return "\n".join([*lines, ".SH SEE ALSO", "\\fBicml25\\fR(1)"]) + "\n"


def pages() -> dict[str, str]:
    """Every page by file name."""
    built = {"icml25.1": root_page()}
    for name, entry in COMMANDS.items():
        if entry.module:
            built[f"icml25-{name}.1"] = command_page(entry)
    return built


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for file, text in pages().items():
        (directory / file).write_text(text, encoding="utf-8")
