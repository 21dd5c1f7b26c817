"""Finds the attention of a file and cuts it out of the file's network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, fx

from ...core.ports.port import image_size
from ...models.facts import Facts
from ..found.graph import Traced
from ..found.loaded import left_as_trained
from ..found.sites import FoundGraph, find_in_graph
from .network import Cut, OnnxNetwork
from .tracing import NAME, TracedFile, trace

_UNITS = ((2, 3), (3, 5)), ((4, 6), (6, 10))
"""Rows and columns of two images, in units; the second pair is for windows that grow with the
image. Free sides are those that differ between the two images."""

_BATCHES = (2, 3)
_LEAST_UNIT = 8
_MIXED = "its inputs and outputs have several types in the file"


def cut_attention(network: OnnxNetwork, facts: Facts) -> tuple[str, ...]:
    """Replace the attention found in a file's network by sites, in place.

    Returns:
        Which attention is not replaced, and why: one sentence each.

    Raises:
        NodeError: A node of the file cannot be computed.
    """
    if not any(node.operator == "Softmax" for node in network.graph.nodes):
        return ()
    for units in _UNITS:
        images = [_image(facts, size, batch) for size, batch in zip(units, _BATCHES, strict=True)]
        free = images[0].shape != images[1].shape
        first = trace(network, (images[0],))
        second = trace(network, (images[1],)) if free else None
        found = find_in_graph(
            Traced(
                first.graph,
                (images[0],),
                (images[1],) if free else None,
                None if second is None else second.graph,
            )
        )
        if not found.changing or not free:
            break
    network.folded = first.folded
    mixed = _cut(network, found, first, second or first, images[0])
    attentions = tuple(
        replace(attention, level="as trained", reason=_MIXED)
        if attention.path in mixed
        else attention
        for attention in found.attentions
    )
    return tuple(left_as_trained(replace(found, attentions=attentions)))


def _image(facts: Facts, units: tuple[int, int], batch: int) -> Tensor:
    """Return noise with a number of units per side, and of images if the batch is free."""
    port = facts.inputs[0]
    unit = max(facts.size_multiple, _LEAST_UNIT)
    unit *= -(-facts.size_minimum // (unit * min(units)))
    size = dict(facts.sides or image_size(unit * units[0], unit * units[1]))
    if "batch" not in port.lengths:
        size["batch"] = batch
    low, high = facts.range
    noise = torch.rand(port.shape(size), generator=torch.Generator().manual_seed(0))
    return low + (high - low) * noise


def _cut(
    network: OnnxNetwork,
    found: FoundGraph,
    first: TracedFile,
    second: TracedFile,
    image: Tensor,
) -> set[str]:
    """Replace regions of a network, in place; return the paths of those of mixed types."""
    names: Mapping[str, str] = {
        node.name: node.meta[NAME] for node in first.graph.graph.nodes if NAME in node.meta
    }
    borders = {names[name] for region in found.regions for name in (*region.inputs, region.output)}
    wanted = borders.union(*(first.others.get(name, ()) for name in borders))
    with torch.inference_mode():
        types = {name: value.dtype for name, value in network.values(wanted, image).items()}
    mixed: set[str] = set()
    for number, region in enumerate(found.regions):
        output = names[region.output]
        inputs = tuple(
            _of_same_type(names[name], first, types, types[output]) for name in region.inputs
        )
        floating = {types[name] for name in (*inputs, output) if types[name].is_floating_point}
        if len(floating) > 1:
            mixed.update(region.paths)
            continue
        tensors = [first.values[name] for name in inputs]
        others = [second.values[name] for name in inputs]
        cut = Cut(
            inputs,
            output,
            f"cut_{number}",
            region.paths,
            tuple(tuple(tensor.shape) for tensor in tensors),
            tuple(types[name] for name in inputs),
            tuple(
                tuple(a for a in range(one.dim()) if one.shape[a] != other.shape[a])
                for one, other in zip(tensors, others, strict=True)
            ),
        )
        network.cut(cut, _of_type(region.network(), types[output]))
    return mixed


def _of_same_type(
    name: str, first: TracedFile, types: Mapping[str, torch.dtype], dtype: torch.dtype
) -> str:
    """Return the name of the first equal value of a type; otherwise the name itself."""
    equal = (name, *first.others.get(name, ()))
    return next((other for other in equal if types[other] is dtype), name)


def _of_type(module: fx.GraphModule, dtype: torch.dtype) -> fx.GraphModule:
    """Convert a region that was traced in a wide type to the file's type, in place."""
    for node in module.graph.nodes:
        if node.kwargs.get("dtype") is torch.float32:
            node.kwargs = {**node.kwargs, "dtype": dtype}
    module.recompile()
    return module.to(dtype)
