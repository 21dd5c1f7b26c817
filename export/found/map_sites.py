"""Replaces found attention by sites of windows or of whole maps."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from ..rewrite.site_modules import NotOnMap, map_site
from ..search.layout import Layout
from .map_form import MapForm, MapWriter, Places, tentative
from .map_operators import multiplied, rewritten, written
from .values import Core


class MapSites:
    """Inserts map sites into a graph, one by one."""

    def __init__(self, graph: fx.GraphModule, places: Places) -> None:
        """Take a graph and the positions of its tensors, for the map of all its sites."""
        self.graph, self.places = graph, places

    def put(
        self, core: Core, layout: Layout, name: str, whole: bool, near: dict[fx.Node, NearSite]
    ) -> tuple[fx.Node, fx.Node, list[fx.Node]]:
        """Write an attention as a site of its map.

        Args:
            core: The attention.
            layout: The layout of its tokens.
            name: Name of the submodule of the site.
            whole: As in `map_site`.
            near: Result of other attention -> how to write it, if queries, keys or values use it.

        Returns:
            The node whose value the site computes, the new node that has that value, and the
            results of other attention that was written with it.

        Raises:
            NotOnMap: The attention is not one of its map; the graph is unchanged.
        """
        goal = self._goal(core)
        writer = MapWriter(self.graph, self.places, core)
        for node, site in near.items():
            writer.near[node] = site.form
        before = set(writer.near)
        with tentative(self.graph.graph, goal):
            form = write_site(writer, core, layout, name, whole=whole)
            writer.forms[core.out] = form
            if goal is not core.out:
                form = rewritten(writer, goal)
            if form.factor != 1.0:
                node = writer.call(torch.mul, form.node, form.factor)
                form = MapForm(node, form.channel, form.count)
            out = writer.placed(goal, form)
        return goal, out, [node for node in before if node not in writer.near]

    def _goal(self, core: Core) -> fx.Node:
        """Return the first node with the map's layout: an attention's result, or one after it."""
        if self.places.axes_of(core.out) is not None:
            return core.out
        behind, started = {core.out}, False
        nodes: list[fx.Node] = list(self.graph.graph.nodes)
        for node in nodes:
            started = started or node is core.out
            if not started or node.op != "call_function":
                continue
            if any(source in behind for source in node.all_input_nodes):
                behind.add(node)
                if self.places.axes_of(node) is not None:
                    return node
        raise NotOnMap("its result is never a map")


class NearSite:
    """An attention whose result another attention on the same map uses."""

    def __init__(self, core: Core, layout: Layout, name: str) -> None:
        """Take an attention that is a site of windows."""
        self.core, self.layout, self.name = core, layout, name

    def form(self, writer: MapWriter) -> MapForm:
        """Write the attention for a site on the same map; return the form of its result."""
        return write_site(writer, self.core, self.layout, self.name, whole=False)


def write_site(writer: MapWriter, core: Core, layout: Layout, name: str, *, whole: bool) -> MapForm:
    """Insert a site into the graph of a writer, and return the form of its result.

    Args:
        writer: Inserts nodes for the map of the site.
        core: The attention.
        layout: The layout of its tokens.
        name: Name of the submodule of the site.
        whole: As in `map_site`.

    Raises:
        NotOnMap: The attention cannot be written as a site.
    """
    if not torch.equal(core.map_codes(), writer.places.codes):
        raise NotOnMap("attention of attention on another map")
    head = torch.empty(layout.groups, dtype=torch.int64)
    head[layout.group] = torch.arange(layout.heads)
    widths = (layout.head_dim, layout.head_dim, layout.value_dim)
    turned = (core.swapped, not core.swapped and not core.fused, core.v_left)
    nodes = (core.q, core.k, core.v)
    places = (core.q_place, core.k_place, core.v_place)
    parts = []
    scale = 1.0
    for node, turn, place, width in zip(nodes, turned, places, widths, strict=True):
        form = multiplied(writer, node) if node is core.v else written(writer, node)
        scale *= form.factor
        channel = form.channel.flatten(0, -3) if core.fused else form.channel
        channel = channel.transpose(-2, -1) if turn else channel
        channel = channel if channel.dim() == 3 else channel[None]
        beyond = (writer.places.number(place) < 0).any(2)
        if bool(beyond.any()) and not bool(core.blank[beyond].all()):
            raise NotOnMap("keys beyond the map are not zero")
        wanted = (head[:, None, None] * width + torch.arange(width)).expand(channel.shape)
        index = writer.single(place, wanted, channel, layout.heads * width)
        parts.append((form, index))
    packed: fx.Node = _packed(writer, parts)
    if isinstance(layout.scale, Tensor):
        factor = torch.ones(layout.heads * sum(widths))
        size = layout.heads * layout.head_dim
        factor[:size] = layout.scale.repeat_interleave(layout.head_dim).float()
        packed = writer.call(torch.mul, packed, writer.constant(factor))
    dtype = writer.tensor(core.q).data.dtype
    writer.graph.add_submodule(name, map_site(layout, scale, dtype, whole=whole))
    out = writer.graph.graph.call_module(name, (packed,))
    channel = head[:, None, None] * layout.value_dim + torch.arange(layout.value_dim)
    channel = channel.expand(layout.groups, layout.tokens, layout.value_dim)
    channel = channel.transpose(1, 2) if core.v_left else channel
    shape = writer.tensor(core.out).data.shape
    return MapForm(out, channel.reshape(shape), layout.heads * layout.value_dim)


def _packed(writer: MapWriter, parts: list[tuple[MapForm, Tensor]]) -> fx.Node:
    """Return one map with the queries, keys and values as its channels."""
    first = parts[0][0]
    if all(form.node is first.node for form, _ in parts):
        return writer.picked(first.node, torch.cat([index for _, index in parts]), first.count)
    maps = [writer.picked(form.node, index, form.count) for form, index in parts]
    return writer.call(torch.cat, maps, -1)
