"""A network made from a graph. Unlike PyTorch's graph modules, its copies keep their hooks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import onnx
from torch import fx

from ...models.facts import Facts
from ..attention.mechanism import Mechanism
from ..attention.site import swap
from ..tracing.trace import trace
from .rewritten import Rewritten

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


class FoundNetwork(fx.GraphModule):
    """A graph whose sites and layers are modules; copies keep its hooks.

    Attributes:
        rewritten: The graph with its sites.
        left: Path of a site with exact attention -> why the network's own attention stays there.
    """

    def __init__(self, rewritten: Rewritten, network: fx.GraphModule) -> None:
        """Take a graph with its own attention and sites, and its network with all sites."""
        super().__init__(network, network.graph)
        self.rewritten = rewritten
        self.left: dict[str, str] = {}
        self._traced: dict[str, tuple[onnx.ModelProto, list[str]]] = {}

    @property
    def paths(self) -> list[str]:
        """The paths of the sites."""
        return self.rewritten.paths

    @property
    def replaces(self) -> bool:
        """Whether sites replace any of the network's own attention."""
        return any(path not in self.left for path in self.paths)

    def trace(
        self,
        resolved: Mapping[str, Mechanism],
        facts: Facts,
        opset: int,
        left: Collection[str],
        note: Callable[[str], None] = lambda _: None,
        *,
        fused: bool = False,
    ) -> onnx.ModelProto:
        """Return the ONNX model of the network with a plan. Models of earlier plans are reused.

        Args:
            resolved: The mechanism of every site.
            facts: Facts of the network.
            opset: Version of the default domain.
            left: Paths of sites that keep the network's own attention.
            note: As in `trace`.
            fused: As in `trace`.

        Raises:
            TraceError: The network cannot be traced; the cause is in the message.
        """
        planned = {path: str(site) for path, site in resolved.items() if path not in left}
        key = f"{opset} {fused} {planned}"
        if key not in self._traced:
            network = self.rewritten.network(left)
            copied = self.rewritten.folded(network, left, partial(_are_alike, resolved))
            swapped = swap(network, resolved, "operator")
            notes: list[str] = []
            model = trace(swapped, facts, opset, copied, notes.append, fused=fused)
            self._traced[key] = model, notes
        traced, notes = self._traced[key]
        for text in notes:
            note(text)
        model = onnx.ModelProto()
        model.CopyFrom(traced)
        return model

    def __deepcopy__(self, memo: dict[int, Any]) -> fx.GraphModule:
        """Return a copy that shares the graph with its sites, and the traced models."""
        copied = super().__deepcopy__(memo)
        for name in _HOOKS:
            setattr(copied, name, copy.deepcopy(getattr(self, name), memo))
        for name in ("rewritten", "left", "_traced"):
            setattr(copied, name, getattr(self, name))
        return copied


def _are_alike(resolved: Mapping[str, Mechanism], path: str, other: str) -> bool:
    """Return whether two modules of the same structure are no sites or have equal mechanisms.

    Mechanisms with values from the tensors of a site differ: these are constants of the graph.
    """
    if path not in resolved:
        return True
    one = resolved[path]
    return one == resolved[other] and not (one.trained or one.takes_site)
