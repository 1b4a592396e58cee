"""What the program is asked to do while things go wrong: every verb that reads something of the user's, on each of it.

In a command line ``{x}`` is the input that will be damaged, ``{out}`` the output, and other braces name sound inputs of
``inputs.py``. All jobs are as small as they can be, and are tested on sound input, too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Job:
    """A command line.

    Attributes:
        takes: the sound input that ``{x}`` stands for.
        lives_with: damages with which it has other exit codes than the damage itself says.
        only: kinds of damage tried, where a model makes each slow and a quicker job reads the same way.
    """

    words: str
    takes: str
    lives_with: dict[str, set[int]] = field(default_factory=dict)
    only: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return self.words.split()[0]

    @property
    def name(self) -> str:
        """Command, verb and the damaged input: ``sae encode rows.npy``."""
        command, verb, *_ = self.words.split()
        option = self.words.split("{x}")[0].split()[-1]
        return " ".join([command, *([verb] if verb.isalpha() else []), option if option[0] == "-" else self.takes])

    def line(self, x: object, out: object, sound: Mapping[str, object]) -> list[str]:
        at = {"x": x, "out": out, **sound}
        return [re.sub(r"{(.*?)}", lambda found: str(at[found[1]]), word) for word in self.words.split()]


TEXT = {"one long line": {0}, "NUL bytes": {0}}  # a text may hold anything that is UTF-8
A_ROW = {"one row": {0}}  # is enough
FEW = ("missing", "empty", "a folder", "not UTF-8", "odd path")
SHORT_TEXT = "--calib-tokens 256 --eval-tokens 256 --window 64 --threads 1 --baseline none"
SAE = "--expansion 2 --levels 2,4,8,16,32 --epochs 1 --batch 32 --ks 2,4 --baseline none --threads 1"
BETA = "--k 2 --epochs 2 --patience 1 --context-size 32 --threads 1"
SELECT = (
    "--model {model} --reward regex:^(?:..)*$ --checkpoints last --epochs 1 --batch 4 --lora-r 2 --lora-alpha 4 "
    "--max-length 64 --mc 2 --max-new-tokens 4 --proj-dim 16 --projector countsketch --threads 1"
)
LINKPRED = "--runs 1 --epochs 5 --method base --baseline none --no-placebo --threads 1"

JOBS = (
    Job("quantize run {x} --method rtn " + SHORT_TEXT, "model"),
    Job("quantize run {model} --method rtn --calib {x} " + SHORT_TEXT, "text.txt", TEXT, FEW),
    Job("quantize run {model} --method rtn --eval {x} " + SHORT_TEXT, "text.txt", TEXT, FEW),
    Job("quantize encode {x} -o {out}", "rows.npy", A_ROW),
    Job("quantize decode {x} -o {out}", "rows.nq"),
    Job("quantize dot {x} {rows.nq} -o {out}.npy", "rows.nq"),
    Job("quantize inspect {x}", "rows.nq"),
    Job("quantize inspect {x}", "packed"),
    Job("quantize betas {x} -o {out}.json --threads 1", "rows.npy", A_ROW),
    Job("quantize bench tensor {x} --k 2 --q 14 --threads 1", "rows.npy", A_ROW),
    Job("prune plan {x} --method magnitude-sp -o {out}.json --threads 1 --calib-tokens 256 --window 64", "model"),
    Job(
        "prune plan {model} --calib {x} -o {out}.json --threads 1 --calib-tokens 256 --window 64", "text.txt", TEXT, FEW
    ),
    Job("prune apply {model} {x} -o {out} --repair none --calib-tokens 256 --window 64 --threads 1", "plan.json"),
    Job("prune tune {model} --data {x} -o {out} --epochs 1 --cutoff 16 --threads 1", "rows.jsonl"),
    Job("evaluate {x} --tokens 64 --window 32 --threads 1", "model"),
    Job("evaluate {model} --text {x} --tokens 64 --window 32 --threads 1", "text.txt", TEXT),
    Job("evaluate {model} --choices {x} --threads 1", "choices.jsonl"),
    Job("formulate run {x} -o {out}", "problem.txt"),
    Job("formulate explain {x}", "model.json"),
    Job("formulate explain {x}", "model.lp"),
    Job("formulate explain {x}", "model.mps"),
    Job("formulate check {x} {model.json}", "model.json"),
    Job("formulate compile {x} -o {out}.lp", "model.json"),
    Job("formulate bench {x} -o {out}", "problems.jsonl"),
    Job("linkpred run {x} -o {out} " + LINKPRED, "edges.csv"),
    Job("linkpred run {edges.csv} --features {x} -o {out} " + LINKPRED, "features.npy"),
    Job("linkpred heuristics {x} --runs 1", "edges.csv"),
    Job("linkpred heuristics {x} --runs 1", "edges.npz"),
    Job("linkpred split {x} -o {out}", "edges.csv"),
    Job("linkpred render {x} --pair 0,1 -o {out}", "edges.csv"),
    Job("linkpred score {club} --pairs {x} -o {out}", "pairs.csv"),
    Job("linkpred score {x} --pairs {pairs.csv} -o {out}", "club"),
    Job("linkpred audit {x}", "parts"),
    Job("sae train {x} -o {out} " + SAE, "rows.npy"),
    Job("sae train {x} -o {out} " + SAE, "rows.safetensors"),
    Job("sae eval {sae} {x} --threads 1", "rows.npy", A_ROW),
    Job("sae encode {sae} {x} -o {out}.npz --threads 1", "rows.npy", A_ROW),
    Job("sae encode {x} {rows.npy} -o {out}.npz --threads 1", "sae"),
    Job("sae decode {sae} {x} -o {out}.npy --threads 1", "codes.npz"),
    Job("sae name {sae} --vocab-emb {x} --vocab {words.txt} -o {out}", "atoms.npy"),
    Job("sae name {sae} --vocab-emb {atoms.npy} --vocab {x} -o {out}", "words.txt", {"NUL bytes": {0}, "twice": {3}}),
    Job("sae audit {sae} {rows.npy} --labels {x} -o {out}", "labels.csv", {"twice": {3}}),
    Job("tabpfn-bag fit {x} --target kind -o {out} " + BETA, "people.csv"),
    Job("tabpfn-bag run {x} --target kind --baseline logreg " + BETA, "people.csv"),
    Job("tabpfn-bag predict {beta.icml25tab} {x} -o {out} --threads 1", "people.csv"),
    Job("tabpfn-bag predict {x} {people.csv} -o {out} --threads 1", "beta.icml25tab"),
    Job("tabpfn-bag eval {beta.icml25tab} {x} --target kind --threads 1", "people.csv"),
    Job("tabpfn-bag inspect {x}", "beta.icml25tab"),
    Job("align run {x} {rows.npy} --null 20 --no-ci --threads 1", "rows.npy"),
    Job("align run {rows.npy} {rows.npy} --labels {x} --null 20 --no-ci --threads 1", "labels.csv", {"twice": {3}}),
    Job("align items {rows.npy} {x} -o {out} --threads 1", "rows.npy"),
    Job("align sweep {x} --with {rows.npy} --threads 1", "models.csv"),
    Job("select-data run {x} --val {ask.jsonl} --budget 3 --baseline bm25 -o {out} " + SELECT, "pool.jsonl"),
    Job("select-data run {pool.jsonl} --val {x} --budget 3 -o {out} " + SELECT, "ask.jsonl"),
    Job("select-data select {x} --val {ask.jsonl} --budget 3 -o {out} " + SELECT, "pool.jsonl", {}, FEW),
    Job("sae collect {model} {x} -o {out}.npy --threads 1", "lines.txt", TEXT),
)
