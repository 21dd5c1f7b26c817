"""Arrays as values of onnxruntime and back: both ways copy.

A value of onnxruntime uses the memory of the array that it was made from. The array that its
method ``numpy`` returns keeps the value's handle, but not that memory: when the value is gone, it
shows what is written there next. So no other file makes a value or reads one.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..core.arrays import Array


class OrtValue(Protocol):
    """A value of onnxruntime without the methods that give its memory away."""

    def shape(self) -> list[int]:
        """Return the shape of a tensor."""
        ...

    def element_type(self) -> int:
        """Return the type of a tensor's elements, as ONNX numbers it."""
        ...

    def is_tensor(self) -> bool:
        """Return whether it is a tensor and no list."""
        ...


def copy_to_ort(array: Array, kind: int | None = None, device: str = "cpu") -> OrtValue:
    """Return a copy of an array as a value of onnxruntime, which owns it.

    Args:
        array: The array, of any shape.
        kind: Type of its elements as ONNX numbers it, for one that numpy does not know; the
            array then has unsigned integers of its width. None for that of the array.
        device: Name of the device, the first of its kind.
    """
    from onnxruntime import OrtValue as Value

    owned: Array = np.array(array, order="C")
    value: Any
    if kind is not None:
        value = Value.ortvalue_from_numpy_with_onnx_type(owned, kind)
    elif device == "cpu":
        value = Value.ortvalue_from_numpy(owned)
    else:
        value = Value.ortvalue_from_numpy(owned, device, 0)
    return value  # type: ignore[no-any-return]


def copy_from_ort(value: OrtValue) -> Array:
    """Return a copy of a tensor of onnxruntime."""
    tensor: Any = value
    copied: Array = np.array(tensor.numpy())
    return copied
