"""Replaces found attention by sites of windows or of whole maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir
import torch
from torch import Tensor

from ..search.layout import Layout
from ..search.operators import rule_of
from ..search.values import Attention
from .channels import rewrite_form, write_form
from .cosines import find_normalized_tokens
from .map_form import MapForm, MapWriter
from .map_places import Places
from .site_builder import SiteBuilder
from .site_modules import FoundMap, FoundWindows, NotOnMap, make_map_site

Sites = dict[str, "FoundWindows | FoundMap"]

WriteSite = Callable[[MapWriter], MapForm]
"""Adds the node of a site, and returns the form of its result: `write_site` of an attention."""


def put_on_map(
    builder: SiteBuilder,
    places: Places,
    core: Attention,
    write: WriteSite,
    others: Mapping[ir.Value, WriteSite],
) -> tuple[ir.Value, ir.Value, list[ir.Value]]:
    """Write an attention as a site of its map.

    Args:
        builder: Collects the nodes.
        places: The positions of the graph's tensors on the map.
        core: The attention.
        write: Writes it.
        others: Result of other attention -> how to write it, if queries, keys or values use it.

    Returns:
        The tensor that the site computes, the new tensor that has its value, and the results of
        other attention that was written with it.

    Raises:
        NotOnMap: The attention is not one of its map; no node was added.
    """
    targets = _find_targets(builder, places, core)
    with builder.tentative():
        writer = MapWriter(builder, places, core, write_form)
        writer.other_sites.update(others)
        writer.forms[core.out] = write(writer)
        for target in targets:
            if target is not core.out:
                writer.forms[target] = rewrite_form(writer, target)
        form = writer.write_multiplied(targets[-1])
        out = writer.write_back(targets[-1], form)
    return targets[-1], out, [result for result in others if result not in writer.other_sites]


def _find_targets(builder: SiteBuilder, places: Places, core: Attention) -> list[ir.Value]:
    """Return the first tensor with the map's layout, and reshapes of it, each the only use of one.

    It is the result of an attention, or after it.

    Raises:
        NotOnMap: There is none.
    """
    targets = [_find_first_on_map(builder, places, core)]
    while not targets[-1].is_graph_output():
        users = targets[-1].consumers()
        if len(users) != 1:
            break
        rule = rule_of(users[0])
        out = users[0].outputs[0]
        if rule is None or not rule.ordered or rule.change or places.axes_of(out) is None:
            break
        targets.append(out)
    return targets


def _find_first_on_map(builder: SiteBuilder, places: Places, core: Attention) -> ir.Value:
    if places.axes_of(core.out) is not None:
        return core.out
    behind = {core.out}
    started = False
    for node in builder.graph:
        started = started or node is core.out.producer()
        if started and any(ir_value in behind for ir_value in node.inputs):
            behind.update(node.outputs)
            for ir_value in node.outputs:
                if places.axes_of(ir_value) is not None:
                    return ir_value
    raise NotOnMap("its result is never a map")


def write_site(
    writer: MapWriter,
    core: Attention,
    layout: Layout,
    path: str,
    sites: Sites,
    *,
    is_global: bool,
) -> MapForm:
    """Add the node of a site, and return the form of its result.

    Args:
        writer: Adds nodes for the map of the site.
        core: The attention.
        layout: The layout of its tokens.
        path: Path of the site.
        sites: Gets the module of the site at its path.
        is_global: As in `make_map_site`.

    Raises:
        NotOnMap: The attention cannot be written as a site.
    """
    if not torch.equal(core.map_codes(), writer.places.codes):
        raise NotOnMap("attention of attention on another map")
    head = torch.empty(layout.groups, dtype=torch.int64)
    head[layout.group] = torch.arange(layout.heads)
    widths = (layout.head_dim, layout.head_dim, layout.value_dim)
    readings = (
        (core.q, core.q_as, core.groups, core.q_place),
        (core.k, core.k_as, core.groups, core.k_place),
        (core.v, core.v_as, core.v_groups, core.v_place),
    )
    unit = None if is_global or any(layout.margin) else find_normalized_tokens(writer, core)
    for one in unit or ():  # the site divides them
        writer.forms[one.quotient] = writer.write_multiplied(one.source)
    parts = []
    scale = 1.0
    first_channel = head[:, None, None]
    for (ir_value, read, groups, place), width in zip(readings, widths, strict=True):
        form = writer.write_multiplied(ir_value) if ir_value is core.v else writer.write(ir_value)
        scale *= form.factor
        shape = writer.value(ir_value).shape
        channel = read.of(form.channel.expand(shape), groups)
        packed_channel = first_channel * width + torch.arange(width)
        packed_channel = packed_channel.expand(channel.shape)
        index = writer.single(place, packed_channel, channel, layout.heads * width)
        parts.append((form, index))
    packed = _pack(writer, parts)
    if unit is None and isinstance(layout.scale, Tensor):
        factor = torch.ones(layout.heads * sum(widths))
        size = layout.heads * layout.head_dim
        factor[:size] = layout.scale.repeat_interleave(layout.head_dim).float()
        factor_value = writer.builder.constant(factor, core.q)
        packed = writer.builder.op("Mul", packed, factor_value)
    is_half = writer.builder.sized.type_of(core.q) == 10
    dtype = torch.float16 if is_half else torch.float32
    epsilon = None if unit is None else unit[0].epsilon
    sites[path] = make_map_site(layout, scale, dtype, is_global=is_global, epsilon=epsilon)
    out = writer.builder.site(path, [packed])
    channel = first_channel * layout.value_dim + torch.arange(layout.value_dim)
    channel = channel.expand(layout.groups, layout.tokens, layout.value_dim)
    shape = writer.value(core.out).shape
    back = core.out_as.back(channel, shape)
    return MapForm(out, back, layout.heads * layout.value_dim)


def _pack(writer: MapWriter, parts: list[tuple[MapForm, Tensor]]) -> ir.Value:
    """Return one map with the queries, keys and values as its channels."""
    first = parts[0][0]
    if all(form.node is first.node for form, _ in parts):
        index = torch.cat([index for _, index in parts])
        return writer.pick(first.node, index, first.count)
    maps = [writer.pick(form.node, index, form.count) for form, index in parts]
    return writer.builder.op("Concat", *maps, axis=-1)
