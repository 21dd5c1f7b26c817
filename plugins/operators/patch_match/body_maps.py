"""The maps of ``NystraPatchMatch`` in an ONNX body: sizes, masks, draws and scores."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..body_builder import BodyBuilder
from .random_table import BOUND, NUMBER_FACTOR, SEED_FACTOR, SIZE, TABLE
from .schema import COSINE, L2, SMALLEST_NORM

_LOWEST = float(np.finfo(np.float32).min)


class BodyMaps:
    """Tensors of the maps that every pass reads; n = H*W query pixels, m = Hk*Wk keys.

    Attributes:
        batch: B, and likewise ``height``, ``width``, ``pixels`` n, ``key_height``, ``key_width``
            and ``keys`` m, int64 scalars. m is also the index of an empty entry.
        y: (n) row of each query pixel, and ``x`` its column.
        key_offset: (B, 1, 1), b*m, where the keys of an image begin in all of them.
        allowed_count: (B, 1, 1), how many keys may be matched.
        allowed_list: (B*m), those keys in ascending order, then m, for each image.
    """

    def __init__(self, body: BodyBuilder) -> None:
        """Read the inputs of the function that ``body`` writes."""
        self.body = body
        query, key, query_mask, key_mask, _ = body.inputs
        self.batch, channels, self.height, self.width = (body.size(query, a) for a in range(4))
        self.key_height, self.key_width = (body.size(key, axis) for axis in (2, 3))
        self.pixels = body.op("Mul", self.height, self.width)
        self.keys = body.op("Mul", self.key_height, self.key_width)
        all_keys = body.op("Mul", self.batch, self.keys)
        self._radius = body.op("Div", body.attribute("patch_size"), body.ints(2))
        self._query, self._key = (
            body.reshape(body.op("Transpose", body.float32(one), perm=[0, 2, 3, 1]), *shape)
            for one, shape in (
                (query, (self.batch, self.pixels, channels)),
                (key, (all_keys, channels)),
            )
        )
        self.y, self.x = self._places(self.height, self.width)
        self.key_offset = body.reshape(body.op("Mul", body.count(self.batch), self.keys), -1, 1, 1)
        self._searching = body.op(
            "Unsqueeze", self._mask(query_mask, self.height, self.width), body.ints([2])
        )
        allowed = self._mask(key_mask, self.key_height, self.key_width)
        self._allowed = body.reshape(allowed, all_keys)
        counted = body.op("Cast", allowed, to=TensorProto.INT64)
        self.allowed_count = body.reshape(body.reduce("ReduceSum", counted, 1), -1, 1, 1)
        listed = body.op("Where", allowed, body.count(self.keys), self.keys)
        listed, _ = body.ops("TopK", 2, listed, body.shape(self.keys), axis=1, largest=0)
        self.allowed_list = body.reshape(listed, all_keys)
        self._table = body.op("Cast", body.constant(TABLE.astype(np.int32)), to=TensorProto.INT64)
        self._is_l2, self._is_cosine = (
            body.op("Equal", body.attribute("metric"), body.ints(one)) for one in (L2, COSINE)
        )
        self._places_of_patch = body.op(
            "Mul", body.attribute("patch_size"), body.attribute("patch_size")
        )
        self._query_norm = self._norm(self._query, self.height, self.width)
        own = body.reshape(self._key, self.batch, self.keys, channels)
        key_norm = self._norm(own, self.key_height, self.key_width)
        self._key_norm = body.reshape(key_norm, all_keys)

    def _places(self, height: str, width: str) -> tuple[str, str]:
        """Return row and column of every pixel of a map."""
        pixels = self.body.count(self.body.op("Mul", height, width))
        return self.body.op("Div", pixels, width), self.body.op("Mod", pixels, width)

    def _mask(self, mask: str, height: str, width: str) -> str:
        """Return where the mask, broadcast to the map, is above 0: bool (B, H*W)."""
        body = self.body
        above = body.op("Greater", body.float32(mask), body.number(0.0))
        full = body.op("Expand", above, body.shape(self.batch, 1, height, width))
        return body.reshape(full, self.batch, body.op("Mul", height, width))

    def within(self, place: str, size: str) -> str:
        """Return whether 0 <= place < size."""
        body = self.body
        return body.op(
            "And",
            body.op("GreaterOrEqual", place, body.ints(0)),
            body.op("Less", place, size),
        )

    def clamped(self, place: str, size: str) -> str:
        """Return the place, moved into 0..size - 1."""
        body = self.body
        last = body.op("Sub", size, body.ints(1))
        return body.op("Min", body.op("Max", place, body.ints(0)), last)

    def flat(self, y: str, x: str, height: str, width: str) -> str:
        """Return the flat index of the pixel (y, x), moved into the map."""
        row = self.body.op("Mul", self.clamped(y, height), width)
        return self.body.op("Add", row, self.clamped(x, width))

    def draws(self, numbers: str) -> str:
        """Return the draws (n, numbers) of every query pixel, in 0..2**30 - 1."""
        body = self.body
        size = body.ints(SIZE)
        by_number = body.op("Mul", body.op("Mod", numbers, size), body.ints(NUMBER_FACTOR))
        by_seed = body.op("Mul", body.attribute("seed"), body.ints(SEED_FACTOR))
        col, row = (body.reshape(body.op("Mod", at, size), -1, 1) for at in (self.x, self.y))
        first = body.op("Add", col, body.op("Add", by_number, by_seed))
        u = body.op("Gather", self._table, body.op("Mod", first, size))
        second = body.op("Mod", body.op("Add", row, body.op("Mod", u, size)), size)
        v = body.op("Gather", self._table, second)
        return body.op("Mod", body.op("Add", u, v), body.ints(BOUND))

    def _offsets(self, place: str) -> tuple[str, str]:
        """Return how far the place of a patch is from its centre, down and to the right."""
        body = self.body
        side = body.attribute("patch_size")
        down, right = (
            body.op("Sub", body.op(which, place, side), self._radius) for which in ("Div", "Mod")
        )
        return down, right

    def _norm(self, pixels: str, height: str, width: str) -> str:
        """Return the norm (B, H*W) of the patch of every pixel of a map (B, H*W, C)."""
        body = self.body
        squares = body.op("ReduceSum", body.op("Mul", pixels, pixels), body.ints([2]), keepdims=0)
        y, x = self._places(height, width)

        def add(place: str, sums: list[str]) -> list[str]:
            down, right = self._offsets(place)
            at = self.flat(body.op("Add", y, down), body.op("Add", x, right), height, width)
            return [body.op("Add", sums[0], body.op("Gather", squares, at, axis=1))]

        none = body.op("Expand", body.number(0.0), body.op("Shape", squares))
        (sums,) = body.loop(self._places_of_patch, [(none, TensorProto.FLOAT)], add)
        return body.op("Max", body.op("Sqrt", sums), body.number(SMALLEST_NORM))

    def scored(self, candidates: str) -> tuple[str, str]:
        """Return the candidates (B, n, any), m where they may not be matched, and their scores.

        A score is at least the lowest float32, so that it stands before the -inf of an empty
        entry; that stands for NaN and -inf, see :meth:`whole`.
        """
        body = self.body
        given = body.op("Less", candidates, self.keys)
        key = body.op("Where", given, candidates, body.ints(0))
        flat = body.op("Add", key, self.key_offset)
        taken = body.op("And", given, body.op("Gather", self._allowed, flat))
        taken = body.op("And", taken, self._searching)
        by_candidate = body.swap(key, 3)  # (B, any, n): all of a candidate's queries in one piece
        v, u = (body.op(which, by_candidate, self.key_width) for which in ("Div", "Mod"))

        def add(place: str, sums: list[str]) -> list[str]:
            down, right = self._offsets(place)
            at = self.flat(
                body.op("Add", self.y, down), body.op("Add", self.x, right), self.height, self.width
            )
            own = body.op("Unsqueeze", body.op("Gather", self._query, at, axis=1), body.ints([1]))
            at = self.flat(
                body.op("Add", v, down), body.op("Add", u, right), self.key_height, self.key_width
            )
            other = body.op("Gather", self._key, body.op("Add", at, self.key_offset))
            less = body.op("Where", self._is_l2, own, body.number(0.0))
            apart = body.op("Sub", other, less)  # the key itself for the other metrics
            term = body.op("Mul", apart, body.op("Where", self._is_l2, apart, own))
            return [body.op("Add", sums[0], body.op("ReduceSum", term, body.ints([3]), keepdims=0))]

        none = body.op("Expand", body.number(0.0), body.op("Shape", by_candidate))
        (sums,) = body.loop(self._places_of_patch, [(none, TensorProto.FLOAT)], add)
        sums = body.swap(sums, 3)
        own_norm = body.op("Unsqueeze", self._query_norm, body.ints([2]))
        cosine = body.op("Div", sums, own_norm)
        cosine = body.op("Div", cosine, body.op("Gather", self._key_norm, flat))
        score = body.op("Where", self._is_l2, body.op("Neg", sums), sums)
        score = body.op("Where", self._is_cosine, cosine, score)
        lowest = body.number(_LOWEST)
        number = body.op("Max", score, lowest)
        score = body.op("Where", body.op("IsNaN", score), lowest, number)
        return (
            body.op("Where", taken, candidates, self.keys),
            body.op("Where", taken, score, body.number(-np.inf)),
        )

    def whole(self, score: str) -> str:
        """Return the score with -inf again where it is the lowest float32."""
        body = self.body
        finite = body.op("Greater", score, body.number(_LOWEST))
        return body.op("Where", finite, score, body.number(-np.inf))
