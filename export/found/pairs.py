"""Compares two parts of a graph, node by node: equal parts may differ in weights only."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten

from .repeats import Repeat, build_of, is_equal

Nodes = tuple[fx.Node, ...]


@dataclass
class Pair:
    """Two parts of a graph, node by node.

    Attributes:
        graph: The graph.
        repeat: The names of the inputs and outputs of both parts.
        sides: Inputs and outputs of the first part, then those of the other part.
        are_alike: Returns whether two modules of the same structure, given by their paths, compute
            the same.
        nodes: Node of the first part -> node of the other part.
        weights: Path of a tensor of the first part -> path of the tensor of the other part.
        paths: Path of a module of the first part -> path of the module of the other part.
    """

    graph: fx.GraphModule
    repeat: Repeat
    sides: tuple[Nodes, Nodes, Nodes, Nodes]
    are_alike: Callable[[str, str], bool]
    nodes: dict[fx.Node, fx.Node] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def is_equal(self) -> bool:
        """Return whether the parts are equal, compared from their outputs to their inputs."""
        takes, gives, other_takes, other_gives = self.sides
        self.nodes |= zip(takes, other_takes, strict=True)
        todo = list(zip(gives, other_gives, strict=True))
        while todo:
            one, other = todo.pop()
            if one in self.nodes:
                if self.nodes[one] is not other:
                    return False
            elif one is not other:
                if not self._does_the_same(one, other):
                    return False
                ones, spec = tree_flatten((one.args, one.kwargs))
                others, other_spec = tree_flatten((other.args, other.kwargs))
                if spec != other_spec:
                    return False
                self.nodes[one] = other
                for a, b in zip(ones, others, strict=True):
                    if isinstance(a, fx.Node) and isinstance(b, fx.Node):
                        todo.append((a, b))
                    elif type(a) is not type(b) or a != b:
                        return False
        return True

    def _does_the_same(self, one: fx.Node, other: fx.Node) -> bool:
        if one.op != other.op or one.op == "placeholder":
            return False
        if one.op == "call_function":
            return one.target == other.target
        path, other_path = str(one.target), str(other.target)
        if one.op == "get_attr":
            self.weights[path] = other_path
            return _are_of_one_shape(*(attribute(self.graph, p) for p in (path, other_path)))
        modules = [self.graph.get_submodule(p) for p in (path, other_path)]
        self.paths[path] = other_path
        self.weights |= {f"{path}.{name}": f"{other_path}.{name}" for name in _tensors(modules[0])}
        alike = is_equal(*(build_of(module) for module in modules))
        return alike and self.are_alike(path, other_path)


def pair_of(
    graph: fx.GraphModule,
    repeat: Repeat,
    named: Callable[[Sequence[str]], Nodes],
    are_alike: Callable[[str, str], bool],
) -> Pair | None:
    """Return two parts node by node, or None if they are no longer equal.

    Args:
        graph: The graph.
        repeat: The names of the inputs and outputs of both parts.
        named: Returns the nodes of some names, without those that do not exist.
        are_alike: As in `Pair`.
    """
    names = (*repeat.first, *repeat.other)
    sides = [named(side) for side in names]
    if any(len(nodes) != len(side) for nodes, side in zip(sides, names, strict=True)):
        return None
    pair = Pair(graph, repeat, (sides[0], sides[1], sides[2], sides[3]), are_alike)
    return pair if pair.is_equal() else None


def attribute(graph: fx.GraphModule, path: str) -> Any:
    """Return the tensor or module of a graph at a path.

    Raises:
        AttributeError: There is none.
    """
    return operator.attrgetter(path)(graph)


def _are_of_one_shape(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _tensors(module: nn.Module) -> list[str]:
    """Return the names of the tensors of a module."""
    held = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return [name for name, _ in held]
