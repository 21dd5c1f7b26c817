"""Networks that `nystra build --backend openvino` compiled: their records and how to find them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from ...engines import cache
from ...engines.cache import EngineRecord
from ...engines.model import EngineModel

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


def stored(record: EngineRecord) -> bytes | None:
    """Return the network of a record from the cache, or None if there is none.

    One that cannot be trusted is not loaded, with a warning.
    """
    try:
        entry = cache.find(record.key)
    except NystraError as error:
        warnings.warn(f"{error}. The model file is compiled instead", stacklevel=2)
        return None
    return None if entry is None else entry[0].read_bytes()
