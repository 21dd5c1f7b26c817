"""Writes a map that is padded with zeros from the map before the padding.

There, its channels are often those of a layer, and need not be moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from ..search.places import side_axes, unshared
from .map_form import FREE, MapForm, MapWriter
from .movement import node_name

_PADS = {"pad": ("mode", "value"), "constant_pad_nd": ("value",)}
"""Operators that pad, with the names of their arguments after (tensor, amounts)."""


@dataclass(frozen=True)
class Padding:
    """A padding of the rows and columns of a map.

    Attributes:
        before: The writer for the map without padding.
        axes: Axes of rows and columns in the tensor that is padded.
        rows: What is added before the first row and after the last: numbers or nodes.
        columns: What is added before the first column and after the last.
    """

    before: MapWriter
    axes: tuple[int, int]
    rows: list[Any]
    columns: list[Any]

    def applied(self, writer: MapWriter, form: MapForm) -> MapForm:
        """Return the form of the padded tensor, from the form of the tensor before."""
        channel = form.channel
        for axis, pair in zip(self.axes, (self.rows, self.columns), strict=True):
            first, last = (writer.value(one) if isinstance(one, fx.Node) else one for one in pair)
            size = channel.shape[axis]
            index = torch.arange(-first, size + last).clamp(0, size - 1)
            channel = channel.index_select(axis, index)
        amounts = [0, 0, *self.columns, *self.rows]
        padded = writer.call(torch.ops.aten.constant_pad_nd.default, form.node, amounts)
        return replace(form, node=padded, channel=channel)


def padding_of(writer: MapWriter, node: fx.Node) -> Padding | None:
    """Return the padding by which a node makes the map of a writer; None for other nodes.

    A graph that stands for every size has the amounts of one size only.
    """
    if node_name(node) not in _PADS or filling(node) != ("constant", 0):
        return None
    if writer.graph.meta.get(FREE):
        return None
    if not torch.equal(unshared(writer.place(node)).unique(), writer.places.codes):
        return None
    source: Any = node.args[0]
    axes = side_axes(writer.place(source))
    if axes is None:
        return None
    before = writer.before(source, axes)
    if before is None:
        return None
    amounts: Any = node.args[1]
    last = before.tensor(source).data.dim() - 1
    pairs = {last - at // 2: list(amounts[at : at + 2]) for at in range(0, len(amounts), 2)}
    rows, columns = (pairs.pop(axis, [0, 0]) for axis in axes)
    others = any(any(pair) for pair in pairs.values())
    return None if others else Padding(before, axes, rows, columns)


def filling(node: fx.Node) -> tuple[Any, Any]:
    """Return the mode and the value of a padding."""
    given = dict(zip(_PADS[node_name(node)], node.args[2:], strict=False)) | node.kwargs
    return given.get("mode", "constant"), given.get("value") or 0
