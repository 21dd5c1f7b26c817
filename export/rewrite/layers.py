"""Writes layers on the map: linear layers, norms and reductions of channels."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch
from torch import Tensor

from ..search.movement import read_attribute, read_integer, read_numbers
from ..search.places import find_agreed, unshare
from ..search.products import read_product
from .map_form import MapForm, MapWriter
from .site_modules import NotOnMap


def _group_channels(
    writer: MapWriter,
    form: MapForm,
    place: Tensor,
    dims: list[int],
) -> tuple[Tensor, Tensor]:
    """Return the group of each element along the dims, and the channels of each group."""
    rank = place.dim()
    dims = [dim % rank for dim in dims]
    others = [dim for dim in range(rank) if dim not in dims]
    channel = form.channel.expand(place.shape)
    alike = [axis for axis in others if channel.stride(axis) == 0]  # the same channels on all of it
    whole = slice(None)
    first_only = slice(1)
    axes = range(rank)
    small = channel[tuple(first_only if axis in alike else whole for axis in axes)]
    size = math.prod(small.shape[dim] for dim in dims)
    rows = small.permute(*others, *dims).reshape(-1, size)
    inside = writer.places.number(place) >= 0
    inside = inside.expand(channel.shape)
    inside = _all_along(inside, dims)
    for axis in alike:
        inside = inside.any(axis, keepdim=True)
    inside_rows = inside.permute(*others, *dims).reshape(-1)
    unique = rows[inside_rows].unique(dim=0)
    first_channels = unique[:, 0].unique()
    if not len(unique) or len(first_channels) != len(unique):
        raise NotOnMap("channels are combined differently at different positions")
    unique = unique[unique[:, 0].argsort()]
    first = small
    for dim in dims:
        first = first.narrow(dim, 0, 1)
    numbers = unique[:, 0].contiguous()
    group = torch.searchsorted(numbers, first.contiguous())
    group = group.clamp(max=len(unique) - 1)
    return group.expand(channel.shape), unique


def _all_along(inside: Tensor, dims: list[int]) -> Tensor:
    for dim in dims:
        if inside.stride(dim) == 0:
            inside = inside.narrow(dim, 0, 1)
        else:
            inside = inside.all(dim, keepdim=True)
    return inside


def _pick_groups(writer: MapWriter, form: MapForm, channels: Tensor) -> ir.Value:
    """Return the channels of a form in groups, on two axes if there are several groups."""
    count, size = channels.shape
    node = writer.pick(form.node, channels.flatten(), form.count)
    if count > 1:
        return writer.builder.reshape(node, (0, 0, 0, count, size))
    return node


def write_norm(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    """Write an operator that normalizes channels."""
    source = node.inputs[0]
    reads_one = len(writer.data_of(node)) == 1
    if source is None or ir_value is not node.outputs[0] or not reads_one:
        raise NotOnMap(f"{node.op_type} between the map and the tokens")
    form = writer.write_multiplied(source)
    shape = writer.value(source).shape
    axis = read_attribute(node, "axis", -1)
    first = int(axis) % len(shape)  # type: ignore[call-overload]
    dims = [first]
    if node.op_type != "LpNormalization":
        dims = list(range(first, len(shape)))
    group, channels = _group_channels(writer, form, writer.place(source), dims)
    count, size = channels.shape
    output = _pick_groups(writer, form, channels)
    flat: list[ir.Value | None] = []
    constants = writer.constants_of(node)[1:]
    parameters = zip(node.inputs[1:], constants, strict=True)
    for parameter, tensor in parameters:
        if parameter is not None and tensor is not None:
            constant = writer.builder.constant(tensor.flatten(), parameter)
            flat.append(constant)
    output = writer.builder.like(node, [output, *flat], axis=-1)
    if count > 1:
        output = writer.builder.reshape(output, (0, 0, 0, -1))
    lengths = [length if axis in dims else 1 for axis, length in enumerate(shape)]
    inner = torch.arange(size).reshape(lengths)
    channel = unshare(group) * size + inner
    channel = channel.expand(shape)
    return MapForm(output, channel, count * size)


def write_linear(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    """Write a layer that mixes channels as a product with its matrix (in, out)."""
    source, matrix, bias, dim, out_dim = (
        _read_convolution(writer, node) if node.op_type == "Conv" else _read_product(writer, node)
    )
    form = writer.write_multiplied(source)
    group, channels = _group_channels(writer, form, writer.place(source), [dim])
    count = channels.shape[0]
    picked = _pick_groups(writer, form, channels)
    output = writer.builder.op("MatMul", picked, matrix)
    if bias is not None:
        output = writer.builder.op("Add", output, bias)
    if count > 1:
        output = writer.builder.reshape(output, (0, 0, 0, -1))
    out = writer.value(ir_value).shape
    width = out[out_dim]
    lengths = [1] * len(out)
    lengths[out_dim] = width
    numbers = torch.arange(width).reshape(lengths)
    first = unshare(group.narrow(dim, 0, 1))
    if dim != out_dim:
        first = first.movedim(dim, out_dim)
    channel = first * width + numbers
    return MapForm(output, channel.expand(out), count * width)


Layer = tuple[ir.Value, ir.Value, ir.Value | None, int, int]
"""Data, matrix (in, out), bias (out) or None, and the axes of channels before and after it."""


def _read_convolution(writer: MapWriter, node: ir.Node) -> Layer:
    source, weight = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if source is None or weight is None or writer.data_of(node) != [source]:
        raise NotOnMap("a convolution by data between the map and the tokens")
    tensor = writer.builder.sized.constant(weight)
    strides = read_numbers(node, (), "strides", 0) or []
    pads = read_numbers(node, (), "pads", 0) or []
    groups = read_integer(node, "group", 1)
    ones = {*tensor.shape[2:], *strides, groups}
    if ones != {1} or any(pads):
        raise NotOnMap("a convolution over several positions between the map and the tokens")
    matrix = writer.builder.constant(tensor.flatten(1).T, weight)
    return source, matrix, bias, 1, 1


def _read_product(writer: MapWriter, node: ir.Node) -> Layer:
    data = writer.data_of(node)
    factors = [value for value in node.inputs[:2] if value is not None]
    shapes = [writer.value(value).shape for value in factors]
    product = read_product(node, shapes)
    if product is None or len(data) != 1:
        raise NotOnMap("a product of two tensors between the map and the tokens")
    data_first = factors[0] is data[0]
    source, weight = factors if data_first else factors[::-1]
    read = product.left_as
    of_weight = product.right_as
    if not data_first:
        read = product.right_as.transposed
        of_weight = product.left_as.transposed
    tensor = writer.builder.sized.constant(weight)
    stack = of_weight.of(tensor)
    if not bool((stack == stack[:1]).all()):
        raise NotOnMap("a matrix for each group between the map and the tokens")
    columns = read.sizes(writer.value(source).shape)[2]
    rows_of_weight = of_weight.sizes(tensor.shape)[2]
    if len(columns) != 1 or len(rows_of_weight) != 1:
        raise NotOnMap(f"{node.op_type} over several axes between the map and the tokens")
    dim = read.order[-1]
    result = product.out_as if data_first else product.out_as.transposed
    is_matrix = tensor.dim() == 2 and of_weight.order == (0, 1)
    is_plain = is_matrix and product.factor == 1.0
    matrix = weight
    if not is_plain:
        matrix = writer.builder.constant(stack[0] * product.factor, weight)
    bias = None
    if node.op_type == "Gemm" and len(node.inputs) > 2:
        bias = node.inputs[2]
    if bias is not None:
        added = writer.builder.sized.constant(bias)
        if added.dim() > 1 and added.shape[0] > 1:
            raise NotOnMap("more than a bias is added")
        beta = float(read_attribute(node, "beta", 1.0))  # type: ignore[arg-type]
        if beta != 1.0 or added.dim() != 1:
            bias = writer.builder.constant(added.flatten() * beta, bias)
    others = [axis for axis in read.order if axis != dim]
    same_order = result.order[:-1] == tuple(others)
    if not same_order and dim == result.order[-1]:
        raise NotOnMap(f"{node.op_type} in another order between the map and the tokens")
    return source, matrix, bias, dim, result.order[-1]


def write_reduction(writer: MapWriter, node: ir.Node, ir_value: ir.Value) -> MapForm:
    """Write a reduction of channels."""
    source = node.inputs[0]
    if source is None or node.op_type.startswith("Arg"):
        raise NotOnMap(f"{node.op_type} between the map and the tokens")
    if writer.data_of(node) != [source]:
        raise NotOnMap(f"{node.op_type} between the map and the tokens")
    form = writer.write_multiplied(source)
    place = writer.place(source)
    axes = read_numbers(node, writer.constants_of(node), "axes", 1)
    axes = axes or list(range(place.dim()))
    dims = [axis % place.dim() for axis in axes]
    if not bool(find_agreed(place, dims)[1].all()):
        raise NotOnMap(f"{node.op_type} over several positions between the map and the tokens")
    group, channels = _group_channels(writer, form, place, dims)
    count, size = channels.shape
    output = writer.pick(form.node, channels.flatten(), form.count)
    output = writer.builder.reshape(output, (0, 0, 0, count, size))
    if node.attributes.get("axes") is not None:
        sizes = {"axes": [-1], "keepdims": 0}
        output = writer.builder.like(node, [output], **sizes)
    else:
        last = writer.builder.constant(torch.tensor([-1]))
        output = writer.builder.like(node, [output, last], keepdims=0)
    for dim in dims:
        group = group.narrow(dim, 0, 1)
    shape = writer.value(ir_value).shape
    return MapForm(output, group.reshape(shape), count)
