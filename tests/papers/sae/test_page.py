"""The page of concepts in a browser: it shows, filters and opens concepts, and text from outside stays text."""

import json
import re
import shutil
import subprocess

import pytest

from icml25cli.papers.sae.page import concept_page

EVIL = "</script><script>document.title='broken'</script><b>bold"
NAMES = [
    {"latent": 3, "name": "snow", "similarity": 0.8, "ratio": 2.0, "valid": True},
    {"latent": 1, "name": EVIL, "similarity": 0.2, "ratio": 0.9, "valid": False},
]
FOUND = {3: {"active_share": 0.5, "top": [[7, 1.5, "a sledge"]]}, 1: {"active_share": 0.1, "top": []}}


def test_data_cannot_end_the_script():
    page = concept_page("mine <b>", NAMES, FOUND)
    data = re.search(r'id="concepts">(.*?)</script>', page, re.DOTALL)
    assert data
    assert json.loads(data[1])[1]["name"] == EVIL
    assert page.count("</script>") == 2
    assert "mine &lt;b&gt;" in page
    assert "http" not in page


def test_a_browser_shows_concepts(tmp_path):
    browser = next((b for b in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if b), None)
    if browser is None:
        pytest.skip("there is no Chromium here")
    (tmp_path / "p.html").write_text(concept_page("Concepts", NAMES, FOUND))
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom")
    done = subprocess.run(
        [browser, *options, (tmp_path / "p.html").as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "<title>Concepts</title>" in done.stdout
    assert "<h1>snow</h1>" in done.stdout
    assert "a sledge" in done.stdout
    assert "2 of 2" in done.stdout
    assert "&lt;b&gt;bold" in done.stdout
