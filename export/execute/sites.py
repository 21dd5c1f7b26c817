"""Runs nodes in onnxruntime and, between them, sites in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor

from ...runtime.ort_values import copy_from_ort, copy_to_ort
from .parts import PartRunner, Values, is_held, names_read, parts_between

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
        wanted: Collection[str],
        *,
        optimized: bool,
    ) -> None:
        self.runner, self.optimized = runner, optimized
        groups: list[list[ir.Node]] = [[]]
        for node in nodes:
            if node.domain == SITE:
                groups += [[node], []]
            else:
                groups[-1].append(node)
        self.wanted = tuple(wanted)
        self.parts = [part for part in parts_between(groups, wanted) if part.nodes]
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}
        self._last: dict[int, list[str]] = {}
        seen: set[str] = set(wanted)
        for at in reversed(range(len(self.parts))):
            part = self.parts[at]
            names = {*part.takes, *part.gives}
            self._last[at] = [name for name in names if name not in seen]
            seen |= names

    def run(self, values: Values, compute: Compute | None = None) -> Values:
        """Return the wanted values.

        Args:
            values: Values that the nodes read, by name.
            compute: Computes the sites; None if there are none.

        Raises:
            UnsupportedModelError: onnxruntime cannot compute a node.
        """
        known = dict(values)
        for at, part in enumerate(self.parts):
            if compute is not None and part.nodes[0].domain == SITE:
                known |= _computed(part.nodes[0], known, compute)
            elif part.gives:
                feeds = {name: known[name] for name in part.takes}
                if at not in self._sessions:
                    self._sessions[at] = self.runner.session(part, feeds, optimized=self.optimized)
                known |= self.runner.results(self._sessions[at], part, feeds)
            for name in self._last[at]:
                known.pop(name, None)
        return {name: known[name] for name in self.wanted}


def _computed(node: ir.Node, values: Values, compute: Compute) -> Values:
    given: list[Tensor | None] = []
    for held in node.inputs:
        if held is None:
            given.append(None)
            continue
        constant = held.const_value if is_held(held) else None
        if constant is None:
            array = copy_from_ort(values[str(held.name)])
        else:
            array = np.array(constant.numpy())
        given.append(torch.from_numpy(array))
    made = compute(str(node.name), given).contiguous().numpy()
    return {str(node.outputs[0].name): copy_to_ort(made)}


def computed(
    nodes: Sequence[ir.Node], wanted: Sequence[str], runner: PartRunner, values: Values
) -> Values:
    """Return values that nodes of a graph, none of them a site, compute from others."""
    return SitedRunner(runner, scheduled(nodes, wanted), wanted, optimized=False).run(values)


def scheduled(nodes: Sequence[ir.Node], wanted: Collection[str]) -> list[ir.Node]:
    """Return the nodes that wanted values need, in order."""
    needed, kept = set(wanted), []
    for node in reversed(nodes):
        if any(str(value.name) in needed for value in node.outputs):
            kept.append(node)
            needed |= {str(value.name) for value in names_read(node)}
    return kept[::-1]
