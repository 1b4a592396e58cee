"""Verbs of `icml25 quantize` that look for good codes: scales fitted to data, and rate against distortion."""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.commands.quantize_arrays import Betas, K, Q, RotationName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.papers.quantize.bench import ProductPoint, RatePoint
    from icml25cli.papers.quantize.voronoi import LatticeCode


class BenchName(StrEnum):
    gaussian = "gaussian"
    matmul = "matmul"
    tensor = "tensor"


class LatticeName(StrEnum):
    nestquant = "nestquant"
    nestquant_m = "nestquant-m"


class KindName(StrEnum):
    weights = "weights"
    keys = "keys"
    values = "values"
    activations = "activations"


def betas(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE", help="A model as of run, or a .npy, .npz or .safetensors file; FILE:KEY of several."
        ),
    ] = "tiny",
    method: Annotated[LatticeName, typer.Option("--method", help="Whose decoder the scales are for.")] = (
        LatticeName.nestquant
    ),
    q: Q = 14,
    k: K = 4,
    kinds: Annotated[
        list[KindName] | None,
        typer.Option("--for", help="Repeat for several. [default: all four of a model; weights of a file]"),
    ] = None,
    rotation: Annotated[
        RotationName, typer.Option("--rotation", help="Of all but values.")
    ] = RotationName.random_hadamard,
    calib: Annotated[
        str, typer.Option("--calib", metavar="TEXT", help="Calibration text: a file, a folder, an asset, - or builtin.")
    ] = "builtin",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="File for --betas @FILE to write.")
    ] = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Fit scales to a model's weights, keys, values and activations, or to a matrix, and write them for --betas."""
    from icml25cli.core.errors import about
    from icml25cli.core.files import check_file, write_json
    from icml25cli.core.matrix_file import is_matrix_file, read_matrix
    from icml25cli.core.parallel import set_threads

    report = Report("quantize", params={"verb": "betas", "source": source, "method": method.value, "q": q, "k": k})
    report.params |= {"rotation": rotation.value}
    report.seed = seed
    if output:
        check_file(output, force=force)
    set_threads(threads)
    asked = [kind.value for kind in dict.fromkeys(kinds or ())]
    if is_matrix_file(source):
        from icml25cli.papers.quantize.arrays import sample_blocks
        from icml25cli.papers.quantize.rotation import Rotation
        from icml25cli.papers.quantize.scales import choose_scales

        x = read_matrix(source)
        with about(source):
            blocks = sample_blocks(x, Rotation(rotation.value, x.shape[1], seed), seed=seed)
        chosen = choose_scales(blocks, q, k, simplified=method == LatticeName.nestquant_m), len(blocks)
        fitted = dict.fromkeys(asked or ["weights"], chosen)
    else:
        from icml25cli.core.models import pick_device, resolve
        from icml25cli.core.streaming import StreamedModel
        from icml25cli.papers.quantize.plan import KINDS, Options, fit_scales

        model = resolve(source, allow_download=allow_download, trust_remote_code=trust_remote_code)
        report.device = str(pick_device(device))
        options = Options(method=method.value, q=q, k=k, rotations=(rotation.value,), calibration=calib, seed=seed)
        fitted = fit_scales(StreamedModel(model, report.device), options, asked or KINDS)
    lists = {kind: [round(beta * q, 6) for beta in chosen.code.betas] for kind, (chosen, _) in fitted.items()}
    report.rows = [
        {
            "for": kind,
            "scales_times_q": lists[kind],
            "distortion": chosen.distortion,
            "sample_blocks": blocks,
        }
        for kind, (chosen, blocks) in fitted.items()
    ]
    report.metrics = {f"distortion_{kind}": chosen.distortion for kind, (chosen, _) in fitted.items()}
    report.notes = [
        "The last scale is 1.3 times the largest that the sample needed: the data are larger than the sample."
    ]
    if output:
        facts = {kind: {"distortion": chosen.distortion, "blocks": count} for kind, (chosen, count) in fitted.items()}
        write_json(output, lists | report.params | {"seed": seed, "sample": facts}, force=force)
        report.artefacts = [str(output)]
    show(report, as_json=as_json)


def bench(
    what: Annotated[BenchName, typer.Argument(metavar="gaussian|matmul|tensor", help="What to code.")],
    matrix: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help="For tensor: a .npy, .npz or .safetensors file; FILE:KEY if it holds several."
        ),
    ] = None,
    q: Annotated[str, typer.Option("--q", metavar="LIST", help="Levels per dimension, 2 to 32 each.")] = (
        "8,10,12,14,16"
    ),
    k: Annotated[str, typer.Option("--k", metavar="LIST", help="Numbers of scales to fit, 1 to 8 each.")] = "1,2,4",
    betas: Betas = "auto",
    method: Annotated[
        list[LatticeName] | None, typer.Option("--method", help="Repeat for both. [default: nestquant]")
    ] = None,
    samples: Annotated[
        float, typer.Option("--samples", min=8, max=1e9, help="Numbers to code; whole rows of them.")
    ] = 1e6,
    n: Annotated[int, typer.Option("--n", min=8, max=2**20, help="Numbers of a row of gaussian or matmul.")] = 4096,
    m: Annotated[int, typer.Option("--m", min=2, max=2**16, help="Rows of each factor of matmul.")] = 512,
    rotation: Annotated[
        RotationName, typer.Option("--rotation", help="Of each row of tensor.")
    ] = RotationName.random_hadamard,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Rate against distortion of the lattice code, scalar quantisers and the bound: which wastes how many bits."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.plots import check_figure, save_figure

    if (matrix is None) == (what == BenchName.tensor):
        raise UsageError(
            f"bench {what.value} takes {'a FILE' if matrix is None else 'no FILE'}",
            hint="bench tensor FILE is for a matrix, gaussian and matmul make their own",
        )
    qs, ks = _whole_numbers("--q", q, 2, 32), _whole_numbers("--k", k, 1, 8)
    if plot:
        check_figure(plot, force=force)

    from icml25cli.core.errors import about
    from icml25cli.core.matrix_file import read_matrix
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.quantize import bench as benchmark
    from icml25cli.papers.quantize import figures
    from icml25cli.papers.quantize.arrays import sample_blocks
    from icml25cli.papers.quantize.rotation import Rotation
    from icml25cli.papers.quantize.scales import scales_asked

    set_threads(threads)
    report = Report("quantize", params={"verb": "bench", "of": what.value}, seed=seed)
    asked = scales_asked(betas, "weights")
    methods = [name.value for name in dict.fromkeys(method or (LatticeName.nestquant,))]
    if what == BenchName.tensor:
        x = read_matrix(str(matrix))
        turn = Rotation(rotation.value, x.shape[1], seed)
        with about(matrix):
            rows = benchmark.matrix_rows(x, turn, samples=int(samples), seed=seed)
            sample = sample_blocks(x, turn, count=benchmark.FITTED, seed=seed)
        report.params |= {"file": matrix, "shape": list(x.shape), "rows_used": len(rows.values)}
        report.params |= {"rotation": rotation.value}
    else:
        rows, sample = None, benchmark.gaussian_blocks(seed)
    codes = benchmark.choose_codes(sample, asked, qs, ks, methods)
    if what == BenchName.matmul:
        report.params |= {"n": n, "m": m}
        points = benchmark.products(codes, n=n, m=m, seed=seed)
        _show_products(report, points)
        figure = partial(figures.product_error, points)
    else:
        rows = rows or benchmark.gaussian_rows(int(samples), n, seed)
        report.params |= {"numbers": rows.values.size, "row": rows.values.shape[1]}
        points = benchmark.rate_distortion(rows, codes, sample)
        _show_rates(report, points, gaussian=what == BenchName.gaussian)
        figure = partial(figures.rate_distortion, points)
    if asked == "auto":
        report.notes.append("Fitted codes keep room for data 1.3 times as large as the sample: costly with one scale.")
    report.tables["codes"] = [_code_facts(code) for code in codes]
    if plot:
        save_figure(figure(), plot, force=force)
        report.artefacts.append(str(plot))
    show(report, as_json=as_json)


def _whole_numbers(option: str, text: str, low: int, high: int) -> list[int]:
    """The numbers of a list as ``8,10,12``, each once."""
    from icml25cli.core.errors import UsageError

    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(low <= number <= high for number in numbers):
        raise UsageError(
            f"{option} {text!r} is no list of whole numbers from {low} to {high}", hint=f"as in {option} 4,8"
        )
    return list(dict.fromkeys(numbers))


def _code_facts(code: "LatticeCode") -> dict[str, Any]:
    return {
        "method": "nestquant-m" if code.simplified else "nestquant",
        "q": code.q,
        "k": len(code.betas),
        "scales_times_q": ", ".join(f"{beta * code.q:.4g}" for beta in code.betas),
    }


def _show_rates(report: Report, points: "Sequence[RatePoint]", *, gaussian: bool) -> None:
    report.rows = [
        {
            "method": point.method,
            "levels": point.levels,
            "k": point.k,
            "distortion": point.distortion,
            "distortion_se": point.distortion_se,
            "bits_raw": point.bits_raw,
            "bits_entropy": point.bits_entropy,
            "gap_bits": point.gap,
            "entropy_coded_uniform_bits": point.scalar_bits,
            "overloads": point.overloads,
            "encode_mvalues_per_second": point.encode_rate,
            "decode_mvalues_per_second": point.decode_rate,
        }
        for point in points
    ]
    best = min((point for point in points if point.code), key=lambda point: point.gap)
    report.metrics = {
        "distortion": best.distortion,
        "bits_raw": best.bits_raw,
        "bits_entropy": best.bits_entropy,
        "gap_bits": best.gap,
        "entropy_coded_uniform_bits": best.scalar_bits,
    }
    name = f"{best.method} of q = {best.levels} and k = {best.k}"
    report.answer = {"nearest_to_the_bound": name}
    more = best.bits - best.scalar_bits
    scales = "The code, lloyd-max and uniform know the variance" if gaussian else "A row's scale is counted"
    report.notes = [
        f"Distortion is the mean squared error of an entry{'' if gaussian else ' over its mean square'}, ± one "
        "standard error over rows; all methods code the same numbers. The gap is to ½·log2(1/D), Shannon's "
        "bound for a Gaussian, at bits_entropy where it is given (its indices have variable length), else at bits_raw.",
        f"{scales}; rtn and absmax store their own scales, which are counted. Speeds are the best of three runs on one "
        "thread, without packing.",
        f"A uniform scalar quantiser with entropy-coded indices reaches the distortion of {name} at "
        f"{best.scalar_bits:.3f} bits, {abs(more):.3f} {'fewer' if more > 0 else 'more'}. It needs "
        "variable-length codes: no entry can be found or decoded without those before it.",
    ]


def _show_products(report: Report, points: "Sequence[ProductPoint]") -> None:
    report.rows = [
        {
            "method": point.method,
            "levels": point.levels,
            "k": point.k,
            "error": point.error,
            "error_se": point.error_se,
            "bits_raw": point.bits_raw,
            "bits_entropy": point.bits_entropy,
            "bound": point.bound,
            "error_over_bound": point.ratio,
        }
        for point in points
    ]
    best = min((point for point in points if point.code), key=lambda point: point.ratio)
    report.metrics = {
        "error": best.error,
        "bits_entropy": best.bits_entropy,
        "bound": best.bound,
        "error_over_bound": best.ratio,
    }
    report.answer = {"nearest_to_the_bound": f"{best.method} of q = {best.levels} and k = {best.k}"}
    report.notes = [
        "Error is the mean squared error of an entry of AᵀB over n, both factors N(0, 1) and coded, ± one standard "
        "error over rows and columns. The bound Γ(R) is the least of any scheme that codes each factor by itself, at "
        "bits_entropy where scale indices are coded by their entropy, else at bits_raw."
    ]


VERBS = (betas, bench)
