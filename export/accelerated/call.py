"""The arguments of a module: which of them are tensors, and a module of these alone."""

from __future__ import annotations

import enum
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# torch.export's own trees of arguments; they have no public name.
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ...core.errors import UnsupportedModelError
from ...models.spandrel.tracing import traceable

Caller = Callable[..., Any]
"""Takes a module and its arguments, and returns what it returns."""


_VALUES = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range, torch.Size),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    }
)
"""Types whose values cannot change."""


class _Place:
    """Stands where a tensor is among the leaves of a structure; copies have the same class."""


def call_directly(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Return what a module returns; the `Caller` of a module that is called as it is."""
    return module(*args, **kwargs)


def _value_of(leaf: object) -> object:
    """Return what a value is equal by; raise TypeError for one that may change later."""
    if isinstance(leaf, enum.Enum):
        return type(leaf), leaf.name
    if type(leaf) in _VALUES or isinstance(leaf, np.generic):
        return type(leaf), repr(leaf)  # by text, since 0.0 == -0.0
    raise TypeError(type(leaf).__name__)


@dataclass(frozen=True)
class Structure:
    """Nested tuples, lists and dictionaries of tensors, and of values that cannot change.

    Attributes:
        spec: The nesting.
        leaves: The values; `_Place` stands for tensors.
        key: The nesting and the values, for comparison.
    """

    spec: TreeSpec
    leaves: tuple[Any, ...]
    key: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any) -> tuple[Structure, list[Tensor]]:
        """Return the structure of a value, and its tensors.

        Raises:
            UnsupportedModelError: It holds an object that may change later.
        """
        leaves, spec = tree_flatten(value)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        marked = tuple(_Place if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        try:
            values = tuple(leaf if leaf is _Place else _value_of(leaf) for leaf in marked)
        except TypeError as error:
            raise UnsupportedModelError(
                f"a value is a {error}, which may change: expected tensors, numbers, texts and "
                "other constants in tuples, lists and dictionaries"
            ) from error
        return cls(spec, marked, (spec, *values)), tensors

    @property
    def has_values(self) -> bool:
        """Whether there are values beside tensors and None."""
        return any(leaf is not _Place and leaf is not None for leaf in self.leaves)

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """Return a value of this structure with other tensors."""
        given = iter(tensors)
        return tree_unflatten(
            [next(given) if leaf is _Place else leaf for leaf in self.leaves], self.spec
        )


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of a value that may hold anything else too."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def refuse_objects(arguments: Any) -> None:
    """Raise UnsupportedModelError for arguments in a structure that may hold more than its parts.

    PyTorch's trees know classes of other libraries, which may have settings of their own.
    """
    todo = [arguments]
    while todo:
        value = todo.pop()
        kind = type(value)
        if kind in (dict, OrderedDict):
            todo += [*value.keys(), *value.values()]
        elif kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            todo += value
        elif kind not in (Tensor, nn.Parameter):
            try:
                _value_of(value)
            except TypeError as error:
                raise UnsupportedModelError(
                    f"an argument is a {error}, whose value is not known to stay the same"
                ) from error


class Parameters:
    """The parameters of a module's ``forward``: one order for all ways to pass them."""

    def __init__(self, module: nn.Module, caller: Caller) -> None:
        """Read the signature of what is called; without one, arguments are taken as they come."""
        self.names: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        try:
            found = inspect.signature(module.forward if caller is call_directly else caller)
        except (TypeError, ValueError):
            return
        skipped = 0 if caller is call_directly else 1  # the module itself
        for parameter in list(found.parameters.values())[skipped:]:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self.names += (parameter.name,)
            if type(parameter.default) in _VALUES:
                self.defaults[parameter.name] = parameter.default

    def arranged(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return arguments as (named ones in order, further positional ones)."""
        given = {**self.defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        ordered = {name: given.pop(name) for name in self.names if name in given}
        return {**ordered, **dict(sorted(given.items()))}, args[len(self.names) :]

    def call(self, caller: Caller, module: nn.Module, arranged: Any) -> Any:
        """Call a module with arguments from `arranged`."""
        given, more = arranged
        positional = [given[name] for name in self.names if name in given]
        named = {name: value for name, value in given.items() if name not in self.names}
        return caller(module, *positional, *more, **named)


class OfTensors(nn.Module):
    """A module whose arguments are the tensors of a call, and which returns a tuple of tensors."""

    def __init__(
        self, module: nn.Module, caller: Caller, parameters: Parameters, takes: Structure
    ) -> None:
        super().__init__()
        self.module, self.caller = module, caller
        self.parameters_of_call, self.takes = parameters, takes

    def whole(self, *tensors: Tensor) -> Any:
        """Return what the module returns."""
        with traceable(self.module, self.caller):
            return self.parameters_of_call.call(
                self.caller, self.module, self.takes.filled(tensors)
            )

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of what the module returns."""
        return tuple(tensors_in(self.whole(*tensors)))
