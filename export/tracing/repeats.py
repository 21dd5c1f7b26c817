"""Traces modules of the same structure once; the others are calls until the graph is complete.

The first module of a kind is traced between two marks. A later module of the same structure,
called with arguments of the same sizes, becomes one node. In the ONNX graph a copy of the nodes
between the marks, with the weights of the later module, replaces that node (`copies.expand_calls`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...models.torch_internals import TreeSpec, tree_flatten, tree_unflatten
from .copies import Copied
from .marks import CALL, ENTER, LEAVE, MARK

_SMALLEST = 4
"""Smallest number of modules in a module that is traced once, since a call adds operators."""

_NO_SETTINGS = {*vars(nn.Module()), "forward"}


@dataclass(frozen=True)
class Observed:
    """How a network used its modules in a run.

    Attributes:
        idle: Paths of modules without tensors that returned their input, such as dropout; their
            settings are not compared.
        again: Paths of modules that ran several times.
    """

    idle: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()


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


class Repeats:
    """The repeated modules of a network, while it is traced and after that."""

    def __init__(self, network: nn.Module, observed: Observed) -> None:
        """Prepare a network so that modules of the same structure are traced once.

        Args:
            network: The network. It can be traced only once.
            observed: What a run of the network showed.
        """
        self._network = network
        self._kinds: list[tuple[int, _Kind]] = []
        self._calls: list[tuple[str, _Kind]] = []
        for number, paths in enumerate(_group_by_structure(network, observed)):
            for path in paths:
                module = network.get_submodule(path)
                run = partial(self._run, number, path, module.forward)
                vars(module)["forward"] = run

    def _run(
        self,
        number: int,
        path: str,
        forward: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Trace a module, or record its call if one of its kind was traced before."""
        leaves, spec = tree_flatten((args, kwargs))
        arguments = (spec, *(_describe(leaf) for leaf in leaves))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        kinds = [kind for of, kind in self._kinds if of == number]
        kinds = [kind for kind in kinds if kind.arguments == arguments]
        if not tensors:
            return forward(*args, **kwargs)
        if kinds:
            if kinds[0].returns is None:  # it is still running, or returns more than tensors
                return forward(*args, **kwargs)
            return self._call(kinds[0], kinds[0].returns, path, tensors)
        kind = _Kind(path, arguments)
        self._kinds.append((number, kind))
        name = str(len(self._kinds) - 1)
        entered = iter(MARK(tensors, f"{ENTER}_{name}"))
        leaves = [next(entered) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(leaves, spec)
        returned, returns = tree_flatten(forward(*args, **kwargs))
        if returned and all(
            isinstance(value, Tensor) and value.dtype == tensors[0].dtype for value in returned
        ):
            kind.shapes = [tuple(value.shape) for value in returned]
            kind.returns = returns
            returned = MARK(returned, f"{LEAVE}_{name}")
        return tree_unflatten(returned, returns)

    def _call(self, kind: _Kind, returns: TreeSpec, path: str, tensors: list[Tensor]) -> Any:
        self._calls.append((path, kind))
        sizes = [size for shape in kind.shapes for size in shape]
        ranks = [len(shape) for shape in kind.shapes]
        name = str(len(self._calls) - 1)
        returned = CALL(tensors, sizes, ranks, name)
        return tree_unflatten(returned, returns)

    def list_calls(self) -> dict[str, Copied]:
        """Return the calls in a graph of the network, by name."""
        kinds = [kind for _, kind in self._kinds]
        numbers = {id(kind): number for number, kind in enumerate(kinds)}
        copied = {}
        for call, (path, kind) in enumerate(self._calls):
            number = str(numbers[id(kind)])
            copied[str(call)] = _copy_call(self._network, kind.path, path, number)
        return copied


def _copy_call(network: nn.Module, first: str, path: str, number: str) -> Copied:
    """Return the call of a module at a path that has the structure of the first of its kind."""

    def name_in_copy(name: str) -> str:
        return path + name[len(first) :]

    module = network.get_submodule(first)
    tensors = [
        *module.named_parameters(first, remove_duplicate=False),
        *module.named_buffers(first, remove_duplicate=False),
    ]
    weights = {name: name_in_copy(name) for name, _ in tensors}
    return Copied(
        number,
        weights,
        {name: name_in_copy(name) for name, _ in module.named_modules(prefix=first)},
    )


def _describe(leaf: object) -> object:
    """Return the properties of an argument on which the nodes of a trace depend."""
    if isinstance(leaf, Tensor):
        return (*map(str, leaf.shape), leaf.dtype)
    return str(leaf) if isinstance(leaf, torch.SymInt) else leaf


def _group_by_structure(network: nn.Module, observed: Observed) -> list[list[str]]:
    """Return the paths of the modules of each kind of which several run, or one several times."""
    kinds: list[tuple[list[Any], list[str]]] = []
    for path, module in network.named_modules():
        parts = list(module.modules())
        if (
            path
            and len(parts) >= _SMALLEST
            and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        ):
            inside = [name for name in observed.idle if name.startswith(f"{path}.")]
            own = {name[len(path) + 1 :] for name in inside}
            build = build_of(module, own)
            alike = [paths for other, paths in kinds if is_equal(other, build)]
            same = alike[0] if alike else None
            if same is None:
                kinds.append((build, [path]))
            else:
                same.append(path)
    repeated = []
    for _, paths in kinds:
        if len(paths) > 1 or paths[0] in observed.again:
            repeated.append(paths)
    return repeated


def observe(network: nn.Module, inputs: tuple[Tensor, ...]) -> Observed:
    """Run a network and return how its modules are used.

    Args:
        network: The network.
        inputs: Inputs of the run.
    """
    idle: dict[str, bool] = {}
    runs: Counter[str] = Counter()

    def note(path: str, _: nn.Module, inputs: Any, output: Any) -> None:
        runs[path] += 1
        returns_input = len(inputs) == 1 and output is inputs[0]
        idle[path] = idle.get(path, True) and returns_input

    modules = dict(network.named_modules())
    hooks = []
    for path, module in modules.items():
        hooks.append(module.register_forward_hook(partial(note, path)))
    try:
        with torch.no_grad():
            network(*(tensor.clone() for tensor in inputs))
    finally:
        for hook in hooks:
            hook.remove()
    bare = set()
    for path, module in modules.items():
        tensors = [*module.parameters(), *module.buffers()]
        if path and not module._modules and not tensors:
            bare.add(path)
    return Observed(
        frozenset(path for path in bare if idle.get(path)),
        frozenset(path for path, count in runs.items() if count > 1),
    )


def build_of(module: nn.Module, idle: Iterable[str] = ()) -> list[Any]:
    """Return what determines a module's graph: types, settings and tensor shapes of its parts."""
    parts: list[Any] = []
    for path, part in module.named_modules():
        if path in idle:
            parts.append(path)
            continue
        attributes = vars(part).items()
        settings = {key: value for key, value in attributes if key not in _NO_SETTINGS}
        parameters = part.named_parameters(recurse=False)
        tensors = [*parameters, *part.named_buffers(recurse=False)]
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
        same_keys = one.keys() == other.keys()
        return same_keys and all(is_equal(one[key], other[key]) for key in one)
    return bool(one == other)
