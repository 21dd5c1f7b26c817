"""Numbers, lists and tensors that note whether they are read, in place of those that code keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

_WRITES: dict[type, frozenset[str]] = {
    int: frozenset(("__add__", "__radd__", "__sub__")),
    float: frozenset(("__add__", "__radd__", "__sub__")),
    list: frozenset(("append", "extend", "__iadd__")),
}
"""Kind of value -> what only changes it."""

# fmt: off
_UNNOTED = frozenset((
    "__class__", "__class_getitem__", "__delattr__", "__dir__", "__doc__", "__getattribute__",
    "__getnewargs__", "__getstate__", "__init__", "__init_subclass__", "__new__", "__reduce__",
    "__reduce_ex__", "__repr__", "__setattr__", "__sizeof__", "__str__", "__format__",
    "__subclasshook__", "from_bytes", "fromhex", "__getformat__", "imag", "real", "numerator",
    "denominator",
))
"""What belongs to every object, or makes a text."""
# fmt: on


_WRITES_TENSOR = frozenset(("add", "add_", "__radd__", "__set__"))
"""Functions that only change a tensor."""


def can_watch(value: Any) -> bool:
    """Return whether `watch` takes a value."""
    return type(value) in _WRITES or isinstance(value, Tensor)


def watch(value: Any, note: Callable[[], None]) -> Any:
    """Return an equal number or list that calls a function when it is read.

    Adding to it is no reading: the sum of a watched number is watched too.

    Args:
        value: An int, a float, a list or a tensor.
        note: Called where code compares, converts, indexes or counts it.
    """
    kind = type(value)
    if isinstance(value, Tensor):
        return value.detach().clone().as_subclass(_watch_tensor(note))
    return _watch_kind(kind, note)(value)


def _watch_kind(kind: Any, note: Callable[[], None]) -> Any:
    def watch(name: str) -> Callable[..., Any]:
        method = getattr(kind, name)

        def run(self: Any, *arguments: Any) -> Any:
            result = method(self, *arguments)
            if name not in _WRITES[kind] or result is NotImplemented:
                note()
            elif type(result) is kind:
                return watching(result)
            return self if name == "__iadd__" else result

        return run

    names = [name for name in dir(kind) if name not in _UNNOTED]
    watching = type(kind.__name__, (kind,), {name: watch(name) for name in names})
    return watching


def _watch_tensor(note: Callable[[], None]) -> Any:
    class Watched(Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if func.__name__ not in _WRITES_TENSOR:
                note()
            computed: Any = super().__torch_function__
            return computed(func, types, args, kwargs or {})

    return Watched
