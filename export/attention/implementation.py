"""The implementation of a mechanism at a site: a class of its ``sites.py``, by kind of site."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from ...core.errors import NystraError
from ...models.geometry import TokenGeometry, WindowGeometry
from ...models.layers.patches import exact_patches
from ...models.sites import (
    MapImplementation,
    MapSite,
    PatchImplementation,
    PatchSite,
    TokenImplementation,
    TokenSite,
    WindowImplementation,
    WindowSite,
    exact_map,
    exact_tokens,
    exact_windows,
)
from ...plugins.operators.window_softmax.torch_op import window_bias
from ...plugins.operators.windows_torch import merge, partition
from .as_trained.parameters import AsTrained
from .full.parameters import Full
from .mechanism import Geometry, Mechanism

Form = Literal["plain", "operator"]
AnySite: TypeAlias = WindowSite | TokenSite | PatchSite | MapSite
Implementation: TypeAlias = (
    WindowImplementation | TokenImplementation | PatchImplementation | MapImplementation
)

Function = TypeVar("Function", bound=Callable[..., Any])

_CLASSES: dict[type[AnySite], str] = {
    WindowSite: "Windows",
    TokenSite: "Tokens",
    PatchSite: "Patches",
    MapSite: "Maps",
}
"""Maps without a class of their own are lists of tokens."""
_OVERLAPS = "Overlaps"
"""For windows whose key windows overlap; without it they are computed one by one as token sites."""

_SOFTMAX = (exact_windows, exact_tokens, exact_patches, exact_map)


def implement(mechanism: Mechanism, site: AnySite, form: Form) -> Implementation:
    """Return the callable that computes a mechanism at a site.

    Args:
        mechanism: The mechanism with its parameters.
        site: Not modified; a mechanism with trained tensors reads them there.
        form: ``plain`` PyTorch, or ``operator`` for tracing (one custom op a site).

    Raises:
        NystraError: The mechanism does not support this site.
    """
    if isinstance(mechanism, AsTrained):
        return site.implementation
    if reason := find_unsupported_reason(mechanism, site):
        raise NystraError(reason)
    name = _class_name(mechanism, site)
    more = {"site": site} if mechanism.trained or mechanism.takes_site else {}
    sites = importlib.import_module(f".{mechanism.name}.sites", __package__)
    computed: Any = getattr(sites, name)(mechanism, form, **more)
    if name == "Tokens" and not isinstance(site, TokenSite):
        computed = (_TokensOfMaps if isinstance(site, MapSite) else _TokensOfWindows)(computed)
    return cast(Implementation, computed)


def table_of(qkv: Tensor, bias_table: Tensor | None) -> Tensor:
    """Return a bias table as the window operators take it: zeros (1, 1) for none."""
    if bias_table is None:
        return qkv.new_zeros(1, 1)
    return bias_table


def in_form(function: Function, form: Form) -> Function:
    """Return the plain function of an operator, or its custom op.

    Args:
        function: From the operator's ``torch_op.py``, of the operator's name.
        form: Which of the two.
    """
    chosen: Function = (
        getattr(torch.ops.nystra, function.__name__) if form == "operator" else function
    )
    return chosen


def find_unsupported_reason(mechanism: Mechanism, site: AnySite) -> str:
    """Return why a mechanism cannot be computed at a site, or ""."""
    if isinstance(mechanism, AsTrained):
        return ""
    name = _class_name(mechanism, site)
    if name not in mechanism.site_classes:
        return f"{mechanism.name} does not support attention between {name.lower()}"
    if missing := find_untrained(mechanism, site):
        return (
            f"{mechanism.name} needs trained tensors that the checkpoint does not have: "
            f"{', '.join(missing)}"
        )
    geometry = geometry_for(mechanism, site)
    if isinstance(geometry, TokenGeometry) and geometry.biased and not isinstance(mechanism, Full):
        return f"{mechanism.name} takes no bias or mask between tokens of any number"
    return mechanism.fits(geometry)


def slower_than_exact_reason(mechanism: Mechanism, site: AnySite) -> str:
    """Return why exact attention is faster than a mechanism at a site, or ""."""
    reason = mechanism.slower_than_exact(geometry_for(mechanism, site))
    if isinstance(site, WindowSite) and _class_name(mechanism, site) == "Tokens":
        reason = (
            f"{mechanism.name} runs on standard operators if the key window extends beyond the "
            "window, and exact attention is one faster node"
        )
    if not reason:
        return ""
    return f"{reason}; a plan that names the site can still choose it"


def geometry_for(mechanism: Mechanism, site: AnySite) -> Geometry:
    """Return the geometry of a site in the form for a mechanism."""
    geometry: Geometry = getattr(site, "geometry", None)
    if isinstance(geometry, WindowGeometry) and _class_name(mechanism, site) == "Tokens":
        return _tokens_of(geometry)
    return geometry


def find_untrained(mechanism: Mechanism, site: AnySite) -> list[str]:
    """Return the names of the trained tensors of a mechanism that a site does not hold."""
    return [name for name in mechanism.trained if getattr(site, name, None) is None]


def as_trained(site: AnySite) -> Mechanism:
    """Return a site's own mechanism: ``full`` if that is exact softmax attention."""
    if site.implementation in _SOFTMAX:
        return Full()
    return AsTrained()


def _class_name(mechanism: Mechanism, site: AnySite) -> str:
    name = next(name for kind, name in _CLASSES.items() if isinstance(site, kind))
    if isinstance(site, WindowSite) and site.geometry.overlapping:
        name = _OVERLAPS
    if name in (_OVERLAPS, "Maps") and name not in mechanism.site_classes:
        return "Tokens"
    return name


def _tokens_of(geometry: WindowGeometry) -> TokenGeometry:
    return TokenGeometry(
        geometry.window, geometry.key_window, geometry.scale, margin=geometry.margin
    )


@dataclass(frozen=True)
class _TokensOfWindows:
    """A mechanism of token sites at a window site: each window is a batch element."""

    tokens: TokenImplementation

    def __call__(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> Tensor:
        q, k, v = (part.flatten(0, 1) for part in partition(qkv, geometry))
        bias = None
        if bias_table is not None:
            bias = window_bias(bias_table, geometry).unsqueeze(0)
        out = self.tokens(q, k, v, bias, _tokens_of(geometry))
        windows = out.unflatten(0, (qkv.shape[0], -1))
        return merge(windows, qkv.shape[1:-1], geometry)


@dataclass(frozen=True)
class _TokensOfMaps:
    """A mechanism of token sites at a map site: the list of all places."""

    tokens: Any

    @property
    def mechanism(self) -> Mechanism:
        own: Mechanism = self.tokens.mechanism
        return own

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
    ) -> Tensor:
        sides = q.shape[2], q.shape[3]
        geometry = TokenGeometry(sides, sides, scale, before=(0, 0))
        q = q.flatten(2).mT.unsqueeze(1)
        k = k.flatten(2).mT.unsqueeze(1)
        v = v.flatten(2).mT.unsqueeze(1)
        out: Tensor = self.tokens(q, k, v, None, geometry)
        back: Tensor = out.squeeze(1).mT.unflatten(2, sides)
        return back
