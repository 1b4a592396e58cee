"""README's table of claims from `assets/claims/*.json`, which `icml25 claims --size full -o assets/claims` writes.

    python assets/recipes/claims_table.py

rewrites what stands between the two marks in README.md. Knows those files alone.
"""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- claims: made by assets/recipes/claims_table.py -->", "<!-- end of claims -->"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def measured(claim: dict) -> str:
    if claim["measured"] is None:
        return "–"
    if claim["low"] == claim["high"]:
        return number(claim["measured"])
    return f"{number(claim['measured'])} ({number(claim['low'])} to {number(claim['high'])})"


def table() -> str:
    """All claims of all papers, a row each, with when and where they were measured."""
    lines = []
    for file in sorted((ROOT / "assets" / "claims").glob("*.json")):
        made = json.loads(file.read_text(encoding="utf-8"))
        lines += [
            f"`{file.stem}`, measured on {made['date']} at size {made['size']}; in brackets the 95 % interval.",
            "",
            "| claim | quantity | predicted | measured | control | verdict |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {claim['says']} | {claim['quantity']} | {claim['predicted']} | {measured(claim)} | "
            f"{number(claim['control'])} | {claim['verdict']} |"
            for claim in made["claims"]
        ]
        lines.append("")
    return "\n".join(lines).rstrip()


def rewritten(readme: str) -> str:
    """README with the table as the files have it."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    file = ROOT / "README.md"
    file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
