"""What the paper says of products, keys, values and activations, as checks that can fail.

Seeds are fixed. Knows the method and the pipeline. Does not know the command line.
"""

import math
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from icml25cli.core.claims import Claim, Interval, Size, at_most
from icml25cli.core.models import resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.bounds import matmul_bound
from icml25cli.papers.quantize.matrix import Noise, nestquant, quantize_matrix
from icml25cli.papers.quantize.model import Judged, quantize_model
from icml25cli.papers.quantize.pipeline import Candidate
from icml25cli.papers.quantize.plan import SCOPES, make_plan
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.vectors import LatticeVectors
from icml25cli.papers.quantize.voronoi import LatticeCode
from icml25cli.papers.quantize.weight_claims import (
    ACTIVATIONS,
    LATTICE_LDLQ,
    LAYERS,
    ROTATED,
    Q,
    divergence_ratio,
    layer,
    options_for,
)

LENGTH = 4096  # of the vectors whose products are measured
VECTORS = {"quick": 256, "full": 1024}
WHOLE = SCOPES[-1]


def product_error(size: Size, code: LatticeCode) -> Interval:
    """Error of an entry of AᵀB over n and over Γ(R), both factors N(0, 1) and coded; R counts the scales' entropy."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((VECTORS[size], LENGTH), np.float32) for _ in range(2))
    coded = [code.quantize(x.reshape(-1, 8)) for x in (a, b)]
    decoded = [done.values.reshape(a.shape) for done in coded]
    rate = np.mean([code.rate_entropy(done.beta_index) for done in coded])
    errors = (a @ b.T - decoded[0] @ decoded[1].T) ** 2 / LENGTH
    bound = matmul_bound(float(rate))
    return Interval.of_mean(errors.mean(axis=1)).map(lambda error: error / bound)  # a row's entries share a factor


def noisy_loss_ratio(size: Size, *, aware: bool) -> Interval:
    """Loss of a layer's outputs on quantised inputs: of LDLQ, told of the noise or not, over that of LDLQ as it is."""
    distortion = LatticeVectors(ACTIVATIONS).distortion(
        torch.randn(1024, 512, generator=torch.Generator().manual_seed(3))
    )
    logarithms = []
    for seed in range(LAYERS[size]):
        weight, hessian = layer(seed)
        noise = Noise(hessian, (distortion * hessian.diagonal().mean()).expand(len(hessian)))
        rotation = Rotation(ROTATED, weight.shape[1], seed)
        plain = quantize_matrix(weight, hessian, LATTICE_LDLQ, rotation).weight
        told = quantize_matrix(weight, hessian, LATTICE_LDLQ, rotation, noise=noise).weight if aware else plain
        logarithms.append(math.log(noise.loss(weight, told) / noise.loss(weight, plain)))
    return Interval.of_mean(logarithms).map(math.exp)


@lru_cache
def judge_scopes(model: str, size: Size) -> dict[str, Judged]:
    """A model under NestQuant and abs-max integers at every scope, and a control, by name and scope.

    Raises:
        MissingError: the model or its text is not on this machine.
    """
    options = replace(options_for(model, size), baselines=("absmax",), scopes=SCOPES)
    streamed = StreamedModel(resolve(model))
    plan, _ = make_plan(streamed, options)
    scope = next(c.scope for c in plan.candidates if c.scope.name == WHOLE)
    one = LatticeCode(Q, (18 / Q,))  # a scale that holds every block
    vectors = LatticeVectors(one, ROTATED)
    control = Candidate(
        replace(nestquant(one), name="one-scale"),
        ROTATED,
        replace(scope, keys_values=(vectors,) * 2, activations=vectors),
    )
    plan = replace(plan, candidates=(*plan.candidates, control))
    with tempfile.TemporaryDirectory() as directory, Run.open(Path(directory), {}) as run:
        judged = quantize_model(streamed, plan, run)
    return {f"{j.candidate.method.name} {j.candidate.scope.name}": j for j in judged if j.candidate}


def scope_ratio(model: str, size: Size, of: str, to: str) -> Interval:
    """Divergence from the float model of one method and scope over that of another."""
    return divergence_ratio(judge_scopes(model, size), of, to)


def whole_model(model: str, sizes: tuple[Size, ...]) -> tuple[Claim, ...]:
    """The claims on a language model."""
    published = "Llama-3-8B, perplexity over 6.14: 0.17 for weights, 0.49 with keys, values and activations"
    table = "table of perplexities with weights, cache and activations quantised"
    return (
        Claim(
            f"kv-costs-{model}",
            says="quantised keys and values cost something beside quantised weights",
            source=table,
            published=published,
            quantity=f"KL(float to quantised), weights over weights and cache, {model}",
            predicts=at_most(0.95),
            measure=lambda size: scope_ratio(model, size, "nestquant w", "nestquant w+kv"),
            control=lambda size: scope_ratio(model, size, "nestquant w+kv", "nestquant w+kv"),
            without="a difference of scope",
            sizes=sizes,
        ),
        Claim(
            f"activations-cost-{model}",
            says="quantised activations cost more again",
            source=table,
            published=published,
            quantity=f"KL(float to quantised), without activations over with them, {model}",
            predicts=at_most(0.95),
            measure=lambda size: scope_ratio(model, size, "nestquant w+kv", f"nestquant {WHOLE}"),
            control=lambda size: scope_ratio(model, size, f"nestquant {WHOLE}", f"nestquant {WHOLE}"),
            without="a difference of scope",
            sizes=sizes,
        ),
        Claim(
            f"absmax-{model}",
            says="4-bit everything loses less than half of what 4-bit integers lose under the same rotation",
            source=f"{table}; QuaRot's from its paper",
            published="Llama-3-8B: 6.63 against 8.2, 0.24 of the increase over 6.14",
            quantity=f"KL(float to quantised) over that of abs-max integers, {model}",
            predicts=at_most(0.5),
            measure=lambda size: scope_ratio(model, size, f"nestquant {WHOLE}", f"absmax {WHOLE}"),
            control=lambda size: scope_ratio(model, size, f"one-scale {WHOLE}", f"absmax {WHOLE}"),
            without="the union of scales: one that holds every block",
            sizes=sizes,
        ),
    )


SCOPE_CLAIMS = (
    Claim(
        "matmul-bound",
        says="products of coded Gaussian factors come near to what no code can beat",
        source="section 2; the bound is of Ordentlich and Polyanskiy 2024",
        published="no figure; 1.59 by an independent implementation",
        quantity="error of an entry of AᵀB over Γ(R)",
        predicts=at_most(1.63),
        measure=lambda size: product_error(size, ACTIVATIONS),
        control=lambda size: product_error(size, LatticeCode(Q, (6.75 / Q,))),
        without="the union of scales: the best single one",
    ),
    Claim(
        "qa-ldlq",
        says="LDLQ that knows of activation noise loses less on noisy inputs",
        source="section 4.5",
        published="no figure for a layer; infinite perplexity without it for some models",
        quantity="loss on quantised inputs over that of plain LDLQ",
        predicts=at_most(0.99),
        measure=lambda size: noisy_loss_ratio(size, aware=True),
        control=lambda size: noisy_loss_ratio(size, aware=False),
        without="knowledge of the noise",
    ),
    *whole_model("tiny", ("quick", "full")),
    *whole_model("smollm2-135m", ("full",)),
)
