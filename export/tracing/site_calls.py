"""Traces a network with its declared sites as single nodes, which mechanisms replace later."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from ...models.sites import MapSite, PatchSite, TokenSite, WindowSite
from ...models.sizes.given import copy_sharing_weights
from ..attention.implementation import AnySite
from ..attention.site import find_sites
from ..execute.sites import SITE
from .marks import write_placeholder

_OPERANDS = {WindowSite: 1, TokenSite: 3, PatchSite: 3, MapSite: 3}
"""How many arguments of an implementation give the shape of its result."""

_numbers = itertools.count()


@dataclass(frozen=True)
class SiteCall:
    """A call of the implementation of a site while its network is traced.

    Attributes:
        arguments: Its arguments; None for those that are tensors.
        places: The places of the tensors among them.
        shapes: Shapes of the tensors in the trace.
        dtypes: Their types.
        free: Axes of each tensor whose length is free.
        trained: The implementation.
    """

    arguments: tuple[Any, ...]
    places: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    free: tuple[tuple[int, ...], ...]
    trained: Any = field(repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> SiteCall:
        """Return itself: what ``trained`` holds belongs to a trace, and cannot be copied."""
        return self

    def fill_in(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return the arguments with tensors in their places."""
        arguments = list(self.arguments)
        for place, tensor in zip(self.places, tensors, strict=True):
            arguments[place] = tensor
        return arguments


_traced: WeakValueDictionary[str, SiteCall] = WeakValueDictionary()


class SiteCalls(dict[str, SiteCall]):
    """The calls of a trace, by the operator of their nodes; copies of a network share them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> SiteCalls:
        return self


@dataclass
class _Recorded:
    """The implementation of a site as one node; equal at sites whose nodes are equal."""

    site: AnySite = field(compare=False)
    trained: Any = field(compare=False)
    calls: SiteCalls = field(compare=False)

    def __call__(self, *arguments: Any) -> Tensor:
        places = [at for at, argument in enumerate(arguments) if isinstance(argument, Tensor)]
        tensors = [arguments[at] for at in places]
        kinds = [kind for kind in _OPERANDS if isinstance(self.site, kind)]
        operands = _OPERANDS[kinds[0]]
        result_shape: Any = self.site.result_shape
        name = f"site_{next(_numbers)}"
        call = SiteCall(
            tuple(None if isinstance(argument, Tensor) else argument for argument in arguments),
            tuple(places),
            tuple(tuple(map(_length, tensor.shape)) for tensor in tensors),
            tuple(tensor.dtype for tensor in tensors),
            tuple(_free_axes(tensor) for tensor in tensors),
            self.trained,
        )
        self.calls[name] = _traced[name] = call
        shape = list(result_shape(*arguments[:operands]))
        result: Tensor = ATTEND(tensors, shape, name)
        return result


def _length(side: Any) -> int:
    return side if isinstance(side, int) else int(side.node.hint)


def _free_axes(tensor: Tensor) -> tuple[int, ...]:
    sides = enumerate(tensor.shape)
    return tuple(axis for axis, side in sides if not isinstance(side, int))


@torch.library.custom_op(
    "nystra_site::attend",
    mutates_args=(),
    schema="(Tensor[] values, SymInt[] sizes, str name) -> Tensor",
)
def _attend(values: Sequence[Tensor], sizes: Any, name: str) -> Tensor:
    call = _traced[name]
    result: Tensor = call.trained(*call.fill_in(values))
    return result.clone()


@_attend.register_fake
def _(values: Sequence[Tensor], sizes: Any, name: str) -> Tensor:
    return values[0].new_empty(list(sizes))


ATTEND = torch.ops.nystra_site.attend.default
"""(values, sizes, name) -> a tensor of these sizes: the trained attention of a site."""


def record_calls(network: nn.Module) -> tuple[nn.Module, SiteCalls]:
    """Return a copy of a network whose sites are nodes of a trace, and their calls.

    Args:
        network: Not modified.

    Returns:
        The copy, which shares the weights, and the calls by the operators of their nodes; a trace
        fills them.
    """
    copied, calls = copy_sharing_weights(network), SiteCalls()
    for found_site in find_sites(copied):
        site: Any = found_site.module
        site.implementation = _Recorded(site, site.implementation, calls)
    return copied, calls


def site_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translation of the attention of sites for ``torch.onnx.export``."""
    return {ATTEND: _write_site}


def _write_site(values: Sequence[Any], sizes: Any, name: str) -> Any:
    return write_placeholder(SITE, name, values, 1)[0]
