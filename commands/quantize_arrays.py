"""Verbs of `icml25 quantize` on arrays and their codes, and the options that they share with its other verbs."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, Row, show

if TYPE_CHECKING:
    from icml25cli.papers.quantize.contents import Coded, Contents


class RotationName(StrEnum):
    random_hadamard = "random-hadamard"
    hadamard = "hadamard"
    orthogonal = "orthogonal"
    none = "none"


Q = Annotated[int, typer.Option("--q", min=2, max=16, help="Levels per dimension of the lattice code: log2 q bits.")]
K = Annotated[int, typer.Option("--k", min=1, max=8, help="Scales a block may choose from.")]
Betas = Annotated[
    str,
    typer.Option(
        "--betas", metavar="auto|ref|LIST|@FILE", help="Scales times q: fitted, the paper's, a list, or of `betas -o`."
    ),
]


def encode(
    array: Annotated[Path, typer.Argument(metavar="IN.npy", help="Rows of float16, float32 or float64: .npy or .npz.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.nq", help="File of codes to write.")],
    q: Q = 14,
    k: K = 4,
    betas: Betas = "auto",
    rotation: Annotated[RotationName, typer.Option("--rotation", help="Of each row.")] = RotationName.random_hadamard,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Compress the rows of an array to codes of about log2 q bits a number, and say what that costs."""
    from icml25cli.core.errors import about
    from icml25cli.core.files import check_file
    from icml25cli.core.tables import read_array
    from icml25cli.papers.quantize.arrays import encode_array, sample_blocks
    from icml25cli.papers.quantize.rotation import Rotation
    from icml25cli.papers.quantize.scales import code_for, scales_asked

    report = Report("quantize", params={"verb": "encode", "q": q, "rotation": rotation.value}, seed=seed)
    check_file(output, force=force)
    asked = scales_asked(betas, "weights")
    x = read_array(array)
    turn = Rotation(rotation.value, x.shape[-1], seed)
    with about(array):
        code = code_for(asked, q, k, lambda: sample_blocks(x, turn, seed=seed))
        encoded = encode_array(x, code, turn)
    encoded.save(output, force=force)
    values = x.size
    report.params["scales_times_q"] = [round(beta * q, 4) for beta in encoded.code.betas]
    report.rows = [
        {
            "method": "nestquant",
            "shape": list(x.shape),
            "bits_per_value": encoded.bits.total / values,
            "relative_mse": encoded.relative_mse,
            "overloads": encoded.overloads,
            "input_bytes": x.nbytes,
            "output_bytes": output.stat().st_size,
        }
    ]
    report.tables["rate"] = [{name: bits / values for name, bits in asdict(encoded.bits).items()}]
    report.metrics = {"bits_per_value": encoded.bits.total / values, "relative_mse": encoded.relative_mse}
    report.artefacts = [str(output)]
    show(report, as_json=as_json)


def decode(
    codes: Annotated[Path, typer.Argument(metavar="IN.nq", help="A file that encode wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.npy", help="Array to write.")],
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Bring an array back from its codes, in its shape and dtype."""
    from icml25cli.core.files import check_file
    from icml25cli.core.tables import write_array
    from icml25cli.papers.quantize.arrays import EncodedArray

    report = Report("quantize", params={"verb": "decode"})
    check_file(output, force=force)
    encoded = EncodedArray.load(codes)
    x = encoded.decode()
    write_array(output, x, force=force)
    report.params["q"] = encoded.code.q
    report.rows = [
        {
            "method": "nestquant",
            "shape": list(x.shape),
            "dtype": encoded.dtype,
            "relative_mse": encoded.relative_mse,
        }
    ]
    report.metrics = {"relative_mse": encoded.relative_mse}
    report.artefacts = [str(output)]
    show(report, as_json=as_json)


def dot(
    a: Annotated[Path, typer.Argument(metavar="A.nq", help="A file that encode wrote.")],
    b: Annotated[Path, typer.Argument(metavar="B.nq", help="Another, of the same width and rotation.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT.npy", help="Array of float32 to write.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Each row of A with the same row of B alone.")] = False,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Inner products of the rows of A with those of B, from codes alone."""
    from icml25cli.core.files import check_file
    from icml25cli.papers.quantize.arrays import EncodedArray
    from icml25cli.papers.quantize.products import dot as multiply

    report = Report("quantize", params={"verb": "dot", "pairs": pairs})
    if output:
        check_file(output, force=force)
    done = multiply(EncodedArray.load(a), EncodedArray.load(b), pairs=pairs, output=output, force=force)
    report.rows = [
        {
            "method": "nestquant",
            "shape": list(done.shape),
            "smallest": done.smallest,
            "largest": done.largest,
            "mean": done.mean,
        }
    ]
    report.metrics = {"smallest": done.smallest, "largest": done.largest, "mean": done.mean}
    report.answer = {"shape": list(done.shape), "first": list(done.first)}
    report.artefacts = [str(output)] if output else []
    show(report, as_json=as_json)


def inspect(
    path: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A packed directory, or a file that encode wrote.")],
    as_json: opt.Json = False,
) -> None:
    """Check every code of a file or packed directory, and say what is in it and where its bytes go."""
    from icml25cli.papers.quantize.contents import array_contents, model_contents

    report = Report("quantize", params={"verb": "inspect", "path": str(path)})
    found = model_contents(path) if path.is_dir() else array_contents(path)
    _show_contents(report, found)
    show(report, as_json=as_json)


def _show_contents(report: Report, found: "Contents") -> None:
    from icml25cli.papers.quantize.contents import entropy

    def facts(coded: "Coded") -> dict[str, Any]:
        return {
            "tensor": coded.name,
            "shape": list(coded.shape),
            "dtype": coded.dtype,
            "bits_per_value": coded.bits.total / coded.values,
            "digit_entropy_bits": entropy(coded.digits),
            "scale_entropy_bits": entropy(coded.scales) / 8,
            "relative_mse": coded.relative_mse,
            "overloads": coded.overloads,
        }

    first = found.coded[0]
    code, rotation = first.code, first.rotation
    report.params |= {
        "format": found.format,
        "q": code.q,
        "k": len(code.betas),
        "method": "nestquant-m" if code.simplified else "nestquant",
        "rotation": "none" if rotation is None else rotation.kind,
        "rotation_seed": None if rotation is None else rotation.seed,
    }
    rows: list[Row] = [facts(coded) for coded in found.coded]
    errors = [coded.relative_mse for coded in found.coded if coded.relative_mse is not None]
    overloads = [coded.overloads for coded in found.coded if coded.overloads is not None]
    total = {
        "tensors": len(rows),
        "values": found.values,
        "bits_per_value": sum(coded.bits.total for coded in found.coded) / found.values,
        "digit_entropy_bits": entropy(found.digits),
        "scale_entropy_bits": entropy(found.scales) / 8,
        "mean_relative_mse": sum(errors) / len(errors) if len(errors) == len(rows) else None,
        "overloads": sum(overloads) if len(overloads) == len(rows) else None,
        "bytes": round(sum(found.bytes.values())),
    }
    report.rows = rows if len(rows) == 1 else [total]
    report.details = {"tensors": rows}
    report.tables = {
        "scales": [
            {"scale_times_q": beta * code.q, "blocks": int(count), "share": float(count / found.scales.sum())}
            for beta, count in zip(code.betas, found.scales, strict=True)
        ],
        "bytes": [
            {"part": part, "bytes": held, "bits_per_value": 8 * held / found.values}
            for part, held in found.bytes.items()
        ],
    }
    report.metrics = {key: value for key, value in total.items() if value is not None}
    report.answer = {"status": "every code is in range"}


VERBS = (encode, decode, dot, inspect)
