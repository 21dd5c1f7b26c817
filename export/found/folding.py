"""Replaces equal parts of a graph by calls of the first one, which is traced and written once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ..tracing.copies import Copied
from ..tracing.marks import CALL, ENTER, LEAVE, MARK
from .pairs import Nodes, Pair, pair_of
from .repeats import Repeat

aten = torch.ops.aten


def folded(
    graph: fx.GraphModule,
    repeats: Sequence[Repeat],
    became: Mapping[str, str],
    are_alike: Callable[[str, str], bool],
) -> dict[str, Copied]:
    """Replace parts that are equal to earlier ones by calls, in place.

    Args:
        graph: The graph of operators, layers and sites.
        repeats: Parts that were equal when traced; those that differ now are left unchanged.
        became: Name of each replaced node -> name of the node that now has its value.
        are_alike: Returns whether two modules of the same structure, given by their paths, compute
            the same.

    Returns:
        The called parts, by name.
    """
    folding = _Folding(graph, became)
    pairs = [pair_of(graph, repeat, folding.named, are_alike) for repeat in repeats]
    for pair in sorted((pair for pair in pairs if pair), key=lambda pair: len(pair.nodes)):
        folding.fold(pair)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return folding.copied


class _Folding:
    """Folds equal parts of a graph, the smallest first, since they may be inside larger ones."""

    def __init__(self, graph: fx.GraphModule, became: Mapping[str, str]) -> None:
        self.graph = graph
        self.copied: dict[str, Copied] = {}
        self._by_name = {node.name: node for node in graph.graph.nodes}
        self._became = became
        self._instead: dict[fx.Node, fx.Node] = {}
        self._parts: dict[tuple[Nodes, Nodes], tuple[str, list[fx.Node]]] = {}

    def named(self, names: Sequence[str]) -> Nodes:
        """Return the nodes that now have the values of the named nodes, if they exist."""
        nodes = []
        for name in names:
            while name in self._became:
                name = self._became[name]
            nodes.append(self._by_name.get(name))
        return tuple(node for node in nodes if node is not None)

    def fold(self, pair: Pair) -> None:
        """Replace the second of two equal parts by a call."""
        takes, gives, other_takes, other_gives = pair.sides
        if (takes, gives) not in self._parts:
            part = self._marked(pair)
            if part is None:
                return
            self._parts[takes, gives] = part
        number, sizes = self._parts[takes, gives]
        name = f"call_{len(self.copied)}"
        self.copied[name] = Copied(number, pair.weights, pair.paths)
        given = [self._latest(node) for node in other_takes]
        old = [self._latest(node) for node in other_gives]
        ranks = list(pair.repeat.ranks)
        self._put(CALL, (given, sizes, ranks, name), max(old, key=self._order().__getitem__), old)

    def _marked(self, pair: Pair) -> tuple[str, list[fx.Node]] | None:
        """Enclose a part in marks; return its number and the shapes of its outputs."""
        takes = [self._latest(node) for node in pair.sides[0]]
        gives = [self._latest(node) for node in pair.sides[1]]
        order, number = self._order(), str(len(self._parts))
        inside = _inside(takes, gives)
        first = max(takes, key=order.__getitem__)
        if any(order[node] < order[first] for node in inside):
            return None
        self._put(MARK, (takes, f"{ENTER}_{number}"), first, takes, inside)
        last = max(gives, key=self._order().__getitem__)
        items = self._put(MARK, (gives, f"{LEAVE}_{number}"), last, gives)
        with self.graph.graph.inserting_after(items[-1]):
            sizes = [
                self.graph.graph.call_function(aten.sym_size.int, (item, axis))
                for item, rank in zip(items, pair.repeat.ranks, strict=True)
                for axis in range(rank)
            ]
        return number, sizes

    def _put(
        self,
        target: Any,
        arguments: tuple[Any, ...],
        place: fx.Node,
        old: Sequence[fx.Node],
        inside: set[fx.Node] | None = None,
    ) -> list[fx.Node]:
        """Insert a node that returns a list, and replace values by its items.

        Args:
            target: Operator of the new node.
            arguments: Arguments of the new node.
            place: Node after which it is inserted.
            old: The values that are replaced.
            inside: Nodes that use the items; None: all later ones.
        """
        graph, order = self.graph.graph, self._order()

        def uses(user: fx.Node) -> bool:
            return user in inside if inside is not None else order.get(user, 0) > order[place]

        with graph.inserting_before(place.next):
            node = graph.call_function(target, arguments)
            items = [graph.call_function(operator.getitem, (node, n)) for n in range(len(old))]
        for value, item in zip(old, items, strict=True):
            value.replace_all_uses_with(item, uses)
            if inside is None:
                self._instead[value] = item
        return items

    def _order(self) -> dict[fx.Node, int]:
        return {node: number for number, node in enumerate(self.graph.graph.nodes)}

    def _latest(self, node: fx.Node) -> fx.Node:
        while node in self._instead:
            node = self._instead[node]
        return node


def _inside(takes: Sequence[fx.Node], gives: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the nodes of a part that depend on its inputs."""
    depends = dict.fromkeys(takes, True)
    todo = [(node, False) for node in gives]
    while todo:
        node, is_done = todo.pop()
        if is_done:
            depends[node] = any(depends[source] for source in node.all_input_nodes)
        elif node not in depends:
            todo.append((node, True))
            todo += [(source, False) for source in node.all_input_nodes if source not in depends]
    return {node for node, is_inside in depends.items() if is_inside} - {*takes}
