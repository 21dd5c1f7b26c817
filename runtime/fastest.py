"""``--backend fastest``: onnxruntime or OpenVINO, whichever runs a file faster here.

Both are timed once, in interleaved runs in processes of their own (`timing.bench`), and the times
are stored next to the engines of the cache. Their key has everything that they depend on: the
model, the size class, threads, library, installed versions and the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..core.errors import BackendUnavailableError, NystraError
from ..core.files.user_cache import CACHE_VARIABLE, key_of, read_figures, remember_figures
from ..core.metadata import ModelMetadata
from ..core.ports.port import Size, image_size, size_text
from .backends import find_backend, list_timed_backends, require_precision
from .compiled.model import EngineModel
from .model.onnx_graph import read_facts
from .model.onnx_header import read_onnx_header
from .session_spec import SessionSpec
from .timing.bench import bench, session_configuration, session_spec
from .timing.rows import describe_machine

CLASSES = (64, 128, 256)
"""Sides of the square inputs that are timed; larger inputs count as the last."""


@dataclass(frozen=True)
class Fastest:
    """The result of `choose_fastest`.

    Attributes:
        spec: The spec that was passed, with the fastest backend and precision.
        reason: What was chosen and why, one sentence without a full stop.
    """

    spec: SessionSpec
    reason: str


def choose_fastest(
    spec: SessionSpec,
    side: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Fastest:
    """Choose the faster of onnxruntime and OpenVINO on the CPU, timing them if necessary.

    Args:
        spec: The model and its settings. With the precision ``bf16`` OpenVINO's bfloat16 is a
            candidate too.
        side: Side of the expected images or tiles, in pixels; None: 128. A file of a fixed size
            is timed at that size.
        progress: Called with a description of each step.

    Raises:
        NystraError: The file or the precision is invalid, or no backend runs the file.
        BackendUnavailableError: No backend is installed.
    """
    if spec.precision not in (None, "fp32", "bf16"):
        raise NystraError(
            f"`precision` {spec.precision} does not apply to fastest: expected bf16 or fp32"
        )
    available, missing = _candidates(spec)
    if not available:
        raise BackendUnavailableError(f"no backend is installed to choose from: {missing}")
    if len(available) == 1:
        return _choose(
            spec, available[0], f"fastest: {available[0]}, the only one installed ({missing})"
        )
    size = read_facts(spec.model).sides or image_size(*[_class_of(side)] * 2)
    key = _key(spec, available, size)
    times, when = read_figures(key), "remembered"
    if not times or not times.keys() <= {*available}:
        times, when = _time_ways(spec, available, size, progress), "timed now"
        if not remember_figures(key, f"{spec.model.name} at {size_text(size)}", times):
            when += f", and not kept: set {CACHE_VARIABLE} to a folder for that"
    order = sorted(times, key=lambda way: times[way])
    entries = [*(f"{way} {1e3 * times[way]:.0f} ms" for way in order), *filter(None, [missing])]
    reason = f"fastest at {size_text(size)}: {', '.join(entries)} ({when})"
    return _choose(spec, order[0], reason)


def _choose(spec: SessionSpec, way: str, reason: str) -> Fastest:
    timed = session_spec(spec.model, way)
    return Fastest(replace(spec, backend=timed.backend, precision=timed.precision), reason)


def _candidates(spec: SessionSpec) -> tuple[list[str], str]:
    own = ModelMetadata.read(read_onnx_header(spec.model).metadata).precision
    available, reasons = [], []
    for name in list_timed_backends():
        kind = find_backend(name)
        low = spec.precision == "bf16" and "bf16" in kind.arithmetic
        usable, reason = kind.available()
        try:
            require_precision(name, kind, spec.model, own)
        except BackendUnavailableError as error:
            usable, reason = False, str(error)
        if usable:
            available += [name, f"{name}-bf16"] if low else [name]
        else:
            reasons.append(reason)
    return available, "; ".join(dict.fromkeys(reasons))


def _class_of(side: int | None) -> int:
    return next((largest for largest in CLASSES if (side or 128) <= largest), CLASSES[-1])


def _key(spec: SessionSpec, ways: list[str], size: Size) -> str:
    parts = {
        "files": EngineModel(spec.model.absolute(), None, "").hashes(),
        "ways": ways,
        "size": size_text(size),
        "threads": spec.threads,
        "library": spec.library,
        "kernels": os.environ.get("NYSTRA_CPU_ISA"),
        "machine": describe_machine(spec.threads),
    }
    return key_of(parts)


def _time_ways(
    spec: SessionSpec, ways: list[str], size: Size, progress: Callable[[str], None]
) -> dict[str, float]:
    library = str(spec.library)
    configurations = [session_configuration(spec.model, way, spec.threads, library) for way in ways]
    rows = bench(configurations, [size], seconds=2.0, runs=5, progress=progress)
    times = {row.backend: row.percentile(50) for row in rows if row.reason is None}
    if not times:
        reasons = "; ".join(f"{row.backend} {row.reason}" for row in rows)
        raise NystraError(f"{spec.model} does not run on any of {', '.join(ways)}: {reasons}")
    return times
