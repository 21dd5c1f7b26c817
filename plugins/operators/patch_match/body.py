"""``NystraPatchMatch`` as a model-local ONNX function: the search in standard operators.

Rows are kept as (B, n, k), n = H*W query pixels; an empty entry has the index m = Hk*Wk, above
that of every key, and the score -inf. Patches are never materialized: a Loop over the p*p positions
of a patch (one for l2, one for the products; the unused one has no rounds) gathers one pixel per
candidate from the padded map, so that memory is O(n k C). The passes of the search are in a Loop
too. (Loops are slow in TensorRT, which has the plugin.)
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..body_builder import BodyBuilder
from .body_maps import BodyMaps
from .schema import STEPS

_POWERS = [1 << z for z in range(25)]
"""What the largest radius is divided by, as long as 1 is left: it is below 2**24."""


class _Search:
    """Writes the passes of the search; ``rows`` are the tensors index and score (B, n, k)."""

    def __init__(self, body: BodyBuilder, maps: BodyMaps) -> None:
        self.body, self.maps = body, maps
        self.k = body.attribute("neighbors")
        self.minus_infinity = body.number(-np.inf)
        largest = body.op("Max", maps.key_height, maps.key_width)
        self.radii = body.op("Div", largest, body.ints(_POWERS))
        some = body.op("Cast", body.op("Greater", self.radii, body.ints(0)), to=TensorProto.INT64)
        self.levels = body.op("ReduceSum", some, keepdims=0)
        self.radii = body.op("Slice", self.radii, body.ints([0]), body.shape(self.levels))

    def begin(self) -> list[str]:
        """Return the rows after the starts and one draw from each of k parts of the keys."""
        body, maps = self.body, self.maps
        shape = body.shape(maps.batch, self.k, maps.height, maps.width)
        start = body.op("Cast", body.inputs[4], to=TensorProto.INT64)
        start = body.reshape(body.op("Expand", start, shape), maps.batch, self.k, maps.pixels)
        start = body.swap(start, 3)
        key = maps.within(start, maps.keys)
        start = body.op("Where", key, start, maps.keys)
        slots = body.count(self.k)
        low, high = (
            body.op("Div", body.op("Mul", maps.allowed_count, slot), self.k)
            for slot in (slots, body.op("Add", slots, body.ints(1)))
        )
        span = body.op("Sub", high, low)  # (B, 1, k)
        some = body.op("Greater", span, body.ints(0))
        drawn = body.op("Mod", maps.draws(slots), body.op("Max", span, body.ints(1)))
        place = body.op("Where", some, body.op("Add", low, drawn), body.ints(0))
        first = body.op("Gather", maps.allowed_list, body.op("Add", place, maps.key_offset))
        first = body.op("Where", some, first, maps.keys)
        empty = body.op("Expand", maps.keys, body.shape(maps.batch, maps.pixels, self.k))
        score = body.op("Expand", self.minus_infinity, body.op("Shape", empty))
        return self._merge([empty, score], body.op("Concat", start, first, axis=2))

    def propagate(self, rows: list[str], step: str) -> list[str]:
        """Take the neighbors' matches, shifted back, as candidates."""
        body, maps = self.body, self.maps
        dy, dx = (
            body.op("Mul", body.ints(signs), step) for signs in ([-1, 1, 0, 0], [0, 0, -1, 1])
        )
        y, x = (
            body.op("Add", at, body.reshape(by, 4, 1)) for at, by in ((maps.y, dy), (maps.x, dx))
        )
        inside = body.op("And", maps.within(y, maps.height), maps.within(x, maps.width))
        place = maps.flat(y, x, maps.height, maps.width)  # (4, n)
        entry = body.op("Gather", rows[0], place, axis=1)  # (B, 4, n, k)
        v, u = (
            body.op("Sub", body.op(which, entry, maps.key_width), body.reshape(by, 4, 1, 1))
            for which, by in (("Div", dy), ("Mod", dx))
        )
        fits = body.op("And", maps.within(v, maps.key_height), maps.within(u, maps.key_width))
        fits = body.op("And", fits, body.op("Less", entry, maps.keys))
        fits = body.op("And", fits, body.op("Unsqueeze", inside, body.ints([2])))
        number = body.op("Add", body.op("Mul", v, maps.key_width), u)
        number = body.op("Where", fits, number, maps.keys)
        by_pixel = body.op("Transpose", number, perm=[0, 2, 1, 3])
        return self._merge(rows, body.reshape(by_pixel, maps.batch, maps.pixels, -1))

    def search_around(self, rows: list[str], iteration: str) -> list[str]:
        """Draw keys from windows around the row's entries, each half as large as the last."""
        body, maps = self.body, self.maps
        levels = body.count(self.levels)
        which = body.op("Mod", body.op("Add", levels, iteration), self.k)
        center = body.op("Gather", rows[0], which, axis=2)  # (B, n, levels)
        best = body.op("Gather", rows[0], body.ints([0]), axis=2)
        center = body.op("Where", body.op("Less", center, maps.keys), center, best)
        number = body.op("Add", body.op("Mul", iteration, self.levels), levels)
        number = body.op("Add", body.op("Add", number, number), self.k)
        row = self._draw_near("Div", center, maps.key_height, number)
        col = self._draw_near("Mod", center, maps.key_width, body.op("Add", number, body.ints(1)))
        drawn = body.op("Add", body.op("Mul", row, maps.key_width), col)
        drawn = body.op("Where", body.op("Less", center, maps.keys), drawn, maps.keys)
        return self._merge(rows, drawn)

    def _draw_near(self, which: str, center: str, size: str, number: str) -> str:
        """Return a random coordinate within a radius of the center and inside the map."""
        body = self.body
        at = body.op(which, center, self.maps.key_width)
        low, high = (
            self.maps.clamp(body.op(sign, at, self.radii), size) for sign in ("Sub", "Add")
        )
        span = body.op("Add", body.op("Sub", high, low), body.ints(1))
        return body.op("Add", low, body.op("Mod", self.maps.draws(number), span))

    def _merge(self, rows: list[str], candidates: str) -> list[str]:
        """Return the rows with the k best of their entries and of the candidates (B, n, any)."""
        body, maps = self.body, self.maps
        candidates, score = maps.score(candidates)
        index = body.op("Concat", rows[0], candidates, axis=2)
        score = body.op("Concat", rows[1], score, axis=2)
        count = body.shape(body.size(index, 2))
        index, order = body.ops("TopK", 2, index, count, axis=2, largest=0)
        score = body.op("GatherElements", score, order, axis=2)
        first = body.op("Slice", index, body.ints([0]), body.ints([1]), body.ints([2]))
        rest = body.op("Slice", index, body.ints([0]), body.ints([-1]), body.ints([2]))
        before = body.op("Concat", body.op("Sub", first, body.ints(1)), rest, axis=2)
        twice = body.op("Equal", index, before)
        index = body.op("Where", twice, maps.keys, index)
        score = body.op("Where", twice, self.minus_infinity, score)
        score, order = body.ops("TopK", 2, score, body.shape(self.k), axis=2, largest=1)
        return [body.op("GatherElements", index, order, axis=2), score]

    def iteration(self, iteration: str, rows: list[str]) -> list[str]:
        """Return the rows after the propagation passes and the random pass of an iteration."""
        body, steps = self.body, self.body.ints(STEPS)

        def passes(place: str, rows: list[str]) -> list[str]:
            return self.propagate(rows, body.op("Gather", steps, place))

        kinds = (TensorProto.INT64, TensorProto.FLOAT)
        states = list(zip(rows, kinds, strict=True))
        return self.search_around(body.loop(body.ints(len(STEPS)), states, passes), iteration)


def write(nodes: BodyBuilder) -> tuple[str, str]:
    """Write the nodes; return the results."""
    maps = BodyMaps(nodes)
    search = _Search(nodes, maps)
    kinds = (TensorProto.INT64, TensorProto.FLOAT)
    states = list(zip(search.begin(), kinds, strict=True))
    index, score = nodes.loop(nodes.attribute("iterations"), states, search.iteration)
    match = nodes.op("Less", index, maps.keys)
    index = nodes.op("Where", match, index, nodes.ints(-1))
    shape = nodes.shape(maps.batch, search.k, maps.height, maps.width)
    index, score = (
        nodes.op("Reshape", nodes.swap(field, 3), shape)
        for field in (index, maps.with_infinity(score))
    )
    return index, score
