"""Refuses a record of one run whose code reads values of the images: it would hold those values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...core.errors import UnsupportedModelError
from ...models.torch_internals import TorchDispatchMode, tree_leaves

_READING = frozenset(
    ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique_consecutive")
) | {"_unique", "_unique2", "unique_dim", "repeat_interleave"}
"""Operators whose result is a Python value, or has a shape that depends on values."""

_LEAVING = frozenset(("numpy", "tolist", "__array__"))
"""Methods of tensors that give their values to Python."""


def refuse_values_read(network: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Run a network and raise where it reads a value that depends on its inputs.

    Args:
        network: It may be changed by the run.
        inputs: Inputs that it takes.

    Raises:
        UnsupportedModelError: It does.
    """
    read = _Read(inputs)
    with _Methods(read), _Operators(read):
        network(*inputs)


class _Read:
    """The memory that depends on the inputs: views share it with the tensors that they are of."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self._tensors: list[Tensor] = []  # their memory is not given to others meanwhile
        self._memory: set[int] = set()
        self.add(inputs)

    def add(self, tensors: Sequence[Tensor]) -> None:
        self._tensors += tensors
        self._memory.update(tensor.untyped_storage()._cdata for tensor in tensors)

    def refuse(self, name: str, tensors: Sequence[Tensor]) -> None:
        if self.has_any(tensors):
            raise UnsupportedModelError(
                f"the code of the network reads values that depend on the image ({name}), and a "
                "file would hold those of one image: write it with tensors (`torch.where`)"
            )

    def has_any(self, tensors: Sequence[Tensor]) -> bool:
        return any(tensor.untyped_storage()._cdata in self._memory for tensor in tensors)


class _Operators(TorchDispatchMode):
    def __init__(self, read: _Read) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._read = read

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        tensors = _tensors((args, named))
        name = func._schema.name.partition("::")[2]
        depends = self._read.has_any(tensors)
        if name in _READING:
            self._read.refuse(name, tensors)
        returned = func(*args, **named)
        if depends:
            written = tensors if func._schema.is_mutable else []
            self._read.add([*_tensors(returned), *written[:1]])
        return returned


class _Methods(TorchFunctionMode):
    def __init__(self, read: _Read) -> None:
        super().__init__()
        self._read = read

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _LEAVING:
            self._read.refuse(name, _tensors(args))
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
