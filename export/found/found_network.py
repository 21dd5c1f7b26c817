"""A network that is a graph, with what PyTorch loses of one where it is copied."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
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
        rewritten: What it is made of.
        left: Why sites are left as they were although they have exact attention, by path.
    """

    def __init__(self, rewritten: Rewritten, network: fx.GraphModule) -> None:
        """Take a graph that holds both, and the one of it that has all sites."""
        super().__init__(network, network.graph)
        self.rewritten = rewritten
        self.left: dict[str, str] = {}
        self._traced: dict[str, onnx.ModelProto] = {}

    @property
    def replaces(self) -> bool:
        """Whether some of the network's own attention gives way to sites."""
        return any(path not in self.left for path in self.rewritten.paths)

    def trace(
        self, resolved: Mapping[str, Mechanism], facts: Facts, opset: int, left: Collection[str]
    ) -> onnx.ModelProto:
        """Return the network with a plan as `tracing.trace.trace` does; the same plan is kept.

        Args:
            resolved: Mechanism of every site.
            facts: Of the network.
            opset: As of `trace`.
            left: Paths of sites in whose place the network's own attention stays.
        """
        planned = {path: str(site) for path, site in resolved.items() if path not in left}
        key = f"{opset} {planned}"
        if key not in self._traced:
            network = self.rewritten.network(left)
            copied = self.rewritten.folded(network, left, partial(_are_alike, resolved))
            swapped = swap(network, resolved, "operator")
            self._traced[key] = trace(swapped, facts, opset, copied)
        model = onnx.ModelProto()
        model.CopyFrom(self._traced[key])
        return model

    def __deepcopy__(self, memo: dict[int, Any]) -> fx.GraphModule:
        """Return a copy."""
        copied = super().__deepcopy__(memo)
        for name in _HOOKS:
            setattr(copied, name, copy.deepcopy(getattr(self, name), memo))
        for name in ("rewritten", "left", "_traced"):
            setattr(copied, name, getattr(self, name))
        return copied


def _are_alike(resolved: Mapping[str, Mechanism], path: str, other: str) -> bool:
    """Whether the modules at two paths, built alike, are no sites or compute the same as planned.

    What is derived from the tensors of a site would be a constant of the graph.
    """
    if path not in resolved:
        return True
    one = resolved[path]
    return one == resolved[other] and not (one.trained or one.takes_site)
