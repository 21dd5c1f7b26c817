"""Runs nodes in onnxruntime and, between them, sites in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor

from ...runtime.ort_values import copy_from_ort, copy_to_ort
from .parts import PartRunner, Values, find_reads, is_stored, make_parts

SITE = "nystra.site"
"""Domain of the nodes that stand for the attention of a site until its mechanism is written."""

Compute = Callable[[str, Sequence[Tensor | None]], Tensor]
"""Takes the path of a site and its inputs, and returns its result."""


class SitedRunner:
    """Runs a list of nodes, some of which are sites.

    Sessions are kept between runs.
    """

    def __init__(
        self,
        runner: PartRunner,
        nodes: Sequence[ir.Node],
        requested: Collection[str],
        *,
        optimized: bool,
    ) -> None:
        self.runner = runner
        self.optimized = optimized
        groups: list[list[ir.Node]] = [[]]
        for node in nodes:
            if node.domain == SITE:
                groups += [[node], []]
            else:
                groups[-1].append(node)
        self.requested = tuple(requested)
        self.parts = [part for part in make_parts(groups, requested) if part.nodes]
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}
        self._last: dict[int, list[str]] = {}
        seen: set[str] = set(requested)
        for at in reversed(range(len(self.parts))):
            part = self.parts[at]
            names = {*part.takes, *part.gives}
            self._last[at] = [name for name in names if name not in seen]
            seen |= names

    def run(self, values: Values, compute: Compute | None = None) -> Values:
        """Return the requested values.

        Args:
            values: Values that the nodes read, by name.
            compute: Computes the sites; None if there are none.

        Raises:
            UnsupportedModelError: onnxruntime cannot compute a node.
        """
        available = dict(values)
        for at, part in enumerate(self.parts):
            if compute is not None and part.nodes[0].domain == SITE:
                available |= _compute_site(part.nodes[0], available, compute)
            elif part.gives:
                feeds = {name: available[name] for name in part.takes}
                if at not in self._sessions:
                    self._sessions[at] = self.runner.session(part, feeds, optimized=self.optimized)
                available |= self.runner.run_session(self._sessions[at], part, feeds)
            for name in self._last[at]:
                available.pop(name, None)
        return {name: available[name] for name in self.requested}


def _compute_site(node: ir.Node, values: Values, compute: Compute) -> Values:
    inputs: list[Tensor | None] = []
    for ir_value in node.inputs:
        if ir_value is None:
            inputs.append(None)
            continue
        constant = ir_value.const_value if is_stored(ir_value) else None
        if constant is None:
            array = copy_from_ort(values[str(ir_value.name)])
        else:
            array = np.array(constant.numpy())
        inputs.append(torch.from_numpy(array))
    result = compute(str(node.name), inputs)
    output = result.contiguous().numpy()
    return {str(node.outputs[0].name): copy_to_ort(output)}


def compute_values(
    nodes: Sequence[ir.Node],
    requested: Sequence[str],
    runner: PartRunner,
    values: Values,
) -> Values:
    """Return values that nodes of a graph, none of them a site, compute from others."""
    return SitedRunner(runner, select_nodes(nodes, requested), requested, optimized=False).run(
        values
    )


def select_nodes(nodes: Sequence[ir.Node], requested: Collection[str]) -> list[ir.Node]:
    """Return the nodes that wanted values need, in order."""
    needed = set(requested)
    selected = []
    for node in reversed(nodes):
        if any(str(value.name) in needed for value in node.outputs):
            selected.append(node)
            needed |= {str(value.name) for value in find_reads(node)}
    return selected[::-1]
