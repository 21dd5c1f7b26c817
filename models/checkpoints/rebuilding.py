"""Builds the tensors of a pickle of PyTorch, from storages that its file holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .pickle_values import LimitError, Named, Standin

HIGHEST_RANK = 8
MAX_TENSORS = 100_000
_LARGEST = 1 << 62

_STORAGES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "Untyped": torch.uint8,
}
_DTYPES = {f"torch.{name}": kind for name, kind in vars(torch).items() if type(kind) is torch.dtype}


@dataclass(frozen=True)
class Storage:
    """A storage of a file.

    Attributes:
        data: Its bytes, uint8.
        dtype: Type of its elements; None if nystra does not read that type.
    """

    data: Tensor
    dtype: torch.dtype | None


@dataclass(frozen=True)
class Unreadable:
    """A tensor that is not plain and dense; ``kind`` completes "it is"."""

    kind: str


def storage_dtype(kind: Any) -> torch.dtype | None:
    """Return the type of the elements of a storage class, such as ``torch.FloatStorage``."""
    name = kind.name.rpartition(".")[2] if isinstance(kind, Named) else ""
    return _STORAGES.get(name.removesuffix("Storage"))


class Rebuilder:
    """Answers the calls of a pickle that build tensors.

    Attributes:
        count: Tensors built so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._calls: Mapping[str, Callable[..., Any]] = {
            "torch._utils._rebuild_tensor": self._rebuild_tensor,
            "torch._utils._rebuild_tensor_v2": self._rebuild_tensor,
            "torch._utils._rebuild_tensor_v3": self._rebuild_typed,
            "torch._utils._rebuild_parameter": _first,
            "torch._utils._rebuild_parameter_with_state": _first,
            "torch._utils._rebuild_device_tensor_from_cpu_tensor": _first,
            "torch.nn.parameter.Parameter": _first,
            "torch.nn.parameter.Buffer": _first,
            "torch._tensor._rebuild_from_type_v2": self._of_type,
            "torch._utils._rebuild_sparse_tensor": _sparse,
            "torch._utils._rebuild_qtensor": _unreadable("a quantized tensor"),
            "torch._utils._rebuild_meta_tensor_no_storage": _unreadable(
                "on the device 'meta', without values"
            ),
            "torch._utils._rebuild_nested_tensor": _unreadable("a nested tensor"),
            "torch._utils._rebuild_wrapper_subclass": _unreadable("a tensor of another class"),
        }

    def rebuild(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return the tensor of a call, an `Unreadable`, or None if the call builds no tensor.

        Raises:
            LimitError: There are too many tensors.
            ValueError: The tensor lies outside its storage.
            TypeError: The arguments are not those of the call.
        """
        call = self._calls.get(name)
        if call is None:
            return None
        self.count += 1
        if self.count > MAX_TENSORS:
            raise LimitError(f"holds more than {MAX_TENSORS} tensors")
        return call(*arguments)

    def _of_type(self, call: Any, _type: Any, arguments: Any, *_: Any) -> Any:
        name = call.name if isinstance(call, Named) else ""
        wrapped = name == "torch._tensor._rebuild_from_type_v2"  # which would call itself
        tensor = None if wrapped else self.rebuild(name, tuple(arguments))
        return Unreadable("a tensor of another class") if tensor is None else tensor

    def _rebuild_tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Any:
        kind = storage.dtype if isinstance(storage, Storage) else None
        return _view(storage, kind, offset, size, stride)

    def _rebuild_typed(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        _rg: Any,
        _h: Any,
        kind: Any,
        *_: Any,
    ) -> Any:
        dtype = _DTYPES.get(kind.name) if isinstance(kind, Named) else None
        return _view(storage, dtype, offset, size, stride)


def _view(storage: Any, dtype: torch.dtype | None, offset: Any, size: Any, stride: Any) -> Any:
    if not isinstance(storage, Storage):
        raise ValueError("a tensor of the pickle has no storage")
    if dtype is None:
        return Unreadable("of an element type that nystra does not read")
    sizes, steps = _integers(size), _integers(stride)
    (start,) = _integers((offset,))
    if len(sizes) != len(steps):
        raise ValueError(f"a tensor has {len(sizes)} sizes and {len(steps)} strides")
    if len(sizes) > HIGHEST_RANK:
        return Unreadable(f"of {len(sizes)} dimensions")
    if math.prod(sizes) >= _LARGEST:
        raise ValueError(f"a tensor has the shape {sizes}")
    length = storage.data.numel() // dtype.itemsize
    if 0 in sizes:
        return torch.empty(sizes, dtype=dtype)
    end = start + sum((side - 1) * step for side, step in zip(sizes, steps, strict=True))
    if end >= length:
        raise ValueError(f"a tensor ends at element {end} of a storage of {length}")
    flat = storage.data[: length * dtype.itemsize].view(dtype)
    return flat.as_strided(sizes, steps, start)


def _integers(numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, (tuple, list)) or len(numbers) > 1000:
        raise ValueError("a tensor has no sizes")
    if any(type(each) is not int or not 0 <= each < _LARGEST for each in numbers):
        raise ValueError("a tensor has sizes or strides that are not whole numbers from 0")
    return tuple(numbers)


def _first(value: Any = None, *_: Any) -> Any:
    return value if isinstance(value, (Tensor, Unreadable)) else Unreadable("without a storage")


def _sparse(layout: Any, *_: Any) -> Unreadable:
    words = layout.arguments if isinstance(layout, Standin) else ()
    kind = str(words[0] if words else layout)[:40].removeprefix("torch.")
    return Unreadable(f"a sparse tensor ({kind})")


def _unreadable(kind: str) -> Callable[..., Unreadable]:
    return lambda *_: Unreadable(kind)
