"""The arguments of a call in one form, and a module that takes the tensors among them alone."""

from __future__ import annotations

import enum
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError
from ...models.spandrel.tracing import traceable
from ...models.torch_internals import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

_VALUES = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range, torch.Size),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)
"""Types whose values cannot change."""


class TensorKind(NamedTuple):
    """Stands where a tensor is among the leaves of a structure."""

    axes: int
    dtype: torch.dtype
    device: torch.device


def may_hold_more(value: object) -> bool:
    """Return whether a value is not only its parts: classes of other libraries have settings."""
    kind = type(value)
    is_named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return kind not in (dict, OrderedDict, list, tuple) and not is_named


def _value_of(leaf: object) -> object:
    """Return what a value is equal by; raise UnsupportedModelError if it may change later."""
    if isinstance(leaf, TensorKind):
        return leaf
    if isinstance(leaf, enum.Enum):
        return type(leaf), leaf.name
    if type(leaf) in _VALUES or isinstance(leaf, np.generic):
        return type(leaf), repr(leaf)  # by text, since 0.0 == -0.0
    raise UnsupportedModelError(
        f"a value is a {type(leaf).__name__}, which may change: expected tensors, numbers, texts "
        "and other constants in tuples, lists and dictionaries"
    )


@dataclass(frozen=True)
class Structure:
    """Nested tuples, lists and dictionaries of tensors, and of values that cannot change.

    Attributes:
        spec: The nesting.
        leaves: The values, and the kinds of tensors.
        key: All of it, for comparison.
    """

    spec: TreeSpec
    leaves: tuple[Any, ...]
    key: tuple[Any, ...]

    @classmethod
    def of(
        cls, value: Any, is_leaf: Callable[[Any], bool] | None = None
    ) -> tuple[Structure, list[Tensor]]:
        """Return the structure of a value, and its tensors.

        Args:
            value: The value.
            is_leaf: Whether a part is taken as a whole; None: as PyTorch's trees do.

        Raises:
            UnsupportedModelError: It holds an object that may change later.
        """
        parts, spec = tree_flatten(value, is_leaf)
        leaves = tuple(
            TensorKind(part.dim(), part.dtype, part.device) if isinstance(part, Tensor) else part
            for part in parts
        )
        text = str(spec)  # with the types of keys, since {1: x} == {True: x}
        key = (spec, text, torch.get_default_dtype(), *map(_value_of, leaves))
        tensors = [part for part in parts if isinstance(part, Tensor)]
        return cls(spec, leaves, key), tensors

    @property
    def kinds(self) -> list[TensorKind]:
        """The kinds of the tensors."""
        return [leaf for leaf in self.leaves if isinstance(leaf, TensorKind)]

    @property
    def has_values(self) -> bool:
        """Whether there are values beside tensors and None."""
        kinds = (TensorKind, type(None))
        return any(not isinstance(leaf, kinds) for leaf in self.leaves)

    def fill(self, tensors: Sequence[Tensor]) -> Any:
        """Return a value of this structure with other tensors."""
        remaining = iter(tensors)
        leaves = [next(remaining) if isinstance(leaf, TensorKind) else leaf for leaf in self.leaves]
        return tree_unflatten(leaves, self.spec)


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of a value that may hold anything else too."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def arrange(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return positional arguments and those by keyword, with constant defaults, in one form.

    Raises:
        TypeError: The module's ``forward`` does not take them.
    """
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):  # not written in Python
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    for name, parameter in signature.parameters.items():
        if type(parameter.default) in _VALUES:
            bound.arguments.setdefault(name, parameter.default)
    return bound.args, bound.kwargs


class OfTensors(nn.Module):
    """A module whose arguments are the tensors of a call, and which returns a tuple of tensors."""

    def __init__(self, module: nn.Module, takes: Structure) -> None:
        super().__init__()
        self.module, self.takes = module, takes

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Return what the module returns."""
        args, kwargs = self.takes.fill(tensors)
        with traceable(self.module, self.module.forward):
            return self.module(*args, **kwargs)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of what the module returns."""
        return tuple(tensors_in(self.call(tensors)))
