"""A report keeps numbers as numbers, and prints strings from outside as they are."""

import json
import math
from importlib.resources import files

import jsonschema
import pytest

from icml25cli.core.report import Report, show

SCHEMA = json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text())


def document(**fields) -> dict:
    report = Report("quantize", **fields)
    report.finish()
    return report.document()


def test_the_schema_itself_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_full_report_validates():
    jsonschema.validate(
        document(
            params={"q": 14, "scales_times_q": [3.5, 18.0]},
            seed=0,
            device="cpu",
            rows=[{"method": "nestquant", "perplexity": 62.5}],
            tables={"rate": [{"method": "nestquant", "code": 3.8}]},
            details={"tensors": [{"tensor": "a.b", "shape": [2, 3]}]},
            metrics={"perplexity": 62.5},
            answer={"status": "done"},
            artefacts=["out"],
            notes=["a note"],
            warnings=["a warning"],
        ),
        SCHEMA,
    )


@pytest.mark.parametrize(
    "fields",
    [{"metrics": {"perplexity": "62.5"}}, {"metrics": {"Perplexity": 1.0}}, {"rows": [{"bits per weight": 4}]}],
)
def test_the_schema_refuses_formatted_numbers_and_names_that_are_not_snake_case(fields):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document(**fields), SCHEMA)


def test_what_is_not_finite_becomes_null_with_a_warning_that_names_it():
    made = document(metrics={"perplexity": math.inf}, rows=[{"method": "rtn", "kl": math.nan}])
    assert made["metrics"]["perplexity"] is None
    assert made["rows"][0]["kl"] is None
    assert made["warnings"] == ["not finite, shown as null: metrics.perplexity, rows[0].kl"]


def test_json_is_one_document_and_details_stay_out_of_the_tables_for_people(capsys):
    report = Report("quantize", details={"tensors": [{"tensor": "only-in-json"}]})
    show(report, as_json=True)
    assert json.loads(capsys.readouterr().out)["tables"]["tensors"] == [{"tensor": "only-in-json"}]
    show(report)
    assert "only-in-json" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "shown"),
    [(62.0, "62.00"), (0.00126, "0.001260"), (1.5e-7, "1.500e-07"), (123456, "123,456"), (None, "–"), (True, "yes")],
)
def test_a_person_reads_four_significant_digits(capsys, value, shown):
    show(Report("quantize", rows=[{"method": "x", "figure": value}]))
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize("name", ["model[/]dir", "[bold]x[/bold]", "smile :smile:", "esc\x1b[31mred", "two\nlines"])
def test_a_string_from_outside_is_neither_markup_nor_control(capsys, name):
    show(Report("quantize", params={"model": name}, rows=[{"method": name}], artefacts=[name]))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count(name.replace("\x1b", "").replace("\n", " ")) == 3


@pytest.mark.parametrize("spread", ["se", "sd"])
def test_a_standard_error_or_deviation_stands_beside_its_figure(capsys, spread):
    show(Report("quantize", rows=[{"method": "rtn", "perplexity": 88.64, f"perplexity_{spread}": 3.996}]))
    out = capsys.readouterr().out
    assert "88.64 ± 4" in out
    assert f"perplexity {spread}" not in out


def test_a_table_too_wide_for_a_terminal_is_turned(monkeypatch):
    from io import StringIO

    from rich.console import Console

    from icml25cli.core import report as module

    rows = [
        {"method": name, "rotation": "random-hadamard", "bits_per_weight": 4.179, "perplexity": 88.64, "kl": 0.0004}
        for name in ("nestquant", "rtn")
    ]
    narrow = Console(file=StringIO(), width=60)
    narrow.print(module._fitting(narrow, None, rows))
    lines = narrow.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 60
    assert any(line.split() == ["bits", "per", "weight", "4.179", "4.179"] for line in lines)
    wide = Console(file=StringIO(), width=120)
    wide.print(module._fitting(wide, None, rows))
    assert any(line.split()[:2] == ["nestquant", "random-hadamard"] for line in wide.file.getvalue().splitlines())  # type: ignore[attr-defined]
