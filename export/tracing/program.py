"""Makes programs from graphs that were traced before, without another trace of the whole.

Nodes of the earlier trace hold their values as fake tensors. Only the nodes that were inserted
since then are traced, each separately: sites and the packing of their maps.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import SymInt, Tensor, fx, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

aten = torch.ops.aten

VALUE = "val"
"""Key in the ``meta`` of a node: its value, made of fake tensors and free sizes."""

_STACK = "nn_module_stack"


def program_of(graph: fx.GraphModule) -> ExportedProgram | None:
    """Return the program of a graph, or None if its inputs have no values.

    Args:
        graph: Graph of operators and modules, with free sizes of one trace. It is not modified.

    Raises:
        RuntimeError: PyTorch cannot trace an inserted node, or it writes in place.
    """
    inputs = [node.meta.get(VALUE) for node in graph.graph.nodes if node.op == "placeholder"]
    modes = {id(value.fake_mode) for value in inputs if isinstance(value, FakeTensor)}
    if len(modes) != 1 or not all(isinstance(value, FakeTensor) for value in inputs):
        return None
    writer = _Writer(graph, inputs[0].fake_mode)
    with torch.no_grad(), writer.mode, enable_python_dispatcher():
        for node in graph.graph.nodes:
            writer.write(node)
    return writer.program()


def has_free_sizes(graph: fx.GraphModule) -> bool:
    """Return whether a graph was traced for inputs of any size."""
    taken = [node.meta.get(VALUE) for node in graph.graph.nodes if node.op == "placeholder"]
    tensors = [value for value in taken if isinstance(value, Tensor)]
    return any(isinstance(size, SymInt) for tensor in tensors for size in tensor.shape)


class _Writer:
    """Writes the nodes of a graph into the graph of a program."""

    def __init__(self, module: fx.GraphModule, mode: FakeTensorMode) -> None:
        self.module, self.mode, self.graph = module, mode, fx.Graph()
        self._nodes: dict[fx.Node, fx.Node] = {}
        self._tensors: dict[str, fx.Node] = {}
        self._held: dict[str, Tensor] = {}
        self._fakes: dict[str, FakeTensor] = {}
        self._first: fx.Node | None = None
        self._sizes: dict[Any, fx.Node] = {}

    def write(self, node: fx.Node) -> None:
        """Write a node."""
        if node.op == "output":
            leaves, self._returns = tree_flatten(node.args[0])
            self.graph.output(tuple(self._nodes[leaf] for leaf in leaves))
            return
        self._nodes[node] = self._written(node)

    def _written(self, node: fx.Node) -> fx.Node:
        if node.op == "placeholder":
            taken = self.graph.placeholder(node.name)
            taken.meta = dict(node.meta)
            self._first = self._first or taken
            return taken
        path = str(node.target)
        if node.op == "get_attr":
            return self._tensor(path, operator.attrgetter(path)(self.module))
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._nodes.__getitem__)
        if node.op == "call_module":
            return self._of_module(node, path, args)
        target: Any = node.target
        if not _is_operator(target, (args, kwargs)):
            return self._traced(target, args, kwargs, node.meta.get(_STACK))
        return self._call(target, args, kwargs, node.meta)

    def _call(self, target: Any, args: Any, kwargs: Any, meta: Mapping[str, Any]) -> fx.Node:
        """Write an operator, with its value computed if unknown; equal sizes become one node."""
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            raise RuntimeError(f"{target} writes in place, which a program cannot hold")
        meta = dict(meta)
        if VALUE not in meta:
            given_args, given_kwargs = fx.map_arg((args, kwargs), _value)
            meta[VALUE] = target(*given_args, **given_kwargs)
        value = meta[VALUE]
        size = value.node.expr if isinstance(value, SymInt) else None
        if size is not None and size in self._sizes:
            return self._sizes[size]
        call = self.graph.call_function(target, args, kwargs)
        call.meta = meta
        if size is not None:
            self._sizes[size] = call
        return call

    def _of_module(self, node: fx.Node, path: str, args: Any) -> fx.Node:
        """Write the operators of a layer or a site."""
        module = self.module.get_submodule(path)
        held = {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }
        stack = node.meta.get(_STACK) or OrderedDict({path: (path, type(module).__name__)})
        if type(module) is nn.Linear:
            tensors = [self._tensor(f"{path}.{name}", held[name]) for name in held]
            return self._call(aten.linear.default, (*args, *tensors), {}, node.meta)
        fakes = {name: self._fake(f"{path}.{name}", tensor) for name, tensor in held.items()}

        def run(*given: Any, tensors: dict[str, Tensor]) -> Any:
            return torch.func.functional_call(module, tensors, given)

        of_tensors = {name: (f"{path}.{name}", fakes[name], held[name]) for name in held}
        return self._traced(run, args, {}, stack, of_tensors)

    def _traced(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        stack: Any,
        tensors: Mapping[str, tuple[str, FakeTensor, Tensor]] | None = None,
    ) -> fx.Node:
        """Write the operators of a function of nodes, which returns one tensor."""
        leaves, spec = tree_flatten((args, kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]
        given = [leaves[place] for place in places]
        named = tensors or {}

        def run(*values: Any) -> Any:
            filled = list(leaves)
            for place, value in zip(places, values, strict=False):
                filled[place] = value
            own_args, own_kwargs = tree_unflatten(filled, spec)
            if tensors is not None:
                held = dict(zip(named, values[len(places) :], strict=True))
                return function(*own_args, tensors=held)
            return function(*own_args, **own_kwargs)

        fakes = [fake for _, fake, _ in named.values()]
        traced = make_fx(run, pre_dispatch=True, tracing_mode="real")(
            *(_value(node) for node in given), *fakes
        )
        inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
        copies = dict(zip(inputs, given, strict=False))
        for node, (path, _, tensor) in zip(inputs[len(given) :], named.values(), strict=True):
            if node.users:
                copies[node] = self._tensor(path, tensor)
        for node in traced.graph.nodes:
            if node.op == "get_attr":
                name = f"constant_{len(self._tensors)}"
                copies[node] = self._tensor(name, getattr(traced, str(node.target)))
            elif node.target is aten.detach_.default:  # of torch.tensor
                copies[node] = copies[node.args[0]]
            elif node.op == "call_function":
                own = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
                meta = {VALUE: node.meta[VALUE]} | ({_STACK: stack} if stack else {})
                copies[node] = self._call(node.target, *own, meta)
        (result,) = tree_flatten(traced.graph.output_node().args[0])[0]
        written: fx.Node = copies[result]
        return written

    def _fake(self, path: str, tensor: Tensor) -> FakeTensor:
        if path not in self._fakes:
            self._fakes[path] = self.mode.from_tensor(tensor, static_shapes=True)
        return self._fakes[path]

    def _tensor(self, path: str, tensor: Tensor) -> fx.Node:
        """Return the input of the program for a tensor of the network."""
        if path not in self._tensors:
            with self.graph.inserting_before(self._first):
                taken = self.graph.placeholder(path.replace(".", "_"))
            taken.meta[VALUE] = self._fake(path, tensor)
            self._tensors[path], self._held[path] = taken, tensor
        return self._tensors[path]

    def program(self) -> ExportedProgram:
        """Return the program; all nodes must be written before."""
        paths = {node: path for path, node in self._tensors.items()}
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        specs = [_input_spec(node, paths.get(node), self._held) for node in inputs]
        given = [node.meta[VALUE] for node in inputs if node not in paths]
        results: Any = self.graph.output_node().args[0]
        outputs = [
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in results
        ]
        _, takes = tree_flatten((tuple(given), {}))
        ranges = self.mode.shape_env.var_to_range if self.mode.shape_env else {}
        return ExportedProgram(
            nn.Module(),
            self.graph,
            ExportGraphSignature(specs, outputs),
            self._held,
            dict(ranges),
            [ModuleCallEntry("", ModuleCallSignature([], [], takes, self._returns))],
        )


def _input_spec(node: fx.Node, path: str | None, held: Mapping[str, Tensor]) -> InputSpec:
    argument = TensorArgument(node.name)
    if path is None:
        return InputSpec(InputKind.USER_INPUT, argument, None)
    if isinstance(held[path], nn.Parameter):
        return InputSpec(InputKind.PARAMETER, argument, path)
    return InputSpec(InputKind.BUFFER, argument, path, persistent=True)


def _is_operator(target: Any, arguments: Any) -> bool:
    """Return whether a program may hold a call unchanged: an ATen operator, or one on sizes."""
    if isinstance(target, torch._ops.OpOverload) or target is operator.getitem:
        return True
    leaves = tree_flatten(tree_map(_value, arguments))[0]
    return not any(isinstance(leaf, Tensor) for leaf in leaves)


def _value(leaf: Any) -> Any:
    return leaf.meta[VALUE] if isinstance(leaf, fx.Node) else leaf
