"""A description of the machine, the first step, and environments for the others."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path

from .running import Context, StepError, which

QUERY = (
    "name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,"
    "power.limit,compute_cap"
)


def describe(context: Context) -> None:
    """Driver, GPU, compilers, Python and its packages."""
    facts: dict[str, object] = {
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
    context.keep(facts=facts)
    packages = {one.metadata["Name"]: one.version for one in distributions()}
    context.keep(packages=dict(sorted(packages.items(), key=lambda one: str(one[0]).lower())))
    for name in ("torch", "numpy", "onnx", "onnxruntime", "ml_dtypes"):
        facts[name] = packages.get(name, packages.get(name.replace("_", "-"), "none"))
    for name in ("nvcc", "ncu", "compute-sanitizer"):
        facts[name] = str(which(name) or "none")
    context.keep(facts=facts)
    query = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    values = context.command(query, limit=20).strip().splitlines()[0].split(", ")
    context.keep(facts=facts | dict(zip(QUERY.split(","), values, strict=False)))


def cuda_libraries() -> dict[str, str]:
    """An environment in which CUDA's libraries installed by pip are found."""
    folders = [
        str(folder)
        for entry in sys.path
        for folder in sorted(Path(entry or ".").glob("nvidia/*/lib"))
    ]
    own = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    return {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *own])}


def python(*sites: Path) -> dict[str, str]:
    """The environment of a Python that finds packages in folders, and CUDA's libraries."""
    missing = [str(site) for site in sites if not site.is_dir()]
    if missing:
        raise StepError(f"no packages in {', '.join(missing)}")
    own = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {"PYTHONPATH": os.pathsep.join([*map(str, sites), *own]), **cuda_libraries()}
