"""Traces modules of the same structure once; the others are calls until the graph is complete.

The first module of a kind is traced between two marks. A later module of the same structure,
called with arguments of the same sizes, becomes one node. When the graph is complete, a copy of the
nodes between the marks, with the weights of the later module, replaces that node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..tracing.marks import CALL, ENTER, LEAVE, MARK

_SMALLEST = 4
"""Smallest number of modules in a module that is traced once, since a call adds operators."""

_NO_SETTINGS = {*vars(nn.Module()), "forward"}


@dataclass(eq=False)
class _Kind:
    """The first module of a kind, called with arguments of certain sizes.

    Attributes:
        path: Path of that module.
        arguments: Properties that another call must share.
        shapes: Shapes of its results.
        returns: Structure of its results (tuples, lists).
    """

    path: str
    arguments: tuple[object, ...]
    shapes: list[tuple[Any, ...]] = field(default_factory=list)
    returns: TreeSpec | None = None


REPEATS = "repeats"
"""Key in the ``meta`` of a graph: the list of its `Repeat` records."""


@dataclass(frozen=True)
class Repeat:
    """Two equal parts of a graph, by the names of nodes.

    Attributes:
        first: Inputs and outputs of the first part.
        other: Inputs and outputs of the other part.
        ranks: Ranks of the outputs.
    """

    first: tuple[tuple[str, ...], tuple[str, ...]]
    other: tuple[tuple[str, ...], tuple[str, ...]]
    ranks: tuple[int, ...]


class Repeats:
    """The repeated modules of a network, while it is traced and after that."""

    def __init__(self, network: nn.Module, idle: Iterable[str] = ()) -> None:
        """Prepare a network so that modules of the same structure are traced once.

        Args:
            network: The network. It can be traced only once.
            idle: Paths of modules that return their input; their settings are not compared.
        """
        self._network = network
        self._kinds: list[tuple[int, _Kind]] = []
        self._calls: list[tuple[str, _Kind]] = []
        for number, paths in enumerate(_alike(network, frozenset(idle))):
            for path in paths:
                module = network.get_submodule(path)
                vars(module)["forward"] = partial(self._run, number, path, module.forward)

    def _run(
        self, number: int, path: str, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Trace a module, or record its call if one of its kind was traced before."""
        leaves, spec = tree_flatten((args, kwargs))
        arguments = (spec, *(_described(leaf) for leaf in leaves))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        known = [kind for of, kind in self._kinds if of == number and kind.arguments == arguments]
        if not tensors:
            return forward(*args, **kwargs)
        if known:
            if known[0].returns is None:  # it is still running, or returns more than tensors
                return forward(*args, **kwargs)
            return self._called(known[0], known[0].returns, path, tensors)
        kind = _Kind(path, arguments)
        self._kinds.append((number, kind))
        name = str(len(self._kinds) - 1)
        entered = iter(MARK(tensors, f"{ENTER}_{name}"))
        leaves = [next(entered) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(leaves, spec)
        returned, returns = tree_flatten(forward(*args, **kwargs))
        if returned and all(_is_like(value, tensors[0]) for value in returned):
            kind.shapes = [tuple(value.shape) for value in returned]
            kind.returns = returns
            returned = MARK(returned, f"{LEAVE}_{name}")
        return tree_unflatten(returned, returns)

    def _called(self, kind: _Kind, returns: TreeSpec, path: str, tensors: list[Tensor]) -> Any:
        self._calls.append((path, kind))
        sizes = [size for shape in kind.shapes for size in shape]
        ranks = [len(shape) for shape in kind.shapes]
        name = str(len(self._calls) - 1)
        returned = CALL(tensors, sizes, ranks, name)
        return tree_unflatten(returned, returns)

    def expand(self, graph: fx.GraphModule) -> None:
        """Replace the calls in a graph of the network by copies, and remove the marks.

        Equal parts are recorded in its ``meta``.
        """
        marks: dict[str, fx.Node] = {}
        became: dict[fx.Node, fx.Node] = {}
        equal: list[tuple[list[list[fx.Node]], tuple[int, ...]]] = []
        numbers = {id(kind): number for number, (_, kind) in enumerate(self._kinds)}
        for node in list(graph.graph.nodes):
            if node.target is MARK:
                marks.setdefault(_arguments(node)[1], node)
            elif node.target is CALL:
                path, kind = self._calls[int(_arguments(node)[3])]
                enter, leave = (marks[f"{name}_{numbers[id(kind)]}"] for name in (ENTER, LEAVE))
                ranks = tuple(_arguments(node)[2])
                parts = [list(_arguments(part)[0]) for part in (enter, leave, node)]
                copy = _Copy(graph, kind.path, path, self._network)
                parts.append(copy.put(node, enter, leave))
                became |= _replace_items(node, parts[-1])
                equal.append((parts, ranks))
        for node in list(graph.graph.nodes):
            if node.target is MARK:
                became |= _replace_items(node, _arguments(node)[0])
        graph.recompile()

        def names(nodes: list[fx.Node]) -> tuple[str, ...]:
            return tuple(_latest(node, became).name for node in nodes)

        graph.meta[REPEATS] = [
            Repeat((names(enter), names(leave)), (names(given), names(got)), ranks)
            for (enter, leave, given, got), ranks in equal
        ]


def _arguments(node: fx.Node) -> Any:
    return node.args


def _latest(node: fx.Node, became: dict[fx.Node, fx.Node]) -> fx.Node:
    while node in became:
        node = became[node]
    return node


class _Copy:
    """Copies the nodes of one module, with the weights of another."""

    def __init__(self, graph: fx.GraphModule, first: str, path: str, network: nn.Module) -> None:
        self.graph, self.first, self.path, self.network = graph, first, path, network

    def put(self, call: fx.Node, enter: fx.Node, leave: fx.Node) -> list[fx.Node]:
        """Insert copies of the nodes between two marks before a call; return the results."""
        copies: dict[fx.Node, fx.Node] = {}
        with self.graph.graph.inserting_before(call):
            for node in self._inside(enter, leave):
                copies[node] = self._copied(node, enter, call, copies)
        return [copies.get(node, node) for node in _arguments(leave)[0]]

    def _inside(self, enter: fx.Node, leave: fx.Node) -> list[fx.Node]:
        """Return the nodes that depend on the inputs or the module's weights, in order."""
        known: dict[fx.Node, bool] = {enter: True}
        order: list[fx.Node] = []
        todo = [(node, False) for node in _arguments(leave)[0]]
        while todo:
            node, is_done = todo.pop()
            if is_done:
                known[node] = any(known[source] for source in node.all_input_nodes)
                if known[node]:
                    order.append(node)
            elif node not in known:
                if node.op == "get_attr":
                    known[node] = self._is_own(str(node.target))
                    order += [node] * known[node]
                    continue
                todo.append((node, True))
                todo += [(source, False) for source in node.all_input_nodes]
        return order

    def _copied(
        self, node: fx.Node, enter: fx.Node, call: fx.Node, copies: dict[fx.Node, fx.Node]
    ) -> fx.Node:
        if node.target is operator.getitem and _arguments(node)[0] is enter:
            taken: fx.Node = _arguments(call)[0][_arguments(node)[1]]
            return taken
        if node.op == "get_attr" and not _has(self.network, str(node.target)):
            return node  # a constant of the code, which is the same for both
        copy = self.graph.graph.node_copy(node, lambda source: copies.get(source, source))
        stack = node.meta.get("nn_module_stack")
        if stack:
            moved = {key: (self._moved(of), kind) for key, (of, kind) in stack.items()}
            copy.meta = {**node.meta, "nn_module_stack": moved}
        if node.op == "get_attr":
            copy.target = self._moved(str(node.target))
            _hold(self.graph, self.network, copy.target)
        return copy

    def _is_own(self, path: str) -> bool:
        return path.startswith(f"{self.first}.")

    def _moved(self, path: str) -> str:
        is_here = path == self.first or self._is_own(path)
        return self.path + path[len(self.first) :] if is_here else path


def _has(network: nn.Module, path: str) -> bool:
    try:
        operator.attrgetter(path)(network)
    except AttributeError:
        return False
    return True


def _hold(graph: fx.GraphModule, network: nn.Module, path: str) -> None:
    """Give a graph the module or tensor of the network at a path."""
    *parents, name = path.split(".")
    module: nn.Module = graph
    for parent in parents:
        if parent not in module._modules:
            module.add_module(parent, nn.Module())
        module = module.get_submodule(parent)
    if not hasattr(module, name):
        value = operator.attrgetter(path)(network)
        if isinstance(value, nn.Parameter):
            module.register_parameter(name, value)
        else:
            module.register_buffer(name, value)


def _replace_items(node: fx.Node, values: Any) -> dict[fx.Node, fx.Node]:
    """Replace the items of a node that returns a list by values; return item -> value."""
    became = {item: values[_arguments(item)[1]] for item in node.users}
    for item, value in became.items():
        item.replace_all_uses_with(value)
        item.graph.erase_node(item)
    node.graph.erase_node(node)
    return became


def _is_like(value: object, tensor: Tensor) -> bool:
    return isinstance(value, Tensor) and value.dtype == tensor.dtype


def _described(leaf: object) -> object:
    """Return the properties of an argument on which the nodes of a trace depend."""
    if isinstance(leaf, Tensor):
        return (*map(str, leaf.shape), leaf.dtype)
    return str(leaf) if isinstance(leaf, torch.SymInt) else leaf


def _alike(network: nn.Module, idle: frozenset[str]) -> list[list[str]]:
    """Return the paths of the modules of each kind with more than one."""
    kinds: list[tuple[list[Any], list[str]]] = []
    for path, module in network.named_modules():
        parts = list(module.modules())
        if path and len(parts) >= _SMALLEST and not any(_has_hooks(part) for part in parts):
            own = {name[len(path) + 1 :] for name in idle if name.startswith(f"{path}.")}
            build = build_of(module, own)
            same = next((paths for other, paths in kinds if is_equal(other, build)), None)
            if same is None:
                kinds.append((build, [path]))
            else:
                same.append(path)
    return [paths for _, paths in kinds if len(paths) > 1]


def idle_parts(network: nn.Module, inputs: tuple[Tensor, ...]) -> frozenset[str]:
    """Return the paths of modules without tensors that return their input, such as dropout.

    Args:
        network: The network, which is run.
        inputs: Inputs of the run.
    """
    idle: dict[str, bool] = {}
    hooks = []
    for path, module in network.named_modules():
        if path and not module._modules and not [*module.parameters(), *module.buffers()]:
            hooks.append(module.register_forward_hook(partial(_note_idle, idle, path)))
    try:
        with torch.no_grad():
            network(*(tensor.clone() for tensor in inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return frozenset(path for path, is_idle in idle.items() if is_idle)


def _note_idle(idle: dict[str, bool], path: str, _: nn.Module, taken: Any, given: Any) -> None:
    idle[path] = idle.get(path, True) and len(taken) == 1 and given is taken[0]


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def build_of(module: nn.Module, idle: Iterable[str] = ()) -> list[Any]:
    """Return what determines a module's graph: types, settings and tensor shapes of its parts."""
    parts: list[Any] = []
    for path, part in module.named_modules():
        if path in idle:
            parts.append(path)
            continue
        settings = {key: value for key, value in vars(part).items() if key not in _NO_SETTINGS}
        tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        shapes = [(name, tensor.shape, tensor.dtype) for name, tensor in tensors]
        parts.append((path, type(part), settings, shapes))
    return parts


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two results of `build_of` are equal, with tensors compared by value."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        both = isinstance(one, Tensor) and isinstance(other, Tensor)
        return both and one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    return bool(one == other)
