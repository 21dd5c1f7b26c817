"""Reads the lengths of the sides of a map from tensors before its site."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from .site_builder import Side, SiteBuilder
from .site_modules import NotOnMap

if TYPE_CHECKING:
    from .map_form import MapWriter


def find_sides(writer: MapWriter) -> tuple[Side, ...]:
    """Return batch size, rows and columns of the map of a site: numbers, or lengths of a tensor.

    They are those of the nearest tensor before the site; an earlier one may lack padding.

    Raises:
        NotOnMap: No tensor before the site has them.
    """
    builder = writer.builder
    sizes = writer.places.map
    lengths = [size for size in sizes if size > 1]
    before = list(_iterate_before(writer))
    for ir_value in before:
        axes = writer.places.axes_of(ir_value)
        if _have_lengths(writer, ir_value, axes, lengths):
            return _read_sides(builder, ir_value, axes or [], sizes)
    for ir_value in before:
        axes = _find_axes_by_length(writer, ir_value)
        if axes is not None:
            return _read_sides(builder, ir_value, axes, sizes)
    if (sides := _find_patch_sides(writer, before)) is not None:
        return sides
    raise NotOnMap("rows and columns of the map are axes of no tensor before it")


def _have_lengths(
    writer: MapWriter,
    ir_value: ir.Value,
    axes: Sequence[int] | None,
    lengths: Sequence[int],
) -> bool:
    if axes is None:
        return False
    shape = writer.value(ir_value).shape
    return [shape[axis] for axis in axes] == lengths


def _read_sides(
    builder: SiteBuilder,
    ir_value: ir.Value,
    axes: Sequence[int],
    sizes: Sequence[int],
) -> tuple[Side, ...]:
    """Return the lengths of axes of a tensor for the sides of a map that are longer than 1."""
    free = iter([builder.find_lasting_side(ir_value, axis) for axis in axes])
    return tuple(next(free) if size > 1 else 1 for size in sizes)


def _find_patch_sides(writer: MapWriter, before: Sequence[ir.Value]) -> tuple[Side, ...] | None:
    """Return the sides of a map whose places are patches of a tensor before it, or None.

    It is the nearest one with both sides free. The check of the site, at both image sizes,
    shows whether its patches are the places.
    """
    batch, rows, columns = writer.places.map
    builder = writer.builder
    for ir_value in before:
        shape = builder.sized.shape_of(ir_value)
        others = builder.others(ir_value)
        if len(shape) != 4 or shape[0] != batch:
            continue
        if shape[2] % rows or shape[3] % columns:
            continue
        if shape[2] != others[2] and shape[3] != others[3]:
            height = builder.free_side(ir_value, 2)
            width = builder.free_side(ir_value, 3)
            rows_side = builder.divide(height, shape[2] // rows)
            return -1, rows_side, builder.divide(width, shape[3] // columns)
    return None


def _iterate_before(writer: MapWriter) -> Iterator[ir.Value]:
    """Yield the values before the attention that depend on pixels, the nearest first."""
    seen: set[ir.Value] = set()
    level = [writer.core.q, writer.core.k, writer.core.v]
    while level:
        following: list[ir.Value] = []
        for ir_value in level:
            if ir_value not in seen:
                seen.add(ir_value)
                yield ir_value
                node = ir_value.producer()
                following += [] if node is None else writer.data_of(node)
        level = following


def _find_axes_by_length(writer: MapWriter, ir_value: ir.Value) -> list[int] | None:
    """Return the axes of a tensor that are as long as the sides of the map, and as free.

    Each of its positions may be made of several ones of the image, such as patches that became
    channels. The comparison at another size shows whether they are the sides.
    """
    value = writer.places.run.values.get(ir_value)
    if value is None or value.place is None:
        return None
    lengths = [size for size in writer.places.map if size > 1]
    others = writer.builder.others(ir_value)
    lengths_by_axis = enumerate(value.shape)
    free = [axis for axis, size in lengths_by_axis if size != others[axis]]
    for axes in itertools.combinations(free, len(lengths)):
        if [value.shape[axis] for axis in axes] == lengths:
            return list(axes)
    return None
