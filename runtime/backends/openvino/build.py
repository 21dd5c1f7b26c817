"""``nystra build --backend openvino``: a network compiled for one size, in the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....core.errors import ExportError, NystraError
from ....core.files.scratch import scratch_folder
from ....core.option import Options, option
from ...compiled import cache
from ...compiled.cache import Engine, EngineRecord
from ...compiled.model import ENGINE_TILE, REBUILD, EngineModel, EngineShapes, make_profile
from ...model.model_facts import parse_facts
from ...options import PRECISION
from ...session_spec import SessionSpec
from .. import open_backend

BACKEND = "openvino"
"""The name of the builder in records."""


def record_of(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    core: Any,
    device: str,
    variant: tuple[str, ...],
) -> EngineRecord:
    """Return the record of a network, without a file so far; its key covers what it depends on.

    The kernels are called by the compiled network and are not part of it.

    Args:
        path: The model file.
        shapes: Shapes of all inputs; it is compiled for no other.
        core: OpenVINO's.
        device: Its name of the device.
        variant: The precision, whether operators are kernels or bodies, and what was rewritten.

    Raises:
        NystraError: The model file, or one that goes with it, cannot be read.
    """
    import openvino

    return EngineRecord(
        backend=BACKEND,
        version=openvino.get_version(),
        model=path.name,
        hashes=EngineModel(path.absolute(), None, "").hashes(),
        profile={name: (shape,) * 3 for name, shape in shapes.items()},
        device={
            "device": device,
            "name": str(core.get_property(device, "FULL_DEVICE_NAME")),
            "capabilities": sorted(core.get_property(device, "OPTIMIZATION_CAPABILITIES")),
        },
        flags=list(variant),
    )


def store(record: EngineRecord) -> bytes | None:
    """Return the network of a record from the cache, or None if there is none.

    One that cannot be trusted is not loaded, with a warning.
    """
    try:
        entry = cache.find(record.key)
    except NystraError as error:
        warnings.warn(f"{error}. The model file is compiled instead", stacklevel=2)
        return None
    return None if entry is None else entry.path.read_bytes()


@dataclass(frozen=True)
class CompileOptions(Options):
    """How a network is compiled.

    Attributes:
        backend: ``openvino``, or ``openvino:`` and a device.
        shapes: The requested shapes; all three are the same.
    """

    backend: str
    shapes: EngineShapes = field(default_factory=EngineShapes)
    tile: int | None = option(ENGINE_TILE)
    precision: str | None = option(PRECISION)
    rebuild: bool = option(REBUILD)


def compile_network(
    path: Path,
    options: CompileOptions,
    library: str | Path = "auto",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Engine, str]:
    """Compile a network, or find it in the cache.

    Args:
        path: The model file.
        options: How.
        library: ``auto``, or ``none``: the operators' bodies are compiled.
        progress: Called with progress messages.

    Returns:
        The network, and a sentence about its operators and the reason.

    Raises:
        NystraError: Bad input, or the cache has one that cannot be trusted.
        BackendUnavailableError: OpenVINO is not installed, or has no such device.
        ExportError: OpenVINO refused the network.
    """
    progress("read")
    spec = SessionSpec(path, options.backend, library=library, precision=options.precision)
    network: Any = open_backend(spec)
    shapes = _shapes(network, options)
    record = network.record(shapes)
    cached = None if options.rebuild else cache.find(record.key)
    if cached is not None:
        return cached, network.library_reason
    progress("compile")
    try:
        content = network.compile(shapes).export_model()
    except RuntimeError as error:
        raise ExportError(f"{options.backend} cannot compile {path}: {error}") from error
    with scratch_folder() as folder:
        file = folder / "network"
        file.write_bytes(content if isinstance(content, bytes) else content.getvalue())
        if network.record(shapes).key != record.key:
            raise ExportError(f"{path} or one of its files changed during the build: build again")
        return cache.store(record, file, fresh=True), network.library_reason


def _shapes(network: Any, options: CompileOptions) -> dict[str, tuple[int, ...]]:
    facts = parse_facts(network.metadata, network.inputs, network.outputs)
    profile = make_profile(facts.inputs, options.shapes, options.tile)
    for name, (minimum, optimum, maximum) in profile.items():
        if not minimum == optimum == maximum:
            raise NystraError(
                f"{options.backend} compiles for one size, got {minimum} to {maximum} for "
                f"{name!r}: give `opt_shapes` or `tile` alone, and build once for each size"
            )
    fixed = {tensor.name: tensor.shape for tensor in network.inputs}
    return fixed | {name: row[1] for name, row in profile.items()}
