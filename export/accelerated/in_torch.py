"""Runs nodes of a graph in PyTorch, on any device; sites are modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError, foreign_text
from ..execute.parts import graphs_of, is_held
from ..execute.sites import SITE
from ..rewrite.graph_network import GraphNetwork
from ..rewrite.replacement import with_replacements
from ..rewrite.sources import inputs_of
from .torch_operators import OPERATORS, attributes_of

_HALF = (torch.float16, torch.bfloat16)
_KEPT = 4
"""Number of shapes of the inputs whose sizes and masks are kept."""


@dataclass(frozen=True)
class _Step:
    """One node.

    Attributes:
        title: Operator and result, for messages.
        compute: Takes the inputs, and returns the results in order.
        inputs: Names of the inputs; "" for one that is omitted.
        outputs: Names of the results.
        lists: Number of inputs before those that are given as lists.
        on_pixels: Whether it depends on pixels.
        last: Names of the values that nothing reads after it.
    """

    title: str
    compute: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lists: int
    on_pixels: bool
    last: tuple[str, ...]


class TorchGraph(nn.Module):
    """Runs nodes in PyTorch. What depends on no pixel is computed once for each shape.

    Weights of the graph that are float32 arrays on the CPU are used without a copy.
    """

    def __init__(
        self,
        nodes: Sequence[ir.Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        sites: nn.Module,
    ) -> None:
        """Take a graph.

        Args:
            nodes: The nodes, in order; those of the domain `SITE` are computed by modules.
            inputs: Names of the inputs.
            outputs: Names of the results.
            sites: Has the modules of the sites at their paths.

        Raises:
            UnsupportedModelError: PyTorch has no rule for an operator.
        """
        super().__init__()
        self.sites = sites
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._weights: dict[str, str] = {}
        self._numbers: dict[str, Tensor] = {}
        self._known: OrderedDict[Any, list[list[Any]]] = OrderedDict()
        self._pixels = set(inputs)
        for node in nodes:
            for value in node.inputs:
                if value is not None and is_held(value):
                    self._hold(value)
        self._steps = self._steps_of(nodes)

    def _hold(self, value: ir.Value) -> None:
        name = str(value.name)
        if name in self._weights or name in self._numbers or value.const_value is None:
            return
        tensor = torch.from_numpy(value.const_value.numpy())
        if tensor.is_floating_point() and tensor.dim():
            self._weights[name] = f"weight_{len(self._weights)}"
            self.register_buffer(self._weights[name], tensor, persistent=False)
        else:
            self._numbers[name] = tensor

    def _steps_of(self, nodes: Sequence[ir.Node]) -> list[_Step]:
        steps: list[_Step] = []
        seen = set(self.outputs)
        for node in nodes:
            read = [str(value.name) for value in node.inputs if value is not None]
            if node.domain == SITE or self._pixels.intersection(read) - self._sizes_of(node):
                self._pixels.update(str(value.name) for value in node.outputs)
        for node in reversed(nodes):
            read = ["" if value is None else str(value.name) for value in node.inputs]
            last = tuple({name for name in read if name} - seen)
            seen.update(read)
            steps.append(self._step(node, tuple(read), last))
        return steps[::-1]

    @staticmethod
    def _sizes_of(node: ir.Node) -> set[str]:
        """Return the inputs of a node of which only the sizes or the type are read."""
        if node.op_type in ("Shape", "Size"):
            return {str(value.name) for value in node.inputs if value is not None}
        return {str(node.inputs[1].name)} if node.op_type == "CastLike" else set()  # type: ignore[union-attr]

    def _step(self, node: ir.Node, read: tuple[str, ...], last: tuple[str, ...]) -> _Step:
        given = tuple(str(value.name or "") for value in node.outputs)
        title = f"{node.op_type} {given[0]!r:.60}"
        on_pixels = any(name in self._pixels for name in given)
        if node.domain == SITE:
            site = self.sites.get_submodule(str(node.name))
            return _Step(title, _computing(site), read, given, 99, on_pixels, last)
        row = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if row is None or graphs_of(node):
            raise UnsupportedModelError(
                f"PyTorch has no rule for {node.domain or 'the operator'} {node.op_type}, node "
                f"{node.outputs[0].name!r:.60}"
            )
        attributes = attributes_of(node)

        def compute(*values: Any) -> tuple[Any, ...]:
            made = row.compute(attributes, *values)
            return made if isinstance(made, tuple) else (made,)

        return _Step(title, compute, read, given, row.sizes, on_pixels, last)

    def forward(self, *images: Tensor) -> Any:
        """Return the output, or a tuple if there are several.

        Raises:
            UnsupportedModelError: A node cannot be computed.
        """
        like = images[0]
        key = (tuple(image.shape for image in images), like.device, like.dtype)
        known = self._known.get(key)
        bound: list[list[Any]] = [] if known is None else known
        fixed: dict[str, Tensor] = dict(self._numbers) if known is None else {}
        values: dict[str, Any] = dict(zip(self.inputs, images, strict=True))
        for number, step in enumerate(self._steps):
            if known is None:
                bound.append(
                    [self._constant(step, at, fixed, like) for at in range(len(step.inputs))]
                )
            if step.on_pixels or known is None:
                given = [
                    values[name] if name in self._pixels else held
                    for name, held in zip(step.inputs, bound[number], strict=True)
                ]
                made = _made(step, given)
                if step.on_pixels and like.dtype in _HALF:  # it may be written as float32
                    made = [v.to(like.dtype) if v.dtype is torch.float32 else v for v in made]
                (values if step.on_pixels else fixed).update(zip(step.outputs, made, strict=False))
            for name in step.last:
                values.pop(name, None)
        if known is None:
            self._known[key] = [
                held if step.on_pixels else []
                for step, held in zip(self._steps, bound, strict=True)
            ]
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        outputs = tuple(values[name] for name in self.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _constant(self, step: _Step, at: int, fixed: Mapping[str, Tensor], like: Tensor) -> Any:
        """Return an input of a node that depends on no pixel, as the node takes it; else None."""
        name = step.inputs[at]
        if not name or name in self._pixels:
            return None
        value = fixed[name] if name in fixed else getattr(self, self._weights[name])
        if at >= step.lists:
            return _list(value)
        if not step.on_pixels:
            return value.cpu()
        return value.to(like.device, like.dtype if value.is_floating_point() else value.dtype)


def in_torch(network: GraphNetwork) -> TorchGraph:
    """Return a graph with all its sites, computed in PyTorch alone; it shares the weights.

    Raises:
        UnsupportedModelError: PyTorch has no rule for an operator.
    """
    graph = network.source.searched.graph
    results = [str(value.name) for value in graph.outputs]
    nodes = with_replacements(list(graph), network.replacements, results)
    inputs = [str(value.name) for value in inputs_of(network.source.searched)]
    return TorchGraph(nodes, inputs, results, network)


def _made(step: _Step, given: Sequence[Any]) -> Sequence[Any]:
    """Return the results of a node."""
    try:
        made: Sequence[Any] = step.compute(*given)
    except Exception as error:  # PyTorch raises errors of several kinds
        raise UnsupportedModelError(
            f"PyTorch cannot compute {step.title}: {foreign_text(error):.200}"
        ) from error
    return made


def _list(value: Tensor) -> list[Any]:
    """Return numbers as a list."""
    numbers: list[Any] = value.reshape(-1).tolist()
    return numbers


def _computing(site: nn.Module) -> Any:
    """Return what computes a site, with its result as the only one."""
    return lambda *values: (site(*values),)
