"""The page of concepts in a browser: it searches, sorts, filters and opens; text from outside stays text."""

import json
import re
from pathlib import Path

import pytest

from icml25cli.papers.sae.page import concept_page
from tests.papers.sae.chromium import Browser, program

BREAKING = "document.title='broken'"
EVIL = f'</script><script>{BREAKING}</script><img src=http://127.0.0.1:9/x onerror="{BREAKING}">'
NAMES = [
    {"latent": 3, "name": "snow", "similarity": 0.8, "ratio": 2.0, "valid": True},
    {"latent": 7, "name": "a tree", "similarity": 0.7, "ratio": 3.0, "valid": True},
    {"latent": 1, "name": EVIL, "similarity": 0.2, "ratio": 0.9, "valid": False},
]
FOUND = {
    3: {"active_share": 0.5, "top": [[7, 1.5, "a sledge"], [2, 0.25, EVIL]]},
    7: {"active_share": 0.75, "top": []},
    1: {"active_share": 0.1, "top": []},
}
LISTED = "[...document.querySelectorAll('li b')].map(b => b.textContent)"
HEADING = "document.querySelector('h1').textContent"


def test_data_cannot_end_the_script():
    page = concept_page("mine <b>", NAMES, FOUND)
    data = re.search(r'id="concepts">(.*?)</script>', page, re.DOTALL)
    assert data
    assert json.loads(data[1])[2]["name"] == EVIL
    assert page.count("</script>") == 2
    assert "mine &lt;b&gt;" in page


@pytest.mark.skipif(program() is None, reason="there is no Chromium here")
def test_a_browser_searches_sorts_and_opens(tmp_path: Path):
    file = tmp_path / "p.html"
    file.write_text(concept_page("Concepts <i>", NAMES, FOUND))
    with Browser(tmp_path / "profile") as browser:
        browser.show(file.as_uri())
        assert browser.ask("document.title") == "Concepts <i>"
        assert browser.ask(LISTED) == ["snow", "a tree", EVIL]
        assert browser.ask(HEADING) == "snow"
        cells = browser.ask("[...document.querySelectorAll('td')].map(t => t.textContent)")
        assert cells == ["a sledge", "7", "1.500", EVIL, "2", "0.2500"]

        browser.click("li:nth-child(3) button")
        browser.wait(f"{HEADING} === {json.dumps(EVIL)}")
        assert "not beyond chance" in browser.ask("document.querySelector('main p').textContent")
        browser.ask("history.back()")
        browser.wait(f"{HEADING} === 'snow'")

        for order, listed in (
            ("name", [EVIL, "a tree", "snow"]),
            ("ratio", ["a tree", "snow", EVIL]),
            ("latent", [EVIL, "snow", "a tree"]),
            ("active", ["a tree", "snow", EVIL]),
        ):
            chosen = f"s.value = '{order}'; s.dispatchEvent(new Event('input'));"
            browser.ask(f"{{ const s = document.querySelector('select'); {chosen} }}")
            assert browser.ask(LISTED) == listed, order

        browser.click("input[type=checkbox]")
        assert browser.ask(LISTED) == ["a tree", "snow"]
        browser.click("input[type=search]")
        browser.type("SNO")
        assert browser.ask(LISTED) == ["snow"]
        assert browser.ask("document.getElementById('count').textContent") == "1 of 3"

        assert browser.ask("document.title") == "Concepts <i>"
        assert browser.ask("document.querySelectorAll('img, main script, li script').length") == 0
        assert browser.requested == [file.as_uri()]
        assert browser.complaints == []

        browser.show("about:blank")
        browser.show(file.as_uri() + "#7")
        assert browser.ask(HEADING) == "a tree"


@pytest.mark.skipif(program() is None, reason="there is no Chromium here")
def test_nothing_else_may_run_or_load(tmp_path: Path):
    """Were text ever taken for markup, the page's policy would still stop it."""
    file = tmp_path / "p.html"
    file.write_text(concept_page("Concepts", NAMES, FOUND).replace("<main>", f"<main>{EVIL}"))
    with Browser(tmp_path / "profile") as browser:
        browser.show(file.as_uri())
        assert browser.ask("document.title") == "Concepts"
        assert len(browser.complaints) >= 2
        assert browser.ask(LISTED) == ["snow", "a tree", EVIL]
