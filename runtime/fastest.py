"""``--backend fastest``: onnxruntime or OpenVINO, whichever takes less time on a file here.

Both are timed once, in interleaved runs in processes of their own (`timing.bench`), and the times
are kept beside the engines of the cache. What they depend on is their key: the model, the size
class, threads, library, and what is installed on which CPU.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.errors import BackendUnavailableError, NystraError
from ..core.files.writing import atomic_write_bytes, make_folder
from ..core.json_text import stable_json
from ..core.ports.port import Size, picture_size, size_text
from ..core.strict_json import read_json
from .backends import find_backend, require_precision
from .engines import cache
from .engines.model import EngineModel
from .model.onnx_header import read_onnx_header
from .model.onnx_tensors import read_facts
from .timing.bench import bench, session_configuration
from .timing.rows import describe_machine

CLASSES = (64, 128, 256)
"""Sides of the square pictures that are timed; what is larger counts as the last."""

_WAYS: dict[str, tuple[str, str | None]] = {
    "ort-cpu": ("ort-cpu", None),
    "openvino": ("openvino", None),
    "openvino-bf16": ("openvino", "bf16"),
}
"""Name in a benchmark -> backend and precision; bfloat16 is timed only where it is asked for."""

Times = Mapping[str, float]
"""Way -> milliseconds of a run."""


@dataclass(frozen=True)
class Choice:
    """What is the fastest.

    Attributes:
        backend: Name of the backend.
        precision: What it is to compute in, or None: as the file says.
        reason: What was chosen and why, without a full stop.
    """

    backend: str
    precision: str | None
    reason: str


def choose_fastest(
    path: str | os.PathLike[str],
    threads: int | None = None,
    library: str | Path | None = "auto",
    precision: str | None = None,
    side: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Choice:
    """Choose between onnxruntime and OpenVINO on the CPU; they are timed where that is not known.

    Args:
        path: The model file.
        threads: As in `Session`.
        library: As in `Session`.
        precision: With ``bf16`` OpenVINO's bfloat16 may be chosen too.
        side: Of the pictures or tiles to come, in pixels; None: 128. A file of one size is timed
            at that.
        progress: Is called with what is going on.

    Raises:
        NystraError: The file or the precision is wrong, or none of them runs it.
        BackendUnavailableError: None of them is installed.
    """
    if precision not in (None, "fp32", "bf16"):
        raise NystraError(f"precision {precision} does not apply to fastest: expected bf16 or fp32")
    here, missing = _ways(Path(path), precision)
    if not here:
        raise BackendUnavailableError(f"nothing is there to be the fastest: {missing}")
    if len(here) == 1:
        return Choice(*_WAYS[here[0]], f"fastest: {here[0]}, which is alone here ({missing})")
    size = read_facts(path).sides or picture_size(*[_class_of(side)] * 2)
    record = cache.home() / "fastest" / f"{_key(Path(path), here, size, threads, library)}.json"
    times, when = _remembered(record, here), "remembered"
    if not times:
        times, when = _timed(Path(path), here, size, threads, library, progress), "timed now"
        make_folder(record.parent)
        document = {"model": Path(path).name, "size": size_text(size), "milliseconds": times}
        atomic_write_bytes(record, stable_json(document))
    order = sorted(times, key=lambda way: times[way])
    told = [*(f"{way} {times[way]:.0f} ms" for way in order), *filter(None, [missing])]
    reason = f"fastest at {size_text(size)}: {', '.join(told)} ({when})"
    return Choice(*_WAYS[order[0]], reason)


def _ways(path: Path, precision: str | None) -> tuple[list[str], str]:
    """Return the ways that are here for a file, and why the others are not."""
    own = read_onnx_header(path).metadata.get("nystra.precision")
    here, reasons = [], []
    for way, (backend, low) in _WAYS.items():
        if low not in (None, precision):
            continue
        kind = find_backend(backend)
        usable, reason = kind.available()
        try:
            require_precision(backend, kind, path, own)
        except BackendUnavailableError as error:
            usable, reason = False, str(error)
        if usable:
            here.append(way)
        else:
            reasons.append(reason)
    return here, "; ".join(dict.fromkeys(reasons))


def _class_of(side: int | None) -> int:
    return next((largest for largest in CLASSES if (side or 128) <= largest), CLASSES[-1])


def _key(
    path: Path, ways: list[str], size: Size, threads: int | None, library: str | Path | None
) -> str:
    """Return what the times depend on, as a SHA-256."""
    parts = {
        "files": EngineModel(path.absolute(), None, "").hashes(),
        "ways": ways,
        "size": size_text(size),
        "threads": threads,
        "library": str(library),
        "kernels": os.environ.get("NYSTRA_CPU_ISA"),
        "machine": describe_machine(threads),
    }
    return hashlib.sha256(stable_json(parts)).hexdigest()


def _remembered(record: Path, ways: list[str]) -> Times:
    """Return the times that were kept; none where there are none, or no such ones."""
    try:
        times = read_json(record, "the times")["milliseconds"]
        return {way: float(times[way]) for way in ways if way in times}
    except (NystraError, KeyError, TypeError, ValueError):
        return {}


def _timed(
    path: Path,
    ways: list[str],
    size: Size,
    threads: int | None,
    library: str | Path | None,
    progress: Callable[[str], None],
) -> dict[str, float]:
    """Return the times of those ways that run the file."""
    own: dict[str, Any] = {"library": None if library is None else str(library)}
    configurations = []
    for way in ways:
        usual = session_configuration(path, way, threads)
        configurations.append(replace(usual, request={**usual.request, **own}))
    rows = bench(configurations, [size], seconds=2.0, runs=5, progress=progress)
    times = {row.backend: 1e3 * row.percentile(50) for row in rows if row.reason is None}
    if not times:
        reasons = "; ".join(f"{row.backend} {row.reason}" for row in rows)
        raise NystraError(f"{path} runs in none of {', '.join(ways)}: {reasons}")
    return times
