"""Rewrites operators on channels for the map: linear layers, norms, reductions, element-wise."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ..rewrite.site_modules import NotOnMap
from ..search.places import agreed
from .map_form import MapForm, MapWriter
from .map_padding import filling, padding_of
from .movement import MOVES, move, node_name, unfolded
from .values import Value

aten = torch.ops.aten
_REDUCES = ("sum", "mean", "amax", "amin", "linalg_vector_norm", "var", "norm")


def written(writer: MapWriter, node: fx.Node) -> MapForm:
    """Return the form of a node, from its own tensor or from its inputs.

    Its own tensor is used if it has the map's layout.

    Raises:
        NotOnMap: The tensor cannot be written as a map.
    """
    form = writer.forms.get(node)
    if form is None and node in writer.near:
        form = writer.forms[node] = writer.near.pop(node)(writer)
    if form is None:
        axes = writer.places.axes_of(node)
        if axes is None or _moves_a_map(writer, node):
            form = rewritten(writer, node)
        else:
            form = writer.plain(node, axes)
        writer.forms[node] = form
    return form


def _moves_a_map(writer: MapWriter, node: fx.Node) -> bool:
    """Return whether a node only moves elements of a tensor that has the map's layout.

    There may be other movements between the two, and a padding of the map with zeros.
    """
    moving = node.args[0] if node.target is operator.getitem else node
    if not isinstance(moving, fx.Node):
        return False
    padding = padding_of(writer, moving)
    if padding is None and node_name(moving) not in MOVES - {"cat", "stack"}:
        return False
    sources = _data_of(writer, moving)
    at = padding.before if padding else writer
    return len(sources) == 1 and (
        at.places.axes_of(sources[0]) is not None or _moves_a_map(at, sources[0])
    )


def _padded(writer: MapWriter, node: fx.Node) -> MapForm:
    padding = padding_of(writer, node)
    if padding is None:
        return _moved(writer, node)  # the border of the map is handled in the site
    source: Any = node.args[0]
    return padding.applied(writer, written(padding.before, source))


def multiplied(writer: MapWriter, node: fx.Node) -> MapForm:
    """Return the form of a node with its factor multiplied into the map.

    Raises:
        NotOnMap: The tensor cannot be written as a map.
    """
    form = written(writer, node)
    if form.factor == 1.0:
        return form
    product = writer.call(torch.mul, form.node, form.factor)
    writer.forms[node] = MapForm(product, form.channel, form.count)
    return writer.forms[node]


def rewritten(writer: MapWriter, node: fx.Node) -> MapForm:
    """Return the form of a node, written from the forms of its inputs.

    Raises:
        NotOnMap: The node is no operator on channels.
    """
    if node.op != "call_function":
        raise NotOnMap(f"{node.name}: the map begins before the input of the network")
    if node.target is operator.getitem:
        return _item(writer, node)
    name = node_name(node)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(writer, node)
    if name in MOVES:
        return _moved(writer, node)
    tags = getattr(node.target, "tags", ())
    if torch.Tag.pointwise in tags or name in ("_to_copy", "dropout"):
        return _pointwise(writer, node)
    raise NotOnMap(f"{name or node.name} between the map and the tokens")


def _data_of(writer: MapWriter, node: fx.Node) -> list[fx.Node]:
    """Return the arguments of a node that depend on the input."""
    nodes = []
    for source in node.all_input_nodes:
        value = writer.value(source)
        if isinstance(value, Value) and value.place is not None:
            nodes.append(source)
    return nodes


def _moved(writer: MapWriter, node: fx.Node, pick: int | None = None) -> MapForm:
    source = _data_of(writer, node)
    name = node_name(node)
    if name in ("cat", "stack") or len(source) != 1:
        return _joined(writer, node, name)
    form = written(writer, source[0])

    def replaced(other: fx.Node) -> Any:
        if other is source[0]:
            return form.channel.contiguous()
        value = writer.value(other)
        return value.data if isinstance(value, Value) else value

    args: Any = fx.node.map_arg(node.args, replaced)
    if name == "im2col":
        channel = unfolded(args[0], args, padded=lambda t, amounts: F.pad(t, amounts))
    elif name in ("constant_pad_nd", "pad"):
        if filling(node)[0] != "constant":
            raise NotOnMap("a mirrored border between the map and the tokens")
        channel = F.pad(args[0], args[1])
    else:
        moved = move(node.target, args, fx.node.map_arg(dict(node.kwargs), replaced))
        channel = moved[0 if pick is None else pick]
    return replace(form, channel=channel)


def _joined(writer: MapWriter, node: fx.Node, name: str) -> MapForm:
    parts: Any = node.args[0]
    data = _data_of(writer, node)
    if name not in ("cat", "stack") or not all(part in data for part in parts):
        raise NotOnMap(f"{name} of several tensors")
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    join = torch.cat if name == "cat" else torch.stack
    forms = [multiplied(writer, part) for part in parts]
    if all(form.node is forms[0].node for form in forms):  # parts of one tensor: a roll, a flip
        return MapForm(forms[0].node, join([form.channel for form in forms], dim), forms[0].count)
    forms = [
        writer.compact(form, writer.place(part)) for form, part in zip(forms, parts, strict=True)
    ]
    channels, start = [], 0
    for form in forms:
        channels.append(form.channel + start)
        start += form.count
    joined = writer.call(torch.cat, [form.node for form in forms], -1)
    return MapForm(joined, join(channels, dim), start)


def _item(writer: MapWriter, node: fx.Node) -> MapForm:
    source: Any = node.args[0]
    index: Any = node.args[1]
    name = node_name(source)
    if index == 0 and (source in writer.forms or source in writer.near):
        return written(writer, source)
    if name in MOVES:
        return _moved(writer, source, index)
    if name == "native_layer_norm" and index == 0:
        x, shape, weight, bias, eps = source.args
        return _layer_norm(writer, x, shape, weight, bias, eps)
    raise NotOnMap(f"{name} between the map and the tokens")


def _layer_norm(
    writer: MapWriter, x: fx.Node, shape: Any, weight: Any, bias: Any, eps: float
) -> MapForm:
    form = multiplied(writer, x)
    dims = list(range(form.channel.dim() - len(shape), form.channel.dim()))
    group, channels = _grouped(writer, form, writer.place(x), dims)
    count, size = channels.shape
    node = writer.picked(form.node, channels.flatten(), form.count)
    node = writer.call(torch.unflatten, node, -1, (count, size))
    weight, bias = (w if w is None else writer.call(torch.flatten, w) for w in (weight, bias))
    node = writer.call(F.layer_norm, node, (size,), weight, bias, eps)
    inner = torch.arange(size).reshape(tuple(shape)).expand(form.channel.shape)
    return MapForm(writer.call(torch.flatten, node, -2), group * size + inner, count * size)


def _grouped(
    writer: MapWriter, form: MapForm, place: Tensor, dims: list[int]
) -> tuple[Tensor, Tensor]:
    """Return the group of each element along the dims, and the channels of each group."""
    dims = [dim % place.dim() for dim in dims]
    kept = [dim for dim in range(place.dim()) if dim not in dims]
    size = math.prod(form.channel.shape[dim] for dim in dims)
    rows = form.channel.permute(*kept, *dims).reshape(-1, size)
    inside = (writer.places.number(place).permute(*kept, *dims).reshape(rows.shape) >= 0).all(1)
    unique = rows[inside].unique(dim=0)
    if not len(unique) or len(unique[:, 0].unique()) != len(unique):
        raise NotOnMap("channels are combined differently at different positions")
    unique = unique[unique[:, 0].argsort()]
    first = form.channel
    for dim in dims:
        first = first.narrow(dim, 0, 1)
    group = torch.searchsorted(unique[:, 0].contiguous(), first.contiguous())
    return group.clamp(max=len(unique) - 1).expand(form.channel.shape), unique


def _linear(writer: MapWriter, node: fx.Node) -> MapForm:
    """Write a layer that mixes channels as F.linear with the weight of the layer."""
    name = node_name(node)
    args: Any = list(node.args)
    added = args.pop(0) if name == "addmm" else None
    if name == "linear":
        x, weight, added = args[0], args[1], args[2] if len(args) > 2 else None
        dim = writer.tensor(x).data.dim() - 1
    elif name in ("conv2d", "convolution", "conv1d"):
        x, weight, added, dim = _one_by_one(writer, name, args)
    else:
        x, weight, dim = _factor(writer, name, args)
    if added is not None and writer.tensor(added).data.dim() > 1:
        raise NotOnMap("more than a bias is added")
    form = multiplied(writer, x)
    group, channels = _grouped(writer, form, writer.place(x), [dim])
    count = channels.shape[0]
    y = writer.picked(form.node, channels.flatten(), form.count)
    if count > 1:
        y = writer.call(torch.unflatten, y, -1, tuple(channels.shape))
    y = writer.call(aten.linear.default, y, weight, added)
    if count > 1:
        y = writer.call(torch.flatten, y, -2)
    out = writer.tensor(node).data
    width = out.shape[dim]
    shape = [width if axis == dim else 1 for axis in range(out.dim())]
    numbers = torch.arange(width).reshape(shape)
    return MapForm(y, group.narrow(dim, 0, 1) * width + numbers, count * width)


def _one_by_one(writer: MapWriter, name: str, args: Any) -> tuple[Any, fx.Node, Any, int]:
    """Return input, weight (out, in), bias and axis of a pointwise convolution."""
    given = [*args, *_CONVOLUTION[len(args) :]]
    x, weight, bias, stride, padding = given[:5]
    transposed, groups = name == "convolution" and given[6], given[-1]
    sides = writer.tensor(weight).data.shape[2:]
    plain = set(sides) == {1} and set(stride) == {1} and groups == 1 and not transposed
    if not plain or isinstance(padding, str) or any(padding):
        raise NotOnMap("a convolution over several positions between the map and the tokens")
    return x, writer.call(torch.flatten, weight, 1), bias, 1


_CONVOLUTION: tuple[Any, ...] = (None, None, None, [1], [0], [1], 1)
"""Defaults of the arguments of ``conv2d``."""


def _factor(writer: MapWriter, name: str, args: Any) -> tuple[Any, fx.Node, int]:
    """Return data, weight (out, in) and axis of a product with a constant."""
    left_is_data = writer.tensor(args[1]).place is None
    x, factor = (args[0], args[1]) if left_is_data else (args[1], args[0])
    constant, rank = writer.tensor(factor).data, writer.tensor(x).data.dim()
    if writer.tensor(factor).place is not None:
        raise NotOnMap("a product of two tensors between the map and the tokens")
    if name == "bmm":
        if not bool((constant == constant[:1]).all()):
            raise NotOnMap("a matrix for each group between the map and the tokens")
        factor = writer.call(torch.select, factor, 0, 0)
    if left_is_data:
        return x, writer.call(torch.transpose, factor, 0, 1), rank - 1
    return x, factor, rank - 2


def _reduced(writer: MapWriter, node: fx.Node) -> MapForm:
    name = node_name(node)
    x: Any = node.args[0]
    position = 2 if name in ("linalg_vector_norm", "norm") else 1
    form, place = multiplied(writer, x), writer.place(x)
    axes: Any = node.args[position]
    dims = [dim % place.dim() for dim in ([axes] if isinstance(axes, int) else axes)]
    if not bool(agreed(place, dims)[1].all()):
        raise NotOnMap(f"{name} over several positions between the map and the tokens")
    group, channels = _grouped(writer, form, place, dims)
    y = writer.picked(form.node, channels.flatten(), form.count)
    y = writer.call(torch.unflatten, y, -1, tuple(channels.shape))
    args = list(node.args)
    args[0], args[position] = y, [-1]
    if len(args) > position + 1:
        args[position + 1] = False
    kwargs = {key: value for key, value in node.kwargs.items() if key != "keepdim"}
    made = writer.graph.graph.call_function(node.target, tuple(args), kwargs)  # type: ignore[arg-type]
    for dim in dims:
        group = group.narrow(dim, 0, 1)
    return MapForm(made, group.reshape(writer.tensor(node).data.shape), len(channels))


def _pointwise(writer: MapWriter, node: fx.Node) -> MapForm:
    place = writer.place(node)
    data = sorted(_data_of(writer, node), key=lambda n: -writer.tensor(n).data.numel())
    factor = _factor_of(writer, node, data[0])
    if factor is not None:
        form = written(writer, data[0])
        channel = form.channel.expand(place.shape)
        return replace(form, channel=channel, factor=form.factor * factor)
    first = multiplied(writer, data[0])
    base = MapForm(first.node, first.channel.expand(place.shape), first.count)
    base = writer.compact(base, place)

    def replaced(other: fx.Node) -> Any:
        if other is data[0]:
            return base.node
        value = writer.value(other)
        if not isinstance(value, Value):
            return other
        if value.place is None:
            if value.data.numel() == 1:
                return other
            wanted = value.data.expand(place.shape)
            return writer.constant(writer.single(place, base.channel, wanted, base.count))
        if bool((value.place.expand(place.shape) != place).any()):
            raise NotOnMap(
                "tensors of different positions are combined between the map and the tokens"
            )
        form = multiplied(writer, other)
        wanted = form.channel.expand(place.shape)
        index = writer.single(place, base.channel, wanted, base.count)
        return writer.picked(form.node, index, form.count)

    args = fx.node.map_arg(node.args, replaced)
    kwargs = fx.node.map_arg(dict(node.kwargs), replaced)
    made = writer.graph.graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
    return MapForm(made, base.channel, base.count)


def _factor_of(writer: MapWriter, node: fx.Node, data: fx.Node) -> float | None:
    """Return the constant number that an operator multiplies data by, or None."""
    name = node_name(node)
    if name not in ("mul", "div") or node.args[0] is not data or node.kwargs:
        return None
    other: Any = node.args[1]
    if isinstance(other, fx.Node):
        value = writer.value(other)
        constant = isinstance(value, Value) and value.place is None and value.data.numel() == 1
        if not constant or _is_free(writer, other):
            return None
        other = float(value.data)
    if not isinstance(other, (int, float)) or (name == "div" and other == 0):
        return None
    return 1 / other if name == "div" else float(other)


def _is_free(writer: MapWriter, node: fx.Node) -> bool:
    """Return whether a constant depends on free sizes."""
    return any(not isinstance(writer.value(n), Value) for n in node.all_input_nodes)


_RULES: dict[str, Callable[[MapWriter, fx.Node], MapForm]] = {
    **dict.fromkeys(
        ("mm", "addmm", "bmm", "matmul", "linear", "conv1d", "conv2d", "convolution"), _linear
    ),
    **dict.fromkeys(_REDUCES, _reduced),
    **dict.fromkeys(("constant_pad_nd", "pad"), _padded),
    "im2col": _moved,
}
