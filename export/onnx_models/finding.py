"""Finds the attention of a file and cuts it out of the file's network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ...core.ports.port import picture_size
from ...models.facts import Facts
from ..found.graph import Traced
from ..found.loaded import left_as_trained
from ..found.sites import FoundGraph, find_in_graph
from .network import Cut, OnnxNetwork
from .tracing import NAME, TracedFile, trace

_UNITS = ((2, 3), (3, 5)), ((4, 6), (6, 10))
"""Rows and columns of the two pictures that are looked at, in units; and where windows grow. Free
sides are those that differ between the two."""

_BATCHES = (2, 3)
_LEAST_UNIT = 8


def cut_attention(network: OnnxNetwork, facts: Facts) -> tuple[str, ...]:
    """Put sites in the place of the attention that is found in a file's network, in place.

    Returns:
        What attention stays as it is, and why: one sentence each.

    Raises:
        NodeError: A node of the file cannot be computed.
    """
    if not any(node.operator == "Softmax" for node in network.graph.nodes):
        return ()
    for units in _UNITS:
        pictures = [
            _picture(facts, size, batch) for size, batch in zip(units, _BATCHES, strict=True)
        ]
        free = pictures[0].shape != pictures[1].shape
        first = trace(network, (pictures[0],))
        second = trace(network, (pictures[1],)) if free else None
        found = find_in_graph(
            Traced(
                first.graph,
                (pictures[0],),
                (pictures[1],) if free else None,
                None if second is None else second.graph,
            )
        )
        if not found.changing or not free:
            break
    network.folded = first.folded
    _cut(network, found, first, second or first)
    return tuple(left_as_trained(found))


def _picture(facts: Facts, units: tuple[int, int], batch: int) -> Tensor:
    """Return noise of so many units a side, and so many pictures where that is free."""
    port = facts.inputs[0]
    unit = max(facts.size_multiple, _LEAST_UNIT)
    unit *= -(-facts.size_minimum // (unit * min(units)))
    size = dict(facts.sides or picture_size(unit * units[0], unit * units[1]))
    if "batch" not in port.lengths:
        size["batch"] = batch
    low, high = facts.range
    noise = torch.rand(port.shape(size), generator=torch.Generator().manual_seed(0))
    return low + (high - low) * noise


def _cut(network: OnnxNetwork, found: FoundGraph, first: TracedFile, second: TracedFile) -> None:
    names: Mapping[str, str] = {
        node.name: node.meta[NAME] for node in first.graph.graph.nodes if NAME in node.meta
    }
    for number, region in enumerate(found.regions):
        inputs = tuple(names[name] for name in region.inputs)
        tensors = [first.values[name] for name in inputs]
        others = [second.values[name] for name in inputs]
        cut = Cut(
            inputs,
            names[region.output],
            f"cut_{number}",
            region.paths,
            tuple(tuple(tensor.shape) for tensor in tensors),
            tuple(tensor.dtype for tensor in tensors),
            tuple(
                tuple(a for a in range(one.dim()) if one.shape[a] != other.shape[a])
                for one, other in zip(tensors, others, strict=True)
            ),
        )
        network.cut(cut, region.module)
