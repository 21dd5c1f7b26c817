"""The inputs that a network is traced with, and small ones that it is run with."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from ...core.ports.examples import own_sizes, trace_size
from ...core.ports.port import AXES, SIDES, Port, Shape, image_size, join_sides
from ...models.facts import Facts
from ...models.torch_internals import tree_leaves, tree_map

_CELLS = (11, 13)
"""Rows and columns, in cells of the network, of the image that is used for a trace."""

_USUAL_SIDE = 64
"""Of the shape in advice, in pixels; a multiple of more is taken where it has to be."""

_LEAST_UNIT = 8
_FEWEST_STEPS = 4


def examples_of(facts: Facts) -> tuple[Tensor, ...]:
    """Return zeros of each port's type to trace with, such that all free axes stay free.

    Sides, in pixels, are no sizes that the network pads to, or that its code compares with.

    Swin transformers check whether a map has the size of the training, usually 64x64. A trace with
    this size would fix the sides of the graph.
    """
    sides = [cells * facts.cell - 1 for cells in _CELLS]
    size = facts.sides or image_size(*sides)
    lengths = trace_size(facts.inputs, size)
    arrays = [np.zeros(port.shape(lengths), port.dtype) for port in facts.inputs]
    return tuple(map(torch.from_numpy, arrays))


def describe_fixed_shape(inputs: Sequence[Port]) -> str:
    """Return a shape of the first input that it supports, as the option `static` takes it."""
    first = inputs[0]
    side = -(-_USUAL_SIDE // first.multiple) * first.multiple
    usual = {"batch": 1, "channels": 3, **image_size(side, side)}
    lengths = {**usual, **first.lengths}
    return join_sides(lengths.get(axis, _FEWEST_STEPS) for axis in first.axes)


def dynamic_shapes(ports: Sequence[Port], minimum: int) -> tuple[dict[int, Any], ...] | None:
    """Return the free axes of each input by number, or None if there are none.

    Axes of the same name are the same `Dim`.

    Args:
        ports: Ports of the inputs.
        minimum: Smallest side, in pixels.
    """
    axes: dict[str, Any] = {}
    shapes = []
    for port in ports:
        free = port.free_axes()
        for place, name in free.items():
            axis = port.axes[place]
            smallest = minimum if axis in SIDES else 1
            largest = AXES[axis].largest
            axes.setdefault(name, Dim(name, min=smallest, max=largest))
        shapes.append({place: axes[name] for place, name in free.items()})
    return tuple(shapes) if axes else None


def limits_of(free: Any) -> dict[str, tuple[int, int]]:
    """Return the smallest and largest length of each axis of `dynamic_shapes` by name."""
    return {
        dim.__name__: (dim.min, dim.max)
        for dim in tree_leaves(free)
        if isinstance(getattr(dim, "max", None), int)
    }


def limit_axes(free: Any, limits: Mapping[str, tuple[int, int]]) -> Any:
    """Return the axes of `dynamic_shapes` with other limits; axes of a name stay the same."""
    axes = {}
    for name, (low, high) in limits.items():
        axes[name] = Dim(name, min=low, max=high)

    def limit(dim: Any) -> Any:
        return axes.get(getattr(dim, "__name__", ""), dim)

    return tree_map(limit, free)


def by_argument(
    module: nn.Module, free: tuple[dict[int, Any], ...] | None
) -> tuple[Any, ...] | None:
    """Return the free axes of each input in the structure of a module's arguments."""
    if free is None:
        return None
    parameters = inspect.signature(module.forward).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    if Parameter.VAR_POSITIONAL not in kinds:
        return free
    named = kinds.index(Parameter.VAR_POSITIONAL)
    return (*free[:named], free[named:])


def shapes_of(
    facts: Facts,
    units: tuple[int, int],
    batch: int,
    *,
    less: int = 0,
) -> dict[str, Shape]:
    """Return the shapes of inputs whose images have a number of units per side.

    Args:
        facts: Facts of the network.
        units: Rows and columns in units, the smallest that the network takes, and at least 8.
        batch: Number of images, if that is free.
        less: Pixels by which each side is smaller.
    """
    unit = unit_of(facts)
    smallest = (facts.size_minimum + less) / (unit * min(units))
    unit *= math.ceil(smallest)
    first = facts.inputs[0].lengths
    fixed = {axis: length for axis, length in first.items() if axis in SIDES}
    height, width = (unit * count - less for count in units)
    size = image_size(height, width)
    size |= fixed
    if "batch" not in facts.inputs[0].lengths:
        size["batch"] = batch
    size["steps"] = _FEWEST_STEPS + batch  # another number where the number of images is another
    lengths = own_sizes(facts.inputs, size)
    return {port.name: tuple(port.shape(lengths)) for port in facts.inputs}


def unit_of(facts: Facts) -> int:
    """Return the side of a unit of small images, in pixels."""
    return max(facts.size_multiple, _LEAST_UNIT)


def images_of(facts: Facts, units: tuple[int, int], less: int = 0) -> list[Tensor]:
    """Return noise for each input, as `shapes_of` says."""
    random = torch.Generator().manual_seed(0)
    shapes = shapes_of(facts, units, 1, less=less)
    images = []
    for port in facts.inputs:
        image = torch.rand(shapes[port.name], generator=random)
        images.append(image.to(getattr(torch, port.dtype)))
    return images
