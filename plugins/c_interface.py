"""Calls of the C interface of the kernels (``csrc/nystra_cpu.h``)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.errors import BackendUnavailableError, NystraError
from .library import library_path
from .operators import find_schema

__all__ = ["LIST", "TYPES", "CTensor", "check", "describe_tensor", "open_library", "request"]

LIST = (ctypes.c_void_p, ctypes.c_size_t)
"""The arguments of a list: its address and its length."""

TYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "int32": 3}
"""Their numbers in the interface."""

_MAX_RANK = 8
_REFUSED = 1  # the status of a call with bad input


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("is_number", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("number", ctypes.c_double),
    )


class CTensor(ctypes.Structure):
    """A tensor: the address of its data, its type, rank and shape."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * _MAX_RANK),
    )


def open_library(name: str, interface: int) -> ctypes.CDLL:
    """Load a library whose functions begin with its name, as `library_path` takes it.

    Raises:
        FileNotFoundError: It was not built.
        OSError: It cannot be loaded on this machine.
        BackendUnavailableError: It has another interface.
    """
    path = library_path(name)
    library = ctypes.CDLL(str(path))
    for text in ("version", "error"):
        getattr(library, f"{name}_{text}").restype = ctypes.c_char_p
    if (actual := getattr(library, f"{name}_interface")()) != interface:
        version = getattr(library, f"{name}_version")().decode()
        raise BackendUnavailableError(
            f"{path} of nystra {version} has interface {actual}; expected {interface}: "
            "build it again"
        )
    return library


def describe_tensor(data: int | None, shape: Sequence[int], kind: str) -> CTensor:
    """Describe a tensor by its address, shape and type.

    Raises:
        NystraError: The kernels do not support the type or rank.
    """
    if kind not in TYPES or len(shape) > _MAX_RANK:
        raise NystraError(
            f"an array of {kind} with {len(shape)} dimensions; expected "
            f"{', '.join(TYPES)} with at most {_MAX_RANK}"
        )
    return CTensor(data, TYPES[kind], len(shape), (ctypes.c_int64 * _MAX_RANK)(*shape))


def request(
    operator: str, tensors: Sequence[CTensor], attributes: Mapping[str, int | float]
) -> tuple[Any, ...]:
    """Return the arguments that the functions of the libraries begin with."""
    kinds = {attribute.name: attribute.kind for attribute in find_schema(operator).attributes}
    named = (_Attribute * len(attributes))(
        *(_attribute(name, value, kinds.get(name)) for name, value in attributes.items())
    )
    listed = (CTensor * len(tensors))(*tensors)
    return operator.encode(), named, len(named), listed, len(listed)


def _attribute(name: str, value: float, kind: str | None) -> _Attribute:
    """Describe an attribute; a float for an integer is passed on, and refused there."""
    if kind == "float" or isinstance(value, float):
        return _Attribute(name.encode(), 1, 0, float(value))
    return _Attribute(name.encode(), 0, max(-(1 << 63), min(int(value), (1 << 63) - 1)), 0.0)


def check(status: int, message: Callable[[], bytes], failure: type[Exception]) -> None:
    """Raise the error of a status.

    Args:
        status: The result of a function of a library.
        message: The library's function that returns the reason.
        failure: Raised if the input was valid and the work failed.

    Raises:
        NystraError: The operator refuses the attributes or the inputs.
    """
    if status:
        raise (NystraError if status == _REFUSED else failure)(message().decode())
