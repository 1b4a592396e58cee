"""Forms of JSON values: what fits, and which field is named where something does not."""

import pytest

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form

FORM = {"name": str, "shape": [int], "error": float, "parts": {str: {"width": int, "turned": bool}}}
GOOD = {"name": "a", "shape": [1, 2], "error": 0, "parts": {"q.k": {"width": 8, "turned": False}}, "more": None}


def test_what_has_at_least_the_fields_fits():
    check_form(GOOD, FORM, "it")
    check_form(GOOD | {"shape": [], "parts": {}, "error": 0.5}, FORM, "it")
    check_form({}, {}, "it")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": None}, "name"),
        ({"name": 3}, "name"),
        ({"shape": "12"}, "shape"),
        ({"shape": [1, 2.0]}, r"shape\[1\]"),
        ({"shape": [True]}, r"shape\[0\]"),
        ({"error": "0"}, "error"),
        ({"error": True}, "error"),
        ({"parts": []}, "parts"),
        ({"parts": {"q.k": None}}, r"parts\.q\.k"),
        ({"parts": {"q.k": {"width": 8}}}, r"parts\.q\.k\.turned"),
        ({"parts": {"q.k": {"width": True, "turned": True}}}, r"parts\.q\.k\.width"),
    ],
)
def test_the_first_misfit_is_named(change, field):
    with pytest.raises(InputError, match=f"^it: the field {field} is missing or of another type$"):
        check_form(GOOD | change, FORM, "it")


def test_a_misfit_as_a_whole():
    with pytest.raises(InputError, match="it: the whole is missing"):
        check_form([GOOD], FORM, "it")
