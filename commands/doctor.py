"""`icml25 doctor`: what this installation has, and what it lacks."""

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import service

app = service("doctor")

PACKAGES = ("icml25", "torch", "transformers", "numpy", "numba", "safetensors", "huggingface_hub", "typer", "rich")
CLIENTS = {
    "pip": "assets from the Python registry",
    "npm": "assets from the npm registry",
    "apt-get": "assets from Debian packages",
    "dpkg-deb": "assets from Debian packages",
}
GB = 1e9


@app.command()
def doctor(as_json: opt.Json = False) -> None:
    """Show versions, devices, memory, disk, caches and the clients that assets are fetched with; and what is amiss."""
    import os
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, metadata, requires, version

    import psutil
    import torch
    from packaging.requirements import Requirement

    from icml25cli.core.parallel import usable_cpus
    from icml25cli.core.runs import cache_dir

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    report = Report("doctor")
    report.rows = [{"package": name, "version": installed(name)} for name in PACKAGES]
    report.tables["clients"] = [
        {"client": name, "found": shutil.which(name), "needed_for": use} for name, use in CLIENTS.items()
    ]
    extras = [extra for extra in metadata("icml25").get_all("Provides-Extra") or [] if extra not in ("test", "dev")]
    named = [Requirement(line) for line in requires("icml25") or []]
    report.tables["extras"] = [
        {
            "extra": extra,
            "lacks": [
                wanted.name
                for wanted in named
                if wanted.marker and wanted.marker.evaluate({"extra": extra}) and installed(wanted.name) is None
            ]
            or None,
        }
        for extra in extras
    ]
    cache = cache_dir()
    there = next(folder for folder in (cache, *cache.parents) if folder.is_dir())
    kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) if cache.is_dir() else 0
    memory = psutil.virtual_memory()
    report.metrics = {
        "usable_cpus": usable_cpus(),
        "torch_threads": torch.get_num_threads(),
        "memory_gb": memory.total / GB,
        "memory_free_gb": memory.available / GB,
        "cache_gb": kept / GB,
        "cache_free_gb": shutil.disk_usage(there).free / GB,
    }
    report.tables["machine"] = [{**report.metrics}]
    missing = [str(row["package"]) for row in report.rows if row["version"] is None]
    absent = [client for client in CLIENTS if shutil.which(client) is None]
    report.answer = {
        "status": f"lacks {', '.join(missing)}" if missing else "every package is there",
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": ["cpu", *(f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count()))],
        "cache": str(cache),
    }
    report.warnings = [f"{name} is not installed" for name in missing]
    report.warnings += [f"{client} is not found: no {CLIENTS[client]}" for client in absent]
    if not os.access(there, os.W_OK):
        report.warnings.append(f"{there} cannot be written: nothing can be kept for another run")
    show(report, as_json=as_json)
