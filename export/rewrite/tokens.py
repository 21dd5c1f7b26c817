"""Replaces found attention by sites of token lists."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from ...models.geometry import TokenGeometry
from ..search.agreement import Agreement
from ..search.layout import Layout
from ..search.places import is_zero
from ..search.provenance import Provenance
from ..search.values import Attention, Matrices, as_number, token_places
from .channels import write_form
from .map_form import MapWriter
from .map_places import Places
from .site_builder import Side, SiteBuilder
from .site_modules import FoundFreeTokens, FoundTokens, NotOnMap, make_token_geometry


def put_tokens(
    builder: SiteBuilder,
    places: Places,
    core: Attention,
    layout: Layout,
    agreed: Agreement,
    path: str,
) -> tuple[FoundTokens, ir.Value]:
    """Write an attention as a site of tokens.

    Args:
        builder: Collects the nodes.
        places: The positions of the graph's tensors on the map of its queries.
        core: The attention.
        layout: The layout of its tokens.
        agreed: The comparison with another image size.
        path: Path of the site.

    Returns:
        The module of the site, and the new tensor that has the value of the attention's result.

    Raises:
        NotOnMap: The attention is not one of token lists; no node was added.
    """
    with builder.tentative():
        tokens = _Tokens(builder, core, layout)
        bias = None
        if core.mask is not None:
            bias = _read_mask(builder, core)
        elif core.by_data or core.by_size or not is_zero(as_number(core.beta)):
            addends = _replay_addends(builder, places.run, core)
            bias = tokens.biases(addends, _weights(core))
        stacked = tokens.stack(core.q, core.q_as)
        q = tokens.scale(stacked)
        k = tokens.stack(core.k, core.k_as)
        v = tokens.stack(core.v, core.v_as)
        if agreed.same_tokens:
            site = FoundTokens(make_token_geometry(layout))
            output = builder.site(path, [q, k, v, bias])
            return site, tokens.restore_axes(_without_keys(builder, core, output, bias))
        mapped = bool(layout.window) and layout.window == layout.map[1:]
        is_global = mapped and agreed.alike and not layout.columns_first
        sides = _sides(builder, places, core) if is_global else None
        geometry = _free_geometry(core, layout, mapped=sides is not None, biased=bias is not None)
        output = builder.site(path, [q, k, v, sides, bias])
        out = tokens.restore_axes(_without_keys(builder, core, output, bias))
    return FoundFreeTokens(geometry), out


def _sides(builder: SiteBuilder, places: Places, core: Attention) -> ir.Value | None:
    """Return a tensor with as many rows and columns as a map; None if no tensor tells them."""
    try:
        with builder.tentative():
            sides = MapWriter(builder, places, core, write_form).sides[1:]
            return _make_zeros(builder, core, builder.list_sides(sides))
    except NotOnMap:
        return None


def _free_geometry(
    core: Attention,
    layout: Layout,
    *,
    mapped: bool,
    biased: bool,
) -> TokenGeometry:
    """Return the geometry of tokens of any number, with or without the map of the queries."""
    queries = token_places(core.q_place)[0]
    keys = token_places(core.k_place)[0]
    keys_elsewhere = not torch.equal(queries, keys)
    first = 0
    if mapped:
        first = layout.before[0]
    scale = 1.0
    if isinstance(layout.scale, float):
        scale = layout.scale
    before = first, 0 if keys_elsewhere else first
    return TokenGeometry((), (), scale, before=before, separate=keys_elsewhere, biased=biased)


def _weights(core: Attention) -> Matrices:
    if core.w_as is None:
        raise NotOnMap("its weights are not read")
    return core.w_as


class _Tokens:
    """Writes stacks of matrices as (B, h, N, d): with their leading axes, or as (g, 1, N, d)."""

    def __init__(
        self,
        builder: SiteBuilder,
        core: Attention,
        layout: Layout,
    ) -> None:
        self.builder = builder
        self.core = core
        self.layout = layout
        readings = [core.q_as, core.k_as, core.v_as, core.out_as]
        readings += [core.w_as] if core.w_as is not None else []
        one_matrix = all(read.leading == 2 and len(read.order) == 4 for read in readings)
        one_axis = all(read.rows == 1 for read in readings)
        self.direct = core.groups == core.v_groups and one_matrix and one_axis
        for ir_value, read, groups in (
            (core.q, core.q_as, core.groups),
            (core.k, core.k_as, core.groups),
            (core.v, core.v_as, core.v_groups),
        ):
            if read.sizes(builder.lengths(ir_value))[0] != groups:
                raise NotOnMap("several heads share their keys or values")

    def stack(self, ir_value: ir.Value, read: Matrices) -> ir.Value:
        """Return a tensor as (B, h, N, d)."""
        builder = self.builder
        if read.heads:
            held_split = builder.reshape(ir_value, (0, 0, read.heads, -1))
            return builder.transpose(held_split, read.order)
        moved = builder.transpose(ir_value, read.order)
        if self.direct:
            return moved
        rows, columns = self._sizes(ir_value, read)
        return builder.reshape(moved, (-1, 1, rows, columns))

    def biases(self, ir_value: ir.Value, read: Matrices) -> ir.Value:
        """Return what is added to the scores, in the axes of the softmax, as (B, h, N, Nk).

        The weights may get other leading axes between the softmax and the second product.
        """
        shape = self.builder.lengths(ir_value)
        pairs = (self.layout.tokens, self.layout.keys)
        if len(shape) == len(read.order):
            return self.stack(ir_value, read)
        others = self.builder.others(ir_value)
        if shape[-2:] != pairs or others[-2:] != pairs:
            raise NotOnMap("what is added to its scores has other axes than these")
        return self.builder.reshape(ir_value, (-1, 1, *pairs))

    def _sizes(self, ir_value: ir.Value, read: Matrices) -> tuple[Side, Side]:
        if str(ir_value.name) in self.builder.sized.shapes:
            rows = self._rows(ir_value, read)
            _, _, columns = read.sizes(self.builder.lengths(ir_value))
            width = math.prod(columns)
            if len(rows) > 1:
                return math.prod(rows), width
            return rows[0], width
        return self.layout.tokens, self.layout.keys  # of biases

    def _rows(self, ir_value: ir.Value, read: Matrices) -> list[Any]:
        """Return the lengths of the axes of tokens; one that is free is alone."""
        _, rows, _ = read.sizes(self.builder.lengths(ir_value))
        if rows == read.sizes(self.builder.others(ir_value))[1]:
            return list(rows)
        if len(rows) > 1:
            raise NotOnMap("several axes of its tokens are free")
        return [self.builder.free_side(ir_value, read.order[read.leading])]

    def scale(self, q: ir.Value) -> ir.Value:
        """Return queries times the factor of their head, if factors differ between heads."""
        alpha = self.core.alpha
        scale = self.layout.scale
        if not isinstance(alpha, Tensor) or isinstance(scale, float):
            if isinstance(alpha, Tensor) and scale != float(alpha.flatten()[0]):
                raise NotOnMap("its scores have a factor that differs between tokens")
            return q
        factors = alpha[:, 0, 0].float()
        if self.direct:
            each = factors.reshape(self.core.groups)
            if bool((each == each[:1]).all()):
                one = each[0].reshape(-1, 1, 1)
                return self._times(q, one)
        if self.builder.free:
            raise NotOnMap("factors of heads in another order than the heads")
        if self.direct:
            by_group = factors.reshape(*self.core.groups, 1, 1)
            return self._times(q, by_group)
        return self._times(q, factors.reshape(-1, 1, 1, 1))

    def _times(self, q: ir.Value, factor: Tensor) -> ir.Value:
        constant = self.builder.constant(factor, self.core.q)
        return self.builder.op("Mul", q, constant)

    def restore_axes(self, out: ir.Value) -> ir.Value:
        """Return the result (B, h, N, e) in the axes of the attention's own result."""
        builder = self.builder
        read = self.core.out_as
        axes = range(len(read.order))
        inverse = [read.order.index(axis) for axis in axes]
        if read.heads:
            moved = builder.transpose(out, inverse)
            return builder.reshape(moved, (0, 0, -1))
        if not self.direct:
            shape = builder.lengths(self.core.out)
            first, rows, columns = read.sizes(shape)
            others = builder.others(self.core.out)
            if rows != read.sizes(others)[1]:
                rows = tuple(self._rows(self.core.q, self.core.q_as))
            leading = self._find_leading(first)
            out = builder.reshape(out, (*leading, *rows, *columns))
        return builder.transpose(out, inverse)

    def _find_leading(self, first: tuple[int, ...]) -> list[Side]:
        """Return the lengths of the leading axes of the result; at most one is -1."""
        if not self.builder.free:
            return list(first)
        if len(first) == 1:
            return [-1]
        q_shape = self.builder.lengths(self.core.q)
        q_groups = self.core.q_as.sizes(q_shape)[0]
        if q_groups != first:
            raise NotOnMap("its result has other axes than its queries")
        axes = self.core.q_as.order[: len(first)]
        return [self.builder.side(self.core.q, axis) for axis in axes]


def _read_mask(builder: SiteBuilder, core: Attention) -> ir.Value | None:
    """Return the mask of a fused operator as an additive term of the scores."""
    mask = core.mask
    if mask is None:
        return None
    if builder.sized.type_of(mask) != ir.DataType.BOOL:
        return mask
    zero = builder.constant(torch.tensor(0.0), core.q)
    lowest = builder.constant(torch.tensor(-math.inf), core.q)
    return builder.op("Where", mask, zero, lowest)


def _without_keys(
    builder: SiteBuilder,
    core: Attention,
    out: ir.Value,
    bias: ir.Value | None,
) -> ir.Value:
    """Return the result (B, h, N, e) with what the graph has for queries without a key.

    Their biases (., ., N, Nk) are -inf. A softmax of these gives NaN, where a site gives numbers.
    """
    may_be = core.mask is None and (core.by_data or bool(core.by_size))
    if bias is None or not (core.emptied or may_be):
        return out
    last_axis = torch.tensor([-1])
    highest = builder.op("ReduceMax", bias, last_axis, keepdims=1)
    if not core.emptied:
        return builder.op("Add", out, builder.op("Sub", highest, highest))
    zero = builder.constant(torch.tensor(0.0), core.q)
    lowest = builder.constant(torch.tensor(-math.inf), core.q)
    empty = builder.op("Equal", highest, lowest)
    return builder.op("Where", empty, zero, out)


def _replay_addends(builder: SiteBuilder, run: Provenance, core: Attention) -> ir.Value:
    """Return the input of the softmax if the product of queries and keys is zero.

    Args:
        builder: Collects the nodes.
        run: The search that has run on the graph.
        core: The attention.

    Raises:
        NotOnMap: The terms cannot be separated from the scores.
    """
    product = core.product
    last = _softmax_input(core.softmax)
    if product is None or last is None:
        raise NotOnMap("what is added to its scores cannot be separated from them")
    zeros = _make_product_zeros(builder, core)
    copies: dict[ir.Value, ir.Value] = {product.node.outputs[0]: zeros}
    started = False
    for node in builder.graph:
        if node is core.softmax or last in copies:
            break
        if node is product.node:
            started = True
            continue
        if not started or not any(ir_value in copies for ir_value in node.inputs):
            continue
        value = run.values.get(node.outputs[0])
        if value is not None and value.score is not None and value.score.product is product:
            inputs = [
                None if ir_value is None else copies.get(ir_value, ir_value)
                for ir_value in node.inputs
            ]
            copies[node.outputs[0]] = builder.like(node, inputs)
    if last not in copies:
        raise NotOnMap("what is added to its scores cannot be separated from them")
    addend = copies[last]
    shape = builder.lengths(last)
    builder.sized.shapes.setdefault(str(addend.name), shape)
    return addend


def _softmax_input(softmax: ir.Node) -> ir.Value | None:
    """Return the scores that a softmax takes, also one that is written in pieces."""
    ir_value = softmax.inputs[0]
    if softmax.op_type != "Div" or ir_value is None:
        return ir_value
    power = ir_value.producer()
    ir_value = None if power is None else power.inputs[0]
    maker = None if ir_value is None else ir_value.producer()
    if maker is not None and maker.op_type == "Sub":
        subtrahend = maker.inputs[1]
        largest = None if subtrahend is None else subtrahend.producer()
        if largest is not None and largest.op_type == "ReduceMax":
            return maker.inputs[0]
    return ir_value


def _make_product_zeros(builder: SiteBuilder, core: Attention) -> ir.Value:
    """Return zeros in the shape of the product, made of the lengths of its factors."""
    product = core.product
    if product is None:
        raise NotOnMap("its scores are no product")
    shape = builder.lengths(product.node.outputs[0])
    left_order = product.left_as.order
    right_order = product.right_as.order
    sides: dict[int, Side] = {}
    leading = product.out_as.leading
    for at, axis in enumerate(product.out_as.order):
        if shape[axis] == builder.others(product.node.outputs[0])[axis]:
            sides[axis] = shape[axis]
        elif at < leading + product.out_as.rows:
            lag = leading - product.left_as.leading
            sides[axis] = builder.side(product.left, left_order[at - lag])
        else:
            back = at - len(product.out_as.order)
            sides[axis] = builder.side(product.right, right_order[back])
    listed = [sides[axis] for axis in range(len(shape))]
    return _make_zeros(builder, core, builder.list_sides(listed))


def _make_zeros(builder: SiteBuilder, core: Attention, sizes: ir.Value) -> ir.Value:
    """Return zeros of these sizes, of the type of the queries."""
    dtype = ir.DataType(builder.sized.type_of(core.q))
    array = np.zeros(1, dtype.numpy())
    zero = ir.tensor(array, dtype=dtype)
    return builder.op("ConstantOfShape", sizes, value=zero)
