"""Chooses engines of the cache for a model, this GPU, and the shapes of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...core.errors import BackendUnavailableError, NystraError
from ..engines import cache, toolkit
from ..engines.model import EngineModel
from ..engines.record import EngineRecord
from ..machine import gpu

Shapes = Mapping[str, tuple[int, ...]]
CachedEngine = tuple[Path, EngineRecord]


def engines_for(model: EngineModel, builder: toolkit.Toolkit) -> list[CachedEngine]:
    """Return the engines of a model from this builder for this machine's GPU, newest first.

    Raises:
        BackendUnavailableError: There is none; the message lists engines for other devices.
    """
    device = gpu.find_device()
    engines = list(_engines_of(model, builder))
    fitting = [engine for engine in engines if _fits(engine[1], device)]
    if fitting:
        return fitting
    this_device = device if isinstance(device, str) else f"{device.name} ({device.capability})"
    other_devices = sorted({_place(record) for _, record in engines})
    raise BackendUnavailableError(
        f"the cache has no engine for {model.path.name} for {builder.name} {builder.version} on "
        f"{this_device}{f', only for {chr(44).join(other_devices)}' if other_devices else ''}: "
        f"nystra build {model.path} --backend {builder.name}; see docs/gpu.md"
    )


def engine_taking(engines: Sequence[CachedEngine], shapes: Shapes) -> CachedEngine:
    """Return the first engine whose profile accepts these input shapes.

    Raises:
        NystraError: No engine does.
    """
    for engine in engines:
        if not _refused(engine[1], shapes):
            return engine
    refusals = [_refused(record, shapes) for _, record in engines]
    name = refusals[0]
    ranges = ", ".join(
        f"from {record.profile[name][0]} to {record.profile[name][2]}"
        for (_, record), refused in zip(engines, refusals, strict=True)
        if refused == name
    )
    raise NystraError(
        f"the engines in the cache accept {name!r} {ranges}; got {shapes[name]}: build one for "
        "it, nystra build --minShapes ... --maxShapes ..., or run tiles of a size that they "
        "accept (`tile`); see docs/gpu.md"
    )


def _engines_of(model: EngineModel, builder: toolkit.Toolkit) -> Iterator[CachedEngine]:
    hashes = model.hashes()
    for path, record in cache.every():
        if (record.backend, record.version) != (builder.name, builder.version):
            continue
        if not toolkit.built_as_now(record.flags):
            continue
        if record.hashes == hashes:
            yield path, record


def _fits(record: EngineRecord, device: gpu.Device | str) -> bool:
    """Whether an engine is for this GPU: TensorRT's for its model, TensorRT-RTX's for its kind."""
    if isinstance(device, str):
        return False
    if record.backend == toolkit.RTX:
        return device.capability in (*record.targets, record.device.get("capability"))
    built = (record.device.get("name"), record.device.get("capability"))
    return built == (device.name, device.capability)


def _place(record: EngineRecord) -> str:
    name, capability = record.device.get("name"), record.device.get("capability")
    return "/".join(record.targets) or f"{name} ({capability})"


def _refused(record: EngineRecord, shapes: Shapes) -> str:
    """Return the first input whose shape the profile does not accept; empty if it accepts all."""
    for name, shape in shapes.items():
        least, _, most = record.profile.get(name, (shape, shape, shape))
        inside = len(shape) == len(least) and all(
            low <= size <= high for low, size, high in zip(least, shape, most, strict=True)
        )
        if not inside:
            return name
    return ""
