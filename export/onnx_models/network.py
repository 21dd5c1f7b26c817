"""An ONNX file as a PyTorch network, with sites for some of its attention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ...core.errors import foreign_text
from .graph import Graph, Node
from .operators import OPERATORS
from .operators.values import TooLargeError, within_bounds

Values: TypeAlias = dict[str, Tensor]
Wide: TypeAlias = torch.dtype | None
_MOST_ROUNDS = 1 << 16
_NUMBERS = {torch.float32: 1, torch.float64: 11}  # of the types that are computed in, in ONNX
_NARROWER = {  # numbers of the types that each of these stands for
    torch.float32: (10, 16),
    torch.float64: (1, 10, 16),
}


class NodeError(RuntimeError):
    """A node that cannot be computed; the message names it.

    Attributes:
        too_large: Its result exceeds the limit of every node, whatever the size of the image.
    """

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        """Set the message."""
        super().__init__(message)
        self.too_large = too_large


@dataclass(frozen=True)
class Cut:
    """The replacement of some nodes.

    Attributes:
        inputs: Names of its input values.
        output: Name of the value that it computes instead of the file's nodes.
        module: Attribute of the network that computes it.
        sites: Paths of the sites in it.
        shapes: Shapes of the inputs, at the size of the search.
        types: Types of the inputs.
        free: Axes of each input whose lengths depend on the size.
    """

    inputs: tuple[str, ...]
    output: str
    module: str
    sites: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[torch.dtype, ...]
    free: tuple[tuple[int, ...], ...]


class OnnxNetwork(nn.Module):
    """Runs the main graph of a file, from its inputs in order to its outputs.

    Constants of the file are buffers. If it runs in float64, so does every Cast to a narrower type.

    Attributes:
        graph: The graph of the file.
        cuts: Replacements of nodes, by the name of the computed value.
        folded: Names of values known not to depend on pixels.
    """

    def __init__(self, graph: Graph, types: Sequence[torch.dtype]) -> None:
        """Set the graph, and the declared types of its inputs."""
        super().__init__()
        self.graph = graph
        self.types = tuple(types)
        self.cuts: dict[str, Cut] = {}
        self.folded: frozenset[str] = frozenset(graph.constants)
        self._constants: dict[str, str] = {}
        for place, (name, tensor) in enumerate(graph.constants.items()):
            self._constants[name] = f"constant_{place}"
            self.register_buffer(f"constant_{place}", tensor)
        self._schedule()

    def constants(self, wide: Wide = None) -> Values:
        """Return the constants of the main graph by name, narrower types as ``wide``."""
        return {
            name: _widened(getattr(self, attribute), wide)
            for name, attribute in self._constants.items()
        }

    def cut(self, cut: Cut, module: nn.Module) -> None:
        """Compute a value by a module with sites instead of its nodes."""
        for path in cut.sites:
            _put(self, path, module.get_submodule(path))
        self.add_module(cut.module, module)
        self.cuts[cut.output] = cut
        self._schedule()

    def forward(self, *given: Tensor) -> Any:
        """Return the outputs as a tuple, or a single output by itself."""
        values = self._computed(given, self._plan)
        outputs = tuple(_full(values[name]) for name in self.graph.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def values(self, names: Collection[str], *given: Tensor) -> Values:
        """Return values of the unmodified file by name."""
        values = self._computed(given, _schedule(self.graph.nodes, names, {}))
        return {name: values[name] for name in names}

    def _schedule(self) -> None:
        self._plan = _schedule(self.graph.nodes, self.graph.outputs, self.cuts)

    def _computed(self, given: Sequence[Tensor], plan: Sequence[_Step]) -> Values:
        doubled = given[0].dtype == torch.float64 != self.types[0]
        wide = torch.float64 if doubled else None
        taken = [
            tensor if doubled else tensor.to(dtype)
            for tensor, dtype in zip(given, self.types, strict=True)
        ]
        values = {**self.constants(), **dict(zip(self.graph.inputs, taken, strict=True))}
        for step in plan:
            if isinstance(step.node, Cut):
                module = getattr(self, step.node.module)
                values[step.node.output] = module(*(values[name] for name in step.node.inputs))
            else:
                values.update(compute(step.node, values, wide=wide))
            for name in step.last:
                values.pop(name, None)
        return values


@dataclass(frozen=True)
class _Step:
    """A node or its replacement, and the values that are not needed afterwards."""

    node: Node | Cut
    last: tuple[str, ...]


def _schedule(
    nodes: Sequence[Node], wanted: Collection[str], cuts: Mapping[str, Cut]
) -> list[_Step]:
    """Return the steps for the wanted values, in order."""
    every: list[Node | Cut] = []
    for node in nodes:
        every.append(node)
        every += [cuts[name] for name in node.outputs if name in cuts]
    needed, steps = set(wanted), []
    for item in reversed(every):
        if isinstance(item, Cut):
            gives, takes = {item.output}, set(item.inputs)
        else:
            gives = {name for name in item.outputs if name not in cuts}
            takes = set(names_taken(item)) - {""}
        if needed.intersection(gives):
            steps.append(_Step(item, tuple((takes | gives) - needed)))
            needed |= takes
    return steps[::-1]


def _put(root: nn.Module, path: str, site: nn.Module) -> None:
    """Register a module under a path."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(name, site)


def _full(output: Tensor) -> Tensor:
    """Return an output as sessions do: without half precision."""
    return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output


def names_taken(node: Node) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read."""
    yield from node.inputs
    for attribute in node.attributes.values():
        if isinstance(attribute, Graph):
            own = {*attribute.inputs, *attribute.constants}
            for inner in attribute.nodes:
                yield from (name for name in names_taken(inner) if name not in own)
                own.update(inner.outputs)
            yield from (name for name in attribute.outputs if name not in own)


def compute(node: Node, values: Mapping[str, Tensor], *, wide: Wide = None) -> Values:
    """Return the outputs of a node by name.

    Args:
        node: A node of the graph.
        values: Values by name, with the node's inputs.
        wide: float32 or float64 to use instead of narrower types; None: the types of the file.

    Raises:
        NodeError: It cannot be computed.
    """
    try:
        if node.operator in _CONTROL_FLOW:
            made = _CONTROL_FLOW[node.operator](node, values, wide)
        else:
            given = [values[name] if name else None for name in node.inputs]
            while given and given[-1] is None:
                given.pop()
            attributes = node.attributes
            if wide and node.operator == "Cast" and attributes.get("to") in _NARROWER[wide]:
                attributes = {**attributes, "to": _NUMBERS[wide]}
            result = OPERATORS[node.operator](*given, **attributes)
            made = result if isinstance(result, tuple) else (result,)
        for tensor in made:
            within_bounds(tensor.shape)
    except NodeError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        reason = foreign_text(error).partition("\n")[0]
        where = f"{node.operator} {node.name or node.outputs[0]!r:.80}"
        too_large = isinstance(error, TooLargeError)
        raise NodeError(f"{where}: {reason}", too_large=too_large) from error
    named = zip(node.outputs, made, strict=False)
    return {name: _widened(value, wide) for name, value in named if name}


def _widened(tensor: Tensor, wide: Wide) -> Tensor:
    """Convert a tensor to a wider type of the same kind."""
    if wide is None or not tensor.dtype.is_floating_point:
        return tensor
    return tensor.to(torch.promote_types(tensor.dtype, wide))


def _run_graph(graph: Graph, values: Mapping[str, Tensor], wide: Wide) -> tuple[Tensor, ...]:
    """Run the subgraph of a node, which can read outer values."""
    seen = {**values, **{name: _widened(held, wide) for name, held in graph.constants.items()}}
    for node in graph.nodes:
        seen.update(compute(node, seen, wide=wide))
    return tuple(seen[name] for name in graph.outputs)


def _if(node: Node, values: Mapping[str, Tensor], wide: Wide) -> tuple[Tensor, ...]:
    chosen = "then_branch" if bool(values[node.inputs[0]]) else "else_branch"
    return _run_graph(node.attributes[chosen], values, wide)


def _loop(node: Node, values: Mapping[str, Tensor], wide: Wide) -> tuple[Tensor, ...]:
    body: Graph = node.attributes["body"]
    count, condition, *carried_names = [*node.inputs, "", ""][: max(2, len(node.inputs))]
    rounds = int(values[count]) if count else _MOST_ROUNDS
    if rounds > _MOST_ROUNDS:
        raise ValueError(f"{rounds} rounds, at most {_MOST_ROUNDS} are run")
    going = bool(values[condition]) if condition else True
    carried, number = [values[name] for name in carried_names], 0
    scanned: list[list[Tensor]] = []
    while going and number < rounds:
        for tensor in scanned[-1] if scanned else ():
            within_bounds((number + 1, *tensor.shape))
        given = [torch.tensor(number), torch.tensor(going), *carried]
        inner = {**values, **dict(zip(body.inputs, given, strict=True))}
        again, *made = _run_graph(body, inner, wide)
        carried, scanned = made[: len(carried)], [*scanned, made[len(carried) :]]
        going, number = bool(again), number + 1
    if not scanned and len(node.outputs) > len(carried):
        raise ValueError("a Loop with scan outputs and no iterations is not supported")
    collected = (torch.stack(list(column)) for column in zip(*scanned, strict=True))
    return (*carried, *collected)


_CONTROL_FLOW: dict[str, Callable[[Node, Mapping[str, Tensor], Wide], tuple[Tensor, ...]]] = {
    "If": _if,
    "Loop": _loop,
}
