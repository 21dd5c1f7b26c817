"""Places of results: those of an input, or those of a new map."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from .operators import RESIZES, rule_of
from .places import MIXED, broadcasts, find_agreed, make_places
from .values import Step


def make_new_map(out: Shape) -> Tensor:
    """Return the places of a result that no rule knows."""
    if len(out) >= 4:
        return make_places(out)
    return torch.tensor(MIXED).expand(out)


def combine_places(step: Step) -> list[Tensor]:
    """Return the places of results element by element, or new ones.

    They are those of the largest input that has places, if results have its shape.
    """
    values = [value for value in step.inputs if value is not None]
    data = [value.place for value in values if value.place is not None]
    return [_combine(data, out, step.node) for out in step.outs]


def _combine(data: Sequence[Tensor], out: Shape, node: ir.Node) -> Tensor:
    rule = rule_of(node)
    alike = any(tuple(place.shape) == out for place in data)
    resizes = any(part in node.op_type for part in RESIZES)
    if rule is None and (not alike or resizes):
        return make_new_map(out)
    places = [place for place in data if broadcasts(place.shape, out)]
    if not places:
        return make_new_map(out)
    first, *others = sorted(places, key=lambda place: -place.numel())
    place = first.expand(out)
    for other in others:
        better = (place < 0) & (other >= 0)
        if bool(better.any()):
            place = torch.where(better, other, place)
    return place


def convolve_places(step: Step) -> Tensor:
    """Return the places of a convolution or a pooling: those of its input, or new.

    They are those of the input if the map stays the same. A map with mirrored padding gets new
    places: one place would belong to several elements.
    """
    value = step.inputs[0]
    out = step.outs[0]
    strides = step.node.attributes.get("strides")
    strided = strides is not None and any(stride != 1 for stride in strides.as_ints())
    if value is None or value.place is None or strided or step.node.op_type == "ConvTranspose":
        return make_places(out)
    place, exact = find_agreed(value.place, 1)
    input_sides = value.shape
    same_sides = len(out) == len(input_sides) and out[2:] == input_sides[2:]
    same = same_sides and bool(exact.all())
    distinct = len(place.unique()) == place.numel()
    if same and distinct and bool((place >= 0).all()):
        return place.expand(out)
    return make_places(out)
