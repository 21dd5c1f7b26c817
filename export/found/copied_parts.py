"""Parts of a graph that differ from an earlier part only in weights: they need no search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from .pairs import Nodes, Pair, attribute, pair_of
from .repeats import REPEATS
from .values import Value


@dataclass
class CopiedPart:
    """A part of a graph that is not run, since an equal part was run before.

    Attributes:
        takes: Inputs of the other part, and the corresponding inputs of this part.
        gives: Output of this part -> the corresponding output of the other part.
        nodes: Node of this part that nothing else uses -> the corresponding node of the other.
        is_like: Whether the inputs of both parts are alike; None before that is known.
    """

    takes: tuple[Nodes, Nodes]
    gives: dict[fx.Node, fx.Node]
    nodes: dict[fx.Node, fx.Node]
    is_like: bool | None = None


@dataclass
class CopiedParts:
    """The copied parts of a graph during one run of it on values with places.

    Attributes:
        part: Node that need not run -> its part.
        kept: Values of the inputs and outputs of parts with copies; other values are freed.
    """

    part: dict[fx.Node, CopiedPart] = field(default_factory=dict)
    kept: dict[fx.Node, Value | None] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: fx.GraphModule) -> CopiedParts:
        """Return the parts of a graph whose constants differ in parameters only."""
        parts = cls()
        by_name = {node.name: node for node in graph.graph.nodes}

        def named(names: Sequence[str]) -> Nodes:
            return tuple(by_name[name] for name in names if name in by_name)

        found = [
            pair_of(graph, repeat, named, lambda *_: False)
            for repeat in graph.meta.get(REPEATS, ())
        ]
        # the largest first: a part inside a copied part needs no copy of its own
        for pair in sorted((pair for pair in found if pair), key=lambda pair: -len(pair.nodes)):
            if _differ_in_parameters(graph, pair):
                parts._add(pair)
        return parts

    def _add(self, pair: Pair) -> None:
        takes, gives, other_takes, other_gives = pair.sides
        like = {other: one for one, other in pair.nodes.items() if other not in other_takes}
        needed = _needed_elsewhere(like, set(other_gives))
        nodes = {node: one for node, one in like.items() if node not in needed}
        if any(node in self.part for node in nodes) or not set(other_gives) <= nodes.keys():
            return
        part = CopiedPart((takes, other_takes), dict(zip(other_gives, gives, strict=True)), nodes)
        self.part |= dict.fromkeys(nodes, part)
        self.kept |= dict.fromkeys((*takes, *gives))

    def keep(self, node: fx.Node, value: Any) -> None:
        """Store the value of a node if a copied part needs it."""
        if node in self.kept and isinstance(value, Value):
            is_plain = value.score is None and value.hint is None
            self.kept[node] = Value(value.data, value.place) if is_plain else None

    def is_copied(self, node: fx.Node, values: dict[fx.Node, Any]) -> bool:
        """Return whether a node need not run: the inputs of its part have the same places."""
        part = self.part.get(node)
        if part is None:
            return False
        if part.is_like is None:
            part.is_like = self._is_like(part, values)
        return part.is_like

    def _is_like(self, part: CopiedPart, values: dict[fx.Node, Any]) -> bool:
        given = [self.kept.get(one) for one in part.gives.values()]
        if any(value is None or value.place is None for value in given):
            return False
        return all(
            _lie_the_same(self.kept.get(one), values.get(other))
            for one, other in zip(*part.takes, strict=True)
        )

    def given(self, node: fx.Node) -> Value | None:
        """Return the value of a node of a part that does not run; None for its inner nodes."""
        one = self.part[node].gives.get(node)
        value = None if one is None else self.kept[one]
        return None if value is None else Value(value.data, value.place)

    @property
    def originals(self) -> dict[fx.Node, fx.Node]:
        """Node that did not run -> the corresponding node that ran."""
        like = {node: part.nodes[node] for node, part in self.part.items() if part.is_like is True}
        return {node: _last(node, like) for node in like}


def _last(node: fx.Node, like: dict[fx.Node, fx.Node]) -> fx.Node:
    while node in like:
        node = like[node]
    return node


def _needed_elsewhere(like: dict[fx.Node, fx.Node], gives: set[fx.Node]) -> set[fx.Node]:
    """Return nodes of a part, other than outputs, that are needed elsewhere or no operators."""
    needed: set[fx.Node] = set()
    todo = [
        node
        for node in like
        if node not in gives
        and (node.op != "call_function" or any(user not in like for user in node.users))
    ]
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo += [source for source in node.all_input_nodes if source in like]
    return needed


def _differ_in_parameters(graph: fx.GraphModule, pair: Pair) -> bool:
    """Return whether two parts differ in parameters only: indices and masks set the places."""
    for path, other_path in pair.weights.items():
        one, other = (attribute(graph, p) for p in (path, other_path))
        if isinstance(one, nn.Parameter) and isinstance(other, nn.Parameter):
            continue
        if not isinstance(one, Tensor) or not one.equal(other):
            return False
    return True


def _lie_the_same(one: Value | None, other: Any) -> bool:
    """Return whether two values without scores have equal places and sizes, or equal constants."""
    if one is None or not isinstance(other, Value) or other.score is not None or other.hint:
        return False
    if one.place is None or other.place is None:
        return one.place is other.place and one.data.equal(other.data)
    sizes = (one.data.shape, one.data.dtype) == (other.data.shape, other.data.dtype)
    return sizes and one.place.equal(other.place)
