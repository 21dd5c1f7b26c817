"""The values of a network's conditions: steps, strengths, vectors, tokens."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.files.reading import regular_file
from ....core.option_kinds import parse_real
from ....core.ports.port import CONDITION_AXES, TOKENS_AXES, Port
from ...options import InputValue

MOST_BYTES = 64 << 20
"""Of a file of values."""

_MAGIC = b"\x93NUMPY"


def numbers_or_path(value: InputValue) -> Path | Array:
    """Return numbers as an array (), or (K,) of several, and anything else as a path."""
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        try:
            values = [parse_real(part) for part in text.split(",")]
        except ValueError:
            return Path(text)
        return np.asarray(values if len(values) > 1 else values[0])
    return np.asarray(value, np.float64)


def decode_values(data: bytes, name: str) -> Array:
    """Return the values of a ``.npy`` file, or of a text of numbers with commas between them.

    Raises:
        NystraError: It is neither, holds no numbers, or is too large.
    """
    if len(data) > MOST_BYTES:
        raise NystraError(f"{name} has {len(data)} bytes, expected at most {MOST_BYTES}")
    if not data.startswith(_MAGIC):
        try:
            values = numbers_or_path(data.decode("ascii").strip())
        except UnicodeDecodeError:
            values = Path()
        if isinstance(values, Path):
            raise NystraError(f"{name} is no number, no numbers with commas and no .npy file")
        return values
    try:
        array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # numpy raises what the file provokes
        raise NystraError(f"{name} is no array of numpy, or damaged: {error}") from error
    return array


def read_values(path: Path, name: str) -> Array:
    """Return the values of a file; see `decode_values`.

    Raises:
        NystraError: As `decode_values`, or the file cannot be read.
    """
    with regular_file(path, name).open("rb") as file:
        return decode_values(file.read(MOST_BYTES + 1), f"{name} {path}")


def condition_values(port: Port, values: Array) -> Array:
    """Return the values of an input for one image, in the type of its port.

    Args:
        port: The input.
        values: Shaped as the input, with or without a batch of 1.

    Raises:
        NystraError: They have another shape, or are no finite numbers, or not whole ones where
            these are needed, or out of the range of the input.
    """
    shape = tuple(port.lengths.get(axis) for axis in port.axes[1:])
    array = np.asarray(values)
    if array.ndim == len(port.axes) and array.shape[0] == 1:
        array = array[0]
    fits = len(array.shape) == len(shape) and all(
        expected in (None, got) and got for expected, got in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in "fiub":
        raise NystraError(
            f"{port.name} is {array.dtype} {array.shape}, expected {describe_values(port)}"
        )
    if not np.isfinite(array).all():
        raise NystraError(f"{port.name} holds NaN or infinity, expected {describe_values(port)}")
    if np.dtype(port.dtype).kind in "iub" and (array != np.rint(array)).any():
        raise NystraError(f"{port.name} holds fractions, expected {describe_values(port)}")
    if port.range is not None and (array.min() < port.range[0] or array.max() > port.range[1]):
        raise NystraError(
            f"{port.name} holds values from {array.min():g} to {array.max():g}, expected "
            f"{describe_values(port)}"
        )
    return array.astype(port.dtype)


def refuse_unequal(ports: Sequence[Port], values: Mapping[str, Array]) -> None:
    """Raise NystraError where values (1, ...) differ in the length of an axis that they share."""
    first: dict[str, tuple[str, int]] = {}
    for port in ports:
        for place, axis in port.free_axes().items():
            length = values[port.name].shape[place]
            name, expected = first.setdefault(axis, (port.name, length))
            if length != expected:
                raise NystraError(
                    f"{name} is of {expected} tokens, {port.name} of {length}: expected the same "
                    "number"
                )


def describe_values(port: Port) -> str:
    """Return in words what an input takes for one image."""
    channels = port.channels or "K"
    words = CONDITION_AXES[port.axes].format(channels)
    words += f", an array (tokens, {channels})" if port.axes == TOKENS_AXES else ""
    kind = "" if port.dtype.startswith("float") else f" ({port.dtype})"
    between = "" if port.range is None else " from {:g} to {:g}".format(*port.range)
    return f"{words}{between}{kind}"
