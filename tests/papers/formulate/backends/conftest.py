"""A scripted server for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.papers.formulate.backends.scripted import Scripted, scripted


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as running:
        yield running
