"""Writes tensors on the map again, from those before: what moves, pads or joins their elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import Tensor

from ..search.movement import read_amounts, read_fill, read_numbers
from ..search.operators import Kind, rule_of
from ..search.places import find_side_axes, share_constant_axes, unshare
from .layers import write_linear, write_norm, write_reduction
from .map_form import MapForm, MapWriter
from .site_modules import NotOnMap


def write_form(writer: MapWriter, ir_value: ir.Value) -> MapForm:
    """Return the form of a tensor, from itself or from the inputs of its node.

    It is used itself if it has the map's layout.

    Raises:
        NotOnMap: The tensor cannot be written as a map.
    """
    axes = writer.places.axes_of(ir_value)
    if axes is None or _moves_a_map(writer, ir_value):
        return rewrite_form(writer, ir_value)
    return writer.read_map(ir_value, axes)


def rewrite_form(writer: MapWriter, ir_value: ir.Value) -> MapForm:
    """Return the form of a tensor, written from the forms of the inputs of its node.

    Raises:
        NotOnMap: The node is no operator on channels.
    """
    node = ir_value.producer()
    if node is None:
        raise NotOnMap(f"{ir_value.name}: the map begins before the input of the network")
    rule = rule_of(node)
    if rule is None or rule.kind not in _RULES:
        raise NotOnMap(f"{node.op_type} between the map and the tokens")
    return _RULES[rule.kind](writer, node, ir_value)


def _moves_a_map(writer: MapWriter, ir_value: ir.Value) -> bool:
    """Return whether a node only moves elements of a tensor that has the map's layout.

    There may be other movements between the two, and a padding of the map with zeros.
    """
    node = ir_value.producer()
    rule = None if node is None else rule_of(node)
    if node is None or rule is None:
        return False
    padding = _find_padding(writer, node, ir_value)
    is_movement = rule.kind is Kind.MOVES and node.op_type != "Concat"
    moves = is_movement and not _changes_type(writer, node)
    if padding is None and not moves:
        return False
    sources = writer.data_of(node)
    at = writer
    if padding:
        at = padding[0]
    if len(sources) != 1:
        return False
    return at.places.axes_of(sources[0]) is not None or _moves_a_map(at, sources[0])


def _changes_type(writer: MapWriter, node: ir.Node) -> bool:
    source = node.inputs[0] if node.inputs else None
    if node.op_type not in ("Cast", "CastLike") or source is None:
        return False
    types = writer.builder.sized.types
    of_source = types[str(source.name)]
    return of_source != types[str(node.outputs[0].name)]


def _write_movement(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    data = writer.data_of(node)
    if node.op_type == "Concat" or len(data) != 1:
        return _write_concat(writer, node, ir_value)
    rule = rule_of(node)
    if rule is None or rule.move is None:
        raise NotOnMap(f"{node.op_type} of several tensors")
    if data[0] is not node.inputs[0]:
        raise NotOnMap(f"{node.op_type} of several tensors")
    form = writer.write(data[0])
    if _changes_type(writer, node):
        raise NotOnMap("a change of the type between the map and the tokens")
    constants = writer.constants_of(node)
    parts: list[Tensor | None] = [form.channel, *constants[1:]]
    outs = [writer.builder.lengths(out) for out in node.outputs]
    channels = rule.move(node, parts, outs)
    channel = channels[node.outputs.index(ir_value)]
    return replace(form, channel=channel)


def _write_concat(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    parts = [part for part in node.inputs if part is not None]
    rule = rule_of(node)
    data = writer.data_of(node)
    if node.op_type != "Concat" or rule is None or rule.move is None:
        raise NotOnMap(f"{node.op_type} of several tensors")
    if not all(part in data for part in parts):
        raise NotOnMap(f"{node.op_type} of several tensors")
    forms = [writer.write_multiplied(part) for part in parts]
    outs = [writer.builder.lengths(ir_value)]
    first = forms[0]
    if all(form.node is first.node for form in forms):  # parts of one tensor: a roll, a flip
        parts_of_map: list[Tensor | None] = [form.channel for form in forms]
        channel = rule.move(node, parts_of_map, outs)[0]
        return MapForm(first.node, share_constant_axes(channel), first.count)
    places = [writer.place(part) for part in parts]
    compacted = zip(forms, places, strict=True)
    forms = [writer.compact(form, place) for form, place in compacted]
    channels = list[Tensor | None]()
    start = 0
    for form in forms:
        shifted = unshare(form.channel) + start
        channels.append(shifted.expand(form.channel.shape))
        start += form.count
    maps = [form.node for form in forms]
    joined = writer.builder.op("Concat", *maps, axis=-1)
    channel = rule.move(node, channels, outs)[0]
    return MapForm(joined, share_constant_axes(channel), start)


def _find_padding(
    writer: MapWriter, node: ir.Node, ir_value: ir.Value
) -> tuple[MapWriter, tuple[int, int]] | None:
    """Return the writer for the map that a node pads with zeros, and its axes of rows and columns.

    None for other nodes. Before the padding, channels are often those of a layer, and need not be
    moved.
    """
    rule = rule_of(node)
    if rule is None or rule.kind is not Kind.PADS:
        return None
    if len(writer.data_of(node)) != 1:
        return None
    source = node.inputs[0]
    if source is None:
        return None
    if read_fill(node, writer.constants_of(node)) != ("constant", 0.0):
        return None
    present = unshare(writer.place(ir_value)).unique()
    if not torch.equal(present, writer.places.codes):
        return None
    axes = find_side_axes(writer.place(source))
    before = None if axes is None else writer.before(source, axes)
    if axes is None or before is None:
        return None
    rank = len(writer.value(source).shape)
    pairs = read_amounts(node, writer.constants_of(node), rank)
    for axis, pair in enumerate(pairs):
        if axis not in axes and any(pair):
            return None
    return (before, axes)


def _write_padding(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    padding = _find_padding(writer, node, ir_value)
    source = node.inputs[0]
    if padding is None or source is None:
        if read_fill(node, writer.constants_of(node))[0] != "constant":
            raise NotOnMap("a mirrored border between the map and the tokens")
        return _write_movement(
            writer, node, ir_value
        )  # the border of the map is handled in the site
    before, axes = padding
    form = before.write(source)
    shape = writer.value(source).shape
    builder = writer.builder
    pairs = read_amounts(node, writer.constants_of(node), len(shape))
    channel = form.channel
    for axis in axes:
        first, last = pairs[axis]
        index = torch.arange(-first, shape[axis] + last)
        index = index.clamp(0, shape[axis] - 1)
        channel = channel.index_select(axis, index)
    amounts = node.inputs[1] if len(node.inputs) > 1 else None
    if builder.free and amounts is not None and not amounts.is_initializer():
        if read_numbers(node, writer.constants_of(node), "axes", 3) is not None:
            raise NotOnMap("a padding of some axes by amounts that depend on the size")
        rank = len(shape)
        zero = torch.zeros(1, dtype=torch.int64)
        picked = [
            builder.op("Gather", amounts, torch.tensor([axis + end]), axis=0)
            for end in (0, rank)
            for axis in axes
        ]
        top, left, bottom, right = picked
        listed = [zero, top, left, zero, zero, bottom, right, zero]
        sizes = builder.op("Concat", *listed, axis=0)
    else:
        rows, columns = (pairs[axis] for axis in axes)
        amounts_listed = [0, rows[0], columns[0], 0, 0, rows[1], columns[1], 0]
        sizes = builder.constant(torch.tensor(amounts_listed))
    padded = builder.op("Pad", form.node, sizes, mode="constant")
    return replace(form, node=padded, channel=channel)


def _write_pointwise(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    place = writer.place(ir_value)

    def find_size(value: ir.Value) -> int:
        return math.prod(writer.value(value).shape)

    data = sorted(writer.data_of(node), key=find_size, reverse=True)
    if not data or ir_value is not node.outputs[0]:
        raise NotOnMap(f"{node.op_type} between the map and the tokens")
    factor = find_factor(writer, node, data[0])
    if factor is not None:
        form = writer.write(data[0])
        channel = form.channel.expand(place.shape)
        return replace(form, channel=channel, factor=form.factor * factor)
    first = writer.write_multiplied(data[0])
    channel = first.channel.expand(place.shape)
    base = MapForm(first.node, channel, first.count)
    base = writer.compact(base, place)

    def replace_operand(other: ir.Value | None) -> ir.Value | None:
        if other is None or other is data[0]:
            if other is None:
                return None
            return base.node
        value = writer.value(other)
        if value.place is None:
            tensor = writer.builder.sized.constant(other)
            if tensor.numel() == 1 and tensor.dim() < 2:
                return other
            spread = tensor.expand(place.shape)
            constants = writer.single(place, base.channel, spread, base.count)
            return writer.builder.constant(constants, other)
        places = value.place.expand(place.shape)
        differing = unshare(places) != unshare(place)
        if bool(differing.any()):
            raise NotOnMap(
                "tensors of different positions are combined between the map and the tokens"
            )
        form = writer.write_multiplied(other)
        spread = form.channel.expand(place.shape)
        index = writer.single(place, base.channel, spread, base.count)
        return writer.pick(form.node, index, form.count)

    operands = [replace_operand(other) for other in node.inputs]
    output = writer.builder.like(node, operands)
    return MapForm(output, base.channel, base.count)


def find_factor(writer: MapWriter, node: ir.Node, data: ir.Value) -> float | None:
    """Return the constant number that an operator multiplies data by, or None."""
    if node.op_type not in ("Mul", "Div"):
        return None
    at = 1
    if node.inputs[0] is data:
        at = 0
    other = node.inputs[1 - at]
    value = None if other is None else writer.places.run.value(other)
    if other is None or value is None or value.follows_input:
        return None
    if node.op_type == "Div" and at:
        return None
    tensor = writer.builder.sized.constant(other)
    if tensor.numel() != 1:
        return None
    if writer.builder.free and _changes(writer, other):
        return None
    factor = float(tensor)
    if node.op_type == "Div":
        if factor == 0:
            return None
        return 1 / factor
    return factor


def _changes(writer: MapWriter, ir_value: ir.Value) -> bool:
    """Return whether a constant depends on free sizes."""
    other = writer.builder.other
    if ir_value.is_initializer() or other is None or not other.is_constant(ir_value):
        return not ir_value.is_initializer()
    constant = writer.builder.sized.constant(ir_value)
    return not torch.equal(other.constant(ir_value), constant)


_RULES: dict[Kind, Callable[[MapWriter, ir.Node, ir.Value], MapForm]] = {
    Kind.MOVES: _write_movement,
    Kind.PADS: _write_padding,
    Kind.POINTWISE: _write_pointwise,
    Kind.NORM: write_norm,
    Kind.REDUCES: write_reduction,
    Kind.PRODUCT: write_linear,
    Kind.CONVOLUTION: write_linear,
}
