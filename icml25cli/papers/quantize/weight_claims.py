"""What the paper says of weights, as checks that can fail.

From the lattice up: its second moment, its code on Gaussian data, one layer, whole models. Where the paper's own run
is out of reach the published figure stands beside a prediction for what can be run here. Seeds are fixed. Knows the
method and the pipeline. Does not know the command line.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor

from icml25cli.core.claims import Claim, Interval, Size, at_least, at_most, texts_for
from icml25cli.core.models import resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.lattice import from_coordinates, nearest_point, to_coordinates
from icml25cli.papers.quantize.matrix import gptq, nestquant, quantize_matrix
from icml25cli.papers.quantize.model import Judged, quantize_model
from icml25cli.papers.quantize.pipeline import Candidate
from icml25cli.papers.quantize.plan import Options, make_plan
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import REFERENCE, reference_code
from icml25cli.papers.quantize.voronoi import LatticeCode

Q = 14
BLOCKS = {"quick": 2**18, "full": 2**20}  # of eight numbers
LAYERS = {"quick": 8, "full": 32}
TOKENS = {"quick": 4096, "full": 16_384}  # of calibration, and of evaluation
WINDOW = 128
ROTATED = "random-hadamard"

ACTIVATIONS = reference_code("activations", Q)
WEIGHTS = reference_code("weights", Q)
LATTICE_LDLQ = nestquant(WEIGHTS)
LATTICE_NEAREST = nestquant(WEIGHTS, ldlq=False)
GPTQ = gptq(4, 128)  # by 128 columns it stores as many bits as the lattice code, but for the latter's four scales


# --- the lattice and its code ------------------------------------------------------------------------------------


def second_moment(size: Size, nearest: Callable[[Float32[ndarray, "n 8"]], Float32[ndarray, "n 8"]]) -> Interval:
    """Mean squared error per entry of ``nearest`` over [0, 2)⁸, a period of E8 and of Z⁸, which both have volume 1."""
    x = np.random.default_rng(0).uniform(0, 2, (BLOCKS[size], 8)).astype(np.float32)
    return Interval.of_mean(((x - nearest(x)) ** 2).mean(axis=1))


def nearest_in_e8(x: Float32[ndarray, "n 8"]) -> Float32[ndarray, "n 8"]:
    """By the compiled code, at scale 1, where none of [0, 2)⁸ overloads."""
    return LatticeCode(Q, (1.0,)).quantize(x).values


def signal_to_noise(size: Size, code: LatticeCode) -> Interval:
    """1/D on N(0, 1)."""
    x = _gaussian(size)
    return Interval.of_mean(((x - code.quantize(x).values) ** 2).mean(axis=1)).map(lambda distortion: 1 / distortion)


def best_single_scale(size: Size) -> Interval:
    """1/D of the best code of one scale."""
    scales = np.arange(5, 9, 0.25) / Q
    return max((signal_to_noise(size, LatticeCode(Q, (s,))) for s in scales), key=lambda interval: interval.value)


def gap_to_shannon(size: Size, code: LatticeCode) -> Interval:
    """Rate with the scales' entropy, less the least that any code of this distortion needs: ½·log2(1/D)."""
    rate = code.rate_entropy(code.encode(_gaussian(size))[1])
    return signal_to_noise(size, code).map(lambda ratio: rate - math.log2(ratio) / 2)


def widest_gap(size: Size, scales_times_q: tuple[float, ...]) -> Interval:
    """The largest gap from 3 to 4.25 bits."""
    codes = (LatticeCode(q, tuple(scale / q for scale in scales_times_q)) for q in (7, 8, 10, 12, 13, 14, 16))
    return max((gap_to_shannon(size, code) for code in codes), key=lambda interval: interval.value)


def mismatches(size: Size) -> Interval:
    """Share of these blocks whose code does not decode to the value that the encoder chose it for."""
    done = ACTIVATIONS.quantize(_gaussian(size))
    decoded = ACTIVATIONS.decode(done.digits, done.beta_index)
    return Interval.exact(float((decoded != done.values).any(axis=1).mean()))


def mismatches_without_rule(size: Size) -> Interval:
    """The same where the encoder believes t − q·Q(t/q) of its own point t, and no rule breaks ties."""
    x = _gaussian(size)
    least, wrong = np.full(len(x), np.inf, np.float32), np.zeros(len(x), bool)
    for beta in np.array(ACTIVATIONS.betas, np.float32):
        t = nearest_point(x / beta)
        spelt = from_coordinates(to_coordinates(t) % Q)
        believed, decoded = t - nearest_point(t, Q), spelt - nearest_point(spelt, Q)
        error = ((x - beta * believed) ** 2).sum(axis=1)
        better = error < least
        least[better], wrong[better] = error[better], (believed != decoded).any(axis=1)[better]
    return Interval.exact(float(wrong.mean()))


def _gaussian(size: Size) -> Float32[ndarray, "n 8"]:
    return np.random.default_rng(1).standard_normal((BLOCKS[size], 8), np.float32)


# --- one layer ---------------------------------------------------------------------------------------------------


def layer(seed: int) -> tuple[Float[Tensor, "256 512"], Float[Tensor, "512 512"]]:
    """Gaussian weights, and the Hessian of 4096 correlated inputs with three channels twenty times as large."""
    generator = torch.Generator().manual_seed(seed)
    m, n, tokens = 256, 512, 4096
    mix = torch.eye(n) + torch.randn(n, n, generator=generator) / n**0.5
    gain = torch.ones(n)
    gain[torch.randperm(n, generator=generator)[:3]] = 20
    x = torch.randn(tokens, n, generator=generator) @ mix * gain
    return torch.randn(m, n, generator=generator), x.T @ x / tokens


def loss_ratio(size: Size, of: Candidate, to: Candidate) -> Interval:
    """Relative proxy loss of one candidate over that of another, geometric mean over layers."""
    logarithms = []
    for seed in range(LAYERS[size]):
        weight, hessian = layer(seed)
        losses = [
            quantize_matrix(weight, hessian, c.method, Rotation(c.rotation, weight.shape[1], seed)).relative_proxy_loss
            for c in (of, to)
        ]
        logarithms.append(np.diff(np.log(np.array(losses, float)))[0])
    return Interval.of_mean(-np.array(logarithms)).map(math.exp)


# --- whole models ------------------------------------------------------------------------------------------------


def options_for(model: str, size: Size) -> Options:
    """Text and windows to judge ``model`` on.

    Raises:
        MissingError: the text is not on this machine.
    """
    calibration, evaluation = texts_for(model)
    return Options(
        q=Q,
        calibration=calibration,
        evaluation=evaluation,
        calibration_tokens=TOKENS[size],
        evaluation_tokens=TOKENS[size],
        window=WINDOW,
    )


@lru_cache
def judge(model: str, size: Size) -> dict[str, Judged]:
    """A model under NestQuant, GPTQ, the two controls and as it is, by name; the claims on it share this run.

    GPTQ stores no fewer bits than NestQuant: ``make_plan`` chooses them so.

    Raises:
        MissingError: the model or its text is not on this machine.
    """
    options = replace(options_for(model, size), baselines=("gptq",))
    streamed = StreamedModel(resolve(model))
    plan, _ = make_plan(streamed, options)
    scales = tuple(plan.candidates[0].method.options["betas"])
    nearest = replace(nestquant(LatticeCode(Q, scales), ldlq=False), name="nearest")
    # Without LDLQ and rotation alone a robust model's perplexity hardly moves: a control has to fail on all of them.
    coarse = replace(nestquant(reference_code("weights", 3), ldlq=False), name="coarse")
    plan = replace(plan, candidates=(*plan.candidates, Candidate(nearest, ROTATED), Candidate(coarse, "none")))
    with tempfile.TemporaryDirectory() as directory, Run.open(Path(directory), {}) as run:
        judged = quantize_model(streamed, plan, run)
    return {j.candidate.method.name if j.candidate else "float": j for j in judged}


def divergence_ratio(judged: dict[str, Judged], of: str, to: str) -> Interval:
    """Mean divergence from the float model of one method over that of another, paired over windows.

    The error of a ratio of means is that of its residuals (Cochran, Sampling Techniques, 1977, section 6.4).
    """
    a, b = judged[of].score.kl, judged[to].score.kl
    ratio = a.mean() / b.mean()
    return Interval.of_mean(ratio + (a - ratio * b) / b.mean())


def perplexity_increase(judged: dict[str, Judged], of: str) -> Interval:
    """Perplexity over the float model's, less 1, paired over windows."""
    more = (judged[of].score.nll - judged["float"].score.nll) / judged[of].score.tokens
    return Interval.of_mean(more).map(math.expm1)


def whole_model(model: str, sizes: tuple[Size, ...]) -> tuple[Claim, Claim]:
    """The two claims on a language model."""
    return (
        Claim(
            f"gptq-{model}",
            says="at no more bits its outputs stay closer to the float model's than GPTQ's",
            source="table of weight-only perplexities; GPTQ's from a later paper",
            published="Llama-3-8B: perplexity 6.31 against 6.37, 0.74 of the increase over 6.14",
            quantity=f"KL(float to quantised) over that of GPTQ by 64, {model}",
            predicts=at_most(0.95),
            measure=lambda size: divergence_ratio(judge(model, size), "nestquant", "gptq"),
            control=lambda size: divergence_ratio(judge(model, size), "nearest", "gptq"),
            without="LDLQ: nearest lattice points",
            sizes=sizes,
        ),
        Claim(
            f"perplexity-{model}",
            says="4-bit weights hardly raise perplexity",
            source="table of weight-only perplexities",
            published="Llama-3-8B: 6.31 against 6.14, 2.8 % more",
            quantity=f"relative increase of perplexity, {model}",
            predicts=at_most(0.05),
            measure=lambda size: perplexity_increase(judge(model, size), "nestquant"),
            control=lambda size: perplexity_increase(judge(model, size), "coarse"),
            without="LDLQ, rotation, and all but 3 of 14 levels",
            sizes=sizes,
        ),
    )


WEIGHT_CLAIMS = (
    Claim(
        "granular-gain",
        says="E8 fills space with less error than scalar rounding of as many points",
        source="section 3; Conway and Sloane 1982",
        published="929/12960 = 0.07168 against 1/12 = 0.08333",
        quantity="mean squared error per entry at volume 1",
        predicts=at_most(0.0725),
        measure=lambda size: second_moment(size, nearest_in_e8),
        control=lambda size: second_moment(size, np.rint),
        without="E8: the cubic lattice",
    ),
    Claim(
        "distortion",
        says="four scales make the nested code near-optimal on Gaussian data",
        source="the authors' code, constant eps_cons for q = 14, k = 4",
        published="155",
        quantity="1/D on N(0, 1)",
        predicts=at_least(150),
        measure=lambda size: signal_to_noise(size, ACTIVATIONS),
        control=best_single_scale,
        without="the union of scales: the best single one",
    ),
    Claim(
        "rate-gap",
        says="from 3 to 4.25 bits the code stays within a third of a bit of Shannon's bound",
        source="section 3; scales of an independent implementation",
        published="no figure; 0.302 to 0.334 bits by an independent implementation",
        quantity="largest gap in bits to ½·log2(1/D) for q = 7 to 16, on N(0, 1)",
        predicts=at_most(0.345),
        measure=lambda size: widest_gap(size, REFERENCE["gaussian"]),
        control=lambda size: widest_gap(size, (6.75,)),
        without="the union of scales: the best single one",
    ),
    Claim(
        "exact-codes",
        says="what the encoder chose is what its code decodes to, also on the boundary of the shaping region",
        source="section 3; the authors' encoder decodes each code before it compares",
        published="exact",
        quantity="share of blocks that decode to something else",
        predicts=at_most(0),
        measure=mismatches,
        control=mismatches_without_rule,
        without="decoding in the encoder, and the rule for ties",
    ),
    Claim(
        "gptq-layer",
        says="LDLQ on the lattice loses less than GPTQ on integers, both rotated, at the same bits",
        source="section 4.5",
        published="no figure for a layer; 0.74 in increase of perplexity",
        quantity="proxy loss over that of GPTQ by 128",
        predicts=at_most(0.9),
        measure=lambda size: loss_ratio(size, Candidate(LATTICE_LDLQ, ROTATED), Candidate(GPTQ, ROTATED)),
        control=lambda size: loss_ratio(size, Candidate(LATTICE_NEAREST, ROTATED), Candidate(GPTQ, ROTATED)),
        without="LDLQ: nearest lattice points",
    ),
    Claim(
        "rotation",
        says="a Hadamard rotation makes weights of layers with outlier activations fit for the lattice",
        source="section 4",
        published="no figure for a layer",
        quantity="proxy loss rotated over not rotated",
        predicts=at_most(0.5),
        measure=lambda size: loss_ratio(size, Candidate(LATTICE_LDLQ, ROTATED), Candidate(LATTICE_LDLQ, "none")),
        control=lambda size: loss_ratio(size, Candidate(LATTICE_LDLQ, "none"), Candidate(LATTICE_LDLQ, "none")),
        without="rotation on either side",
    ),
    *whole_model("tiny", ("quick", "full")),
    *whole_model("smollm2-135m", ("full",)),
)
