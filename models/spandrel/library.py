"""The library spandrel: the architectures that it reads, imported on first use."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ...core.errors import CheckpointError, UnsupportedModelError, foreign_reason
from ..architecture import State
from ..registry import MORE, OTHERWISE, likeness

_LARGEST_INDEX = 4096  # index of a layer; the deepest published network has about 500


@dataclass(frozen=True)
class Reading:
    """An architecture of spandrel that takes a state dict.

    Attributes:
        name: Name in spandrel, such as ``DRCT``.
        architecture: The ``spandrel.Architecture`` that loads it.
        restricted: Whether the license of its code restricts its use: it comes from `MORE`.
    """

    name: str
    architecture: Any
    restricted: bool


def is_installed() -> bool:
    """Return whether spandrel is installed."""
    return find_spec("spandrel") is not None


def find_reading(state: State) -> Reading | None:
    """Return the first architecture of spandrel that recognizes a state dict, or None."""
    if not is_installed():
        return None
    spandrel = _quietly_imported("spandrel")
    registry = spandrel.MAIN_REGISTRY.copy()
    more: Any = ()
    if find_spec(MORE) is not None:
        more = _quietly_imported(MORE).EXTRA_REGISTRY
        registry.add(*more, ignore_duplicates=True)
    restricted = {support.architecture.id for support in more}
    keys = spandrel.canonicalize_state_dict(dict(state))
    for support in registry.architectures("detection"):
        if _detects(support, keys):
            own = support.architecture
            return Reading(str(own.id), own, own.id in restricted)
    return None


def _quietly_imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def _detects(support: Any, keys: dict[str, Any]) -> bool:
    try:
        return bool(support.detect(keys))
    except Exception:  # noqa: BLE001 - it read a tensor that has another form than its own
        return False


def read(reading: Reading, state: State, source: str) -> Any:
    """Return spandrel's descriptor of a network with its weights.

    spandrel gets only the tensors: `models.checkpoint` has read the file before.

    Args:
        reading: The result of `find_reading`.
        state: The tensors by key.
        source: Name of the file, for messages.

    Raises:
        UnsupportedModelError: spandrel refuses the tensors.
        CheckpointError: A key has an index so large that there would be too many layers.
    """
    spandrel = importlib.import_module("spandrel")
    _refuse_long(state, source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about deprecated calls of PyTorch
            return reading.architecture.load(spandrel.canonicalize_state_dict(dict(state)))
    except Exception as error:  # any error is caused by the tensors
        reason = foreign_reason(error, 400)
        raise UnsupportedModelError(
            f"no known architecture: {likeness(state)}; spandrel {spandrel.__version__} "
            f"recognizes {source} as {reading.name} and refuses it: {reason}. {OTHERWISE}"
        ) from error


def _refuse_long(state: State, source: str) -> None:
    """Raise if an index in a key is so large that a network of too many layers would be built."""
    for key in state:
        numbers = [part for part in key.split(".") if part.isdigit()]
        if any(len(part) > 9 or int(part) > _LARGEST_INDEX for part in numbers):
            raise CheckpointError(
                f"{source}: {key[:80]} has an index above {_LARGEST_INDEX}, the most layers that "
                "are built from a file"
            )
