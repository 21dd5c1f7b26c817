"""A graph with both its own attention and the sites, from which networks are made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import fx

from ..tracing.copies import Copied
from .folding import folded
from .grafting import finish, put_sites
from .graph import shared_copy
from .regions import Region
from .repeats import REPEATS


@dataclass(frozen=True)
class Swap:
    """Sites that replace one value of a graph.

    Attributes:
        region: The replaced part as a separate module.
        out: Name of the node that has the value now, instead of ``region.output``.
    """

    region: Region
    out: str


@dataclass(frozen=True)
class Rewritten:
    """A graph with own attention and sites; copies of a network share it.

    Attributes:
        graph: The graph with all sites in use; never changed.
        swaps: The replacements, which can be undone, in the graph's order.
        data: Names of the nodes that depend on the input.
    """

    graph: fx.GraphModule
    swaps: tuple[Swap, ...]
    data: frozenset[str]

    def __deepcopy__(self, memo: dict[int, Any]) -> Rewritten:
        """Return the same object, which is never changed."""
        return self

    @property
    def paths(self) -> list[str]:
        """Paths of all sites."""
        return [path for swap in self.swaps for path in swap.region.paths]

    def own(self) -> fx.GraphModule:
        """Return a copy that uses the network's own attention; nothing is removed from it."""
        return self._without(self.paths)

    def network(self, left: Collection[str] = ()) -> fx.GraphModule:
        """Return a network with sites and layers at their paths; its weights are shared.

        Args:
            left: Paths of sites that keep the graph's own attention.
        """
        graph = self._without(left)
        kept = [swap for swap in self.swaps if not _is_left(swap, left)]
        put_sites(graph, {name: path for swap in kept for name, path in swap.region.sites.items()})
        finish(graph)
        return graph

    def folded(
        self, network: fx.GraphModule, left: Collection[str], are_alike: Callable[[str, str], bool]
    ) -> dict[str, Copied]:
        """Fold what is equal in a network from `network`, in place, as `folding.folded` does.

        Args:
            network: The network.
            left: The paths that `network` took.
            are_alike: Returns whether two sites of the same structure, given by their paths,
                compute the same.
        """
        kept = [swap for swap in self.swaps if not _is_left(swap, left)]
        became = {swap.region.output: swap.out for swap in kept}
        return folded(network, self.graph.meta.get(REPEATS, ()), became, are_alike)

    def _without(self, left: Collection[str]) -> fx.GraphModule:
        graph = shared_copy(self.graph)
        nodes = {node.name: node for node in graph.graph.nodes}
        for swap in self.swaps:
            if _is_left(swap, left):
                nodes[swap.out].replace_all_uses_with(nodes[swap.region.output])
        graph.recompile()
        return graph


def _is_left(swap: Swap, left: Collection[str]) -> bool:
    return any(path in left for path in swap.region.paths)
