"""The positions of tensors on the map of a site."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx_ir as ir
from torch import Tensor

from ..search.places import decode, find_map_axes, number_places, unshare
from ..search.provenance import Provenance


@dataclass
class Places:
    """The positions of a graph's tensors on one map, shared by all its sites.

    Attributes:
        run: The search that has run on the graph.
        codes: Sorted places of the map.
        map: Batch size, rows and columns.
        axes: Tensor -> its axes that are axes of the map, or None; only for those requested so far.
        unpadded: Codes of a smaller map that is padded to this one -> positions on it.
    """

    run: Provenance
    codes: Tensor
    map: tuple[int, ...]
    axes: dict[ir.Value, list[int] | None] = field(default_factory=dict)
    unpadded: dict[bytes, Places] = field(default_factory=dict)

    def number(self, places: Tensor) -> Tensor:
        """Return the number of each place in the map, in the places' shape; -1 outside the map."""
        return number_places(self.codes, places)

    def before(self, places: Tensor) -> Places | None:
        """Return the positions on the smaller map of these places; None if they are no map."""
        codes = unshare(places).unique()
        key = codes.numpy().tobytes()
        if key not in self.unpadded:
            counts = [part.unique().numel() for part in decode(codes)]
            batch, _, *sides = counts
            number_of_each = (batch, *sides)
            self.unpadded[key] = Places(self.run, codes, number_of_each)
        smaller = self.unpadded[key]
        has_all = math.prod(smaller.map) == len(codes)
        if has_all and codes[0] >= 0:
            return smaller
        return None

    def axes_of(self, ir_value: ir.Value) -> list[int] | None:
        """Return the map's axes in a tensor that has the map's layout; None for other tensors."""
        if ir_value not in self.axes:
            self.axes[ir_value] = self._axes_of(ir_value)
        return self.axes[ir_value]

    def _axes_of(self, ir_value: ir.Value) -> list[int] | None:
        value = self.run.values.get(ir_value)
        if value is None or value.place is None:
            return None
        return find_map_axes(self.codes, value.place)
