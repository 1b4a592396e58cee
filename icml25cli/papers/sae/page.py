"""A static page to browse concepts: one file, nothing fetched, everything from outside shown as text alone.

Its content security policy lets nothing run or load but the script and style that are here. Knows records of names and
codes. Does not know where they come from.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from icml25cli.core.console import clean
from icml25cli.core.embeddings import Embeddings
from icml25cli.papers.sae.model import SparseAutoencoder

TOP, ROWS = 12, 1024

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:0;display:flex;height:100vh;color:#222}
nav{width:24em;border-right:1px solid #ccc;display:flex;flex-direction:column}
nav form{padding:.7em;border-bottom:1px solid #ccc}input[type=search]{width:100%;box-sizing:border-box;padding:.4em}
nav label{display:block}
ul{list-style:none;margin:0;padding:0;overflow:auto}li button{all:unset;display:flex;width:100%;box-sizing:border-box;
padding:.25em .7em;cursor:pointer}li button:hover,li button:focus,li button[aria-current=true]{background:#e8eef8}
li b{flex:1;font-weight:500}li.weak b{color:#888}small{color:#666}main{flex:1;padding:1em 2em;overflow:auto}
td,th{text-align:left;padding:.15em .9em .15em 0;vertical-align:top}td.n{text-align:right}
@media(max-width:45em){body{flex-direction:column}nav{width:auto;height:45vh;border:0}}
"""

_SCRIPT = """
const concepts = JSON.parse(document.getElementById('concepts').textContent);
const list = document.querySelector('ul'), main = document.querySelector('main');
const search = document.querySelector('input[type=search]'), only = document.querySelector('input[type=checkbox]');
const sort = document.querySelector('select'), count = document.getElementById('count'), most = 500;
const orders = {
  similarity: (a, b) => b.valid - a.valid || b.similarity - a.similarity,
  ratio: (a, b) => b.ratio - a.ratio,
  active: (a, b) => b.active_share - a.active_share,
  name: (a, b) => a.name.localeCompare(b.name),
  latent: (a, b) => a.latent - b.latent,
};
function add(parent, tag, text, className) {
  const made = parent.appendChild(document.createElement(tag));
  made.textContent = text;
  if (className) made.className = className;
  return made;
}
function number(value) { return value === null || value === undefined ? '' : Number(value).toPrecision(4); }
function open(concept) {
  main.replaceChildren();
  add(main, 'h1', concept.name);
  add(main, 'p', `latent ${concept.latent} · cosine ${number(concept.similarity)} · ratio ${number(concept.ratio)} · `
    + (concept.valid ? 'valid' : 'not beyond chance')
    + ('active_share' in concept ? ` · active in ${number(100 * concept.active_share)} % of rows` : ''));
  if (concept.top) {
    const table = add(main, 'table', '');
    const head = add(table, 'tr', '');
    ['strongest rows', 'row', 'value'].forEach(title => add(head, 'th', title));
    concept.top.forEach(([row, value, text]) => {
      const line = add(table, 'tr', '');
      add(line, 'td', text ?? ''); add(line, 'td', row, 'n'); add(line, 'td', number(value), 'n');
    });
  }
  list.querySelectorAll('button').forEach(b => b.setAttribute('aria-current', b.dataset.latent == concept.latent));
}
function show() {
  const word = search.value.trim().toLowerCase();
  const found = concepts.filter(c => (!only.checked || c.valid)
    && (c.name.toLowerCase().includes(word) || String(c.latent) === word)).sort(orders[sort.value]);
  list.replaceChildren();
  found.slice(0, most).forEach(concept => {
    const item = add(list, 'li', '', concept.valid ? '' : 'weak'), button = add(item, 'button', '');
    button.dataset.latent = concept.latent;
    add(button, 'b', concept.name); add(button, 'small', number(concept.similarity));
    button.addEventListener('click', () => { location.hash = concept.latent; });
  });
  count.textContent = `${found.length} of ${concepts.length}` + (found.length > most ? `, ${most} shown` : '');
}
document.querySelector('form').addEventListener('submit', event => event.preventDefault());
[search, only, sort].forEach(control => control.addEventListener('input', show));
function follow() {
  const asked = concepts.find(c => String(c.latent) === location.hash.slice(1)) ?? concepts[0];
  if (asked) open(asked);
}
addEventListener('hashchange', follow);
show();
follow();
"""

_ORDERS = {"similarity": "valid, then cosine", "ratio": "ratio", "name": "name", "latent": "number"}


def strongest(model: SparseAutoencoder, x: Embeddings, texts: Sequence[str] | None = None) -> dict[int, dict[str, Any]]:
    """For each latent the share of rows in which it is active, and the dozen rows where it is strongest."""
    n = model.config.n
    best = torch.zeros(n, 0)
    place = torch.zeros(n, 0, dtype=torch.int64)
    active = torch.zeros(n, dtype=torch.int64)
    for start, rows in x.blocks(ROWS):
        z = model.codes(rows, full=False).T
        active += (z > 0).sum(dim=1)
        best = torch.cat([best, z], dim=1)
        place = torch.cat([place, torch.arange(start, start + len(rows)).expand(n, -1)], dim=1)
        best, order = torch.topk(best, min(TOP, best.shape[1]), dim=1)
        place = place.gather(1, order)
    numbers = place.numpy() if x.chosen is None else np.asarray(x.chosen)[place.numpy()]
    return {
        j: {
            "active_share": int(active[j]) / x.rows,
            "top": [
                [int(row), float(value), clean(texts[row]) if texts else None]
                for row, value in zip(numbers[j], best[j].tolist(), strict=True)
                if value > 0
            ],
        }
        for j in range(n)
    }


def concept_page(title: str, names: Sequence[dict[str, Any]], found: dict[int, dict[str, Any]] | None = None) -> str:
    """The page; ``names`` are records of naming, ``found`` as ``strongest`` has it."""
    data = [{**row, "name": clean(row["name"])} | (found[row["latent"]] if found else {}) for row in names]
    # "<" in a script element could end it, whatever the type of the script.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    shown = html.escape(clean(title))
    orders = _ORDERS | ({"active": "share of rows"} if found else {})
    options = "".join(f'<option value="{value}">{words}</option>' for value, words in orders.items())
    policy = f"default-src 'none'; base-uri 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{shown}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
        f'<nav><form><strong>{shown}</strong><input type="search" placeholder="concept or number" '
        f'aria-label="search"><label>by <select aria-label="sort">{options}</select></label>'
        '<label><input type="checkbox"> valid names only</label> <small id="count"></small></form>'
        f'<ul></ul></nav>\n<main></main>\n<script type="application/json" id="concepts">{text}</script>\n'
        f"<script>{_SCRIPT}</script>\n</body></html>\n"
    )


def _hash(text: str) -> str:
    """What a content security policy allows an inline element by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
