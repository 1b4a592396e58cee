"""Rows of reports that need no model: lists of heads as a person writes them, and layers that do not differ."""

from hypothesis import given
from hypothesis import strategies as st

from icml25cli.papers.prune.tables import ranges


def test_ranges_by_hand():
    assert ranges((0, 1, 2, 3, 5, 8, 9)) == "0-3 5 8-9"
    assert ranges((4,)) == "4"
    assert ranges(()) == ""


@given(st.sets(st.integers(0, 60)))
def test_ranges_say_every_number_once(numbers):
    said = [part.partition("-") for part in ranges(sorted(numbers)).split()]
    spelt = [n for first, _, last in said for n in range(int(first), int(last or first) + 1)]
    assert spelt == sorted(numbers)
