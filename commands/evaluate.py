"""`icml25 evaluate`: perplexity and multiple-choice accuracy of causal language models, side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import service

app = service("evaluate")


@app.command(no_args_is_help=True)
def evaluate(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Aliases, Hugging Face ids, model directories (plain, from prune or packed by quantize) or .gguf "
            "files; the first is what the others are compared with. [default: tiny]",
            autocompletion=opt.complete_model,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            help="Text to predict: a file, a folder, an asset, - or builtin. [default: builtin, without --choices]",
        ),
    ] = None,
    choices: Annotated[
        Path | None,
        typer.Option(
            "--choices",
            metavar="FILE",
            help='Questions, one JSON object a line: {"question": "...", "choices": ["...", "..."], "answer": 0}. '
            "The model reads the question, a blank (none after a newline), and picks the likeliest choice per byte.",
        ),
    ] = None,
    window: Annotated[int, typer.Option("--window", min=2, help="Tokens that a model reads at once.")] = 512,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            min=1,
            help="Tokens from window to window; fewer than --window give every token more before it. "
            "[default: the window]",
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option("--tokens", min=2, help="Tokens of the text to read, counted by the first model.")
    ] = 16_384,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Measure how well each MODEL predicts a text and answers questions, and how far each is from the first.

    A question's answer is the index of the right choice, from 0, or its text, or its letter, from A.
    """
    from icml25cli.core.evaluation import answer_differences, beginning, comparison, longest_window
    from icml25cli.core.evaluation import evaluate as judge
    from icml25cli.core.models import load_tokenizer, pick_device, resolve
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.questions import read_questions
    from icml25cli.core.text import find_text

    report = Report("evaluate")
    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    questions = read_questions(choices) if choices else ()
    asked = "builtin" if text is None and not choices else text
    wanted = find_text(asked, "test") if asked is not None else None
    sources = [
        resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)
        for model in models or ["tiny"]
    ]
    report.params = {"models": [source.name for source in sources]}
    if wanted:
        whole, wanted = wanted, beginning(wanted, load_tokenizer(sources[0]), tokens)
        if wanted is whole:
            report.notes.append(f"The whole text is read: it has no more than the {tokens:,} tokens of --tokens.")
        shortest = min(sources, key=longest_window)
        if (longest := longest_window(shortest)) < window:
            window = int(longest)
            report.notes.append(f"Windows are of {window} tokens, the most that {shortest.name} reads.")
        stride = stride or window
        report.params |= {"text": wanted.origin, "window": window, "stride": stride}
    if choices:
        chance = sum(1 / len(question.choices) for question in questions) / len(questions)
        report.params |= {"choices": str(choices), "accuracy_by_chance": chance}
    results = judge(
        sources,
        lambda source: _load(source, chosen),
        text=wanted,
        questions=questions,
        window=window,
        stride=stride or window,
    )
    report.rows = comparison(results)
    report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, (int, float))}
    if questions and len(results) > 1:
        report.tables["answers_paired_with_the_first"] = answer_differences(results)
    report.notes += [note for result in results for note in result.notes]
    if wanted and len(results) > 1:
        report.notes.append("nll more and kl are in nats a token, from the first model to each.")
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


def _load(source: Any, device: Any) -> Any:
    """A model in memory; of packed codes, they are what is in memory, and in its cache where they were chosen."""
    from icml25cli.core.models import load_model

    if (source.config.get("quantization_config") or {}).get("quant_method") != "nestquant":
        return load_model(source, device=str(device))
    from icml25cli.hf import use_coded_cache  # transformers knows the format from here on

    model = load_model(source, device=str(device))
    use_coded_cache(model)
    return model
