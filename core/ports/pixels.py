"""Pixels as an image port takes and returns them: its layout, its type and its range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from .port import IMAGE_AXES, IMPLIED_RANGES, UNIT, Port, Range


def to_port(planes: Array, port: Port) -> Array:
    """Return pixels in the layout and type of an image port.

    Args:
        planes: (B, C, H, W) in the range of the port, floating; B is 1 if the port has no batch.
        port: Any order of the axes of an image, with or without the batch.
    """
    if port.dtype in IMPLIED_RANGES:
        bounds = np.iinfo(port.dtype)
        planes = np.clip(np.rint(planes), bounds.min, bounds.max).astype(port.dtype)
    if port.axes == IMAGE_AXES:
        return planes
    own = ("batch", *(axis for axis in port.axes if axis != "batch"))
    array = np.ascontiguousarray(planes.transpose([IMAGE_AXES.index(axis) for axis in own]))
    return array if "batch" in port.axes else array[0]


def from_port(array: Array, port: Port) -> Array:
    """Return what an image port gave as (B, C, H, W), integers as float32.

    An array with another number of axes than the port is returned as it is.
    """
    if array.dtype.name in IMPLIED_RANGES:
        array = array.astype(np.float32)
    if port.axes == IMAGE_AXES or array.ndim != len(port.axes):
        return array
    own = ("batch", *(axis for axis in port.axes if axis != "batch"))
    batched = array if "batch" in port.axes else array[None]
    return np.ascontiguousarray(batched.transpose([own.index(axis) for axis in IMAGE_AXES]))


def to_range(pixels: Array, value_range: Range) -> npt.NDArray[np.float32]:
    """Map pixels from 0..1 to a range."""
    low, high = value_range
    if value_range == UNIT:
        return pixels
    mapped: npt.NDArray[np.float32] = pixels * np.float32(high - low) + np.float32(low)
    return mapped


def from_range(values: Array, value_range: Range) -> npt.NDArray[np.float32]:
    """Map values of a range to 0..1; those outside it stay outside."""
    low, high = value_range
    if value_range == UNIT:
        return values
    mapped: npt.NDArray[np.float32] = (values - np.float32(low)) / np.float32(high - low)
    return mapped
