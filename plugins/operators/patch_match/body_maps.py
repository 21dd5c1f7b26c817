"""The maps of ``NystraPatchMatch`` in an ONNX body: sizes, masks, draws and scores."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..body_builder import BodyBuilder
from .random_table import BOUND, NUMBER_FACTOR, SEED_FACTOR, SIZE, TABLE
from .schema import COSINE, L2, SMALLEST_NORM

_LOWEST = float(np.finfo(np.float32).min)


class _Padded:
    """A map (B, C, H, W) with repeated borders, so that a patch is a corner and fixed offsets.

    Attributes:
        rows: (B (H + 2 r) (W + 2 r), C), its pixels.
    """

    def __init__(self, body: BodyBuilder, image: str, channels: str) -> None:
        self._body = body
        batch, height, self._width = (body.size(image, axis) for axis in (0, 2, 3))
        radius = body.op("Div", body.attribute("patch_size"), body.ints(2))
        self._rim = body.op("Add", radius, radius)
        self._across = body.op("Add", self._width, self._rim)
        padded = body.op("Transpose", body.float32(image), perm=[0, 2, 3, 1])
        for axis, size in ((1, height), (2, self._width)):
            places = body.count(body.op("Add", size, self._rim))
            last = body.op("Sub", size, body.ints(1))
            inside = body.op("Max", body.op("Sub", places, radius), body.ints(0))
            padded = body.op("Gather", padded, body.op("Min", inside, last), axis=axis)
        self.rows = body.reshape(padded, -1, channels)
        area = body.op("Mul", body.op("Add", height, self._rim), self._across)
        self._begin = body.reshape(body.op("Mul", body.count(batch), area), -1, 1, 1)

    def corners(self, pixels: str) -> str:
        """Return the indices in ``rows`` where the patches of pixels y W + x of their image begin.

        The pixels are (n) or (B, any, n); the result is (B, 1 or any, n).
        """
        body = self._body
        down = body.op("Mul", body.op("Div", pixels, self._width), self._rim)
        return body.op("Add", body.op("Add", pixels, down), self._begin)

    def offset(self, place: str) -> str:
        """Return the offset of a position of a patch, counted row by row, from its corner."""
        body = self._body
        side = body.attribute("patch_size")
        down = body.op("Mul", body.op("Div", place, side), self._across)
        return body.op("Add", down, body.op("Mod", place, side))


class BodyMaps:
    """Tensors of the maps for all passes; n = H*W query pixels, m = Hk*Wk keys.

    Attributes:
        batch: B, and likewise ``height``, ``width``, ``pixels`` n, ``key_height``, ``key_width``
            and ``keys`` m, int64 scalars. m is also the index of an empty entry.
        y: (n) row of each query pixel, and ``x`` its column.
        key_offset: (B, 1, 1), b*m, where the keys of an image begin among all.
        allowed_count: (B, 1, 1), number of keys that may be matched.
        allowed_list: (B*m), those keys in ascending order, then m, for each image.
    """

    def __init__(self, body: BodyBuilder) -> None:
        self.body = body
        query, key, query_mask, key_mask, _ = body.inputs
        self.batch, channels, self.height, self.width = (body.size(query, a) for a in range(4))
        self.key_height, self.key_width = (body.size(key, axis) for axis in (2, 3))
        self.pixels = body.op("Mul", self.height, self.width)
        self.keys = body.op("Mul", self.key_height, self.key_width)
        all_keys = body.op("Mul", self.batch, self.keys)
        self._query = _Padded(body, query, channels)
        self._key = _Padded(body, key, channels)
        pixels = body.count(self.pixels)
        self.y, self.x = (body.op(which, pixels, self.width) for which in ("Div", "Mod"))
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
            body.op("Equal", body.attribute("metric"), body.ints(metric)) for metric in (L2, COSINE)
        )
        self._query_corners = self._query.corners(pixels)  # (B, 1, n)
        self._query_norm = body.reshape(
            self._norm(self._query, self._query_corners), self.batch, self.pixels
        )
        corners = self._key.corners(body.count(self.keys))
        self._key_norm = body.reshape(self._norm(self._key, corners), all_keys)

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

    def clamp(self, place: str, size: str) -> str:
        """Return the position, clamped to 0..size - 1."""
        body = self.body
        last = body.op("Sub", size, body.ints(1))
        return body.op("Min", body.op("Max", place, body.ints(0)), last)

    def flat(self, y: str, x: str, height: str, width: str) -> str:
        """Return the flat index of the pixel (y, x), clamped to the map."""
        row = self.body.op("Mul", self.clamp(y, height), width)
        return self.body.op("Add", row, self.clamp(x, width))

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

    def _places_where(self, condition: str) -> str:
        side = self.body.attribute("patch_size")
        return self.body.op("Where", condition, self.body.op("Mul", side, side), self.body.ints(0))

    def _norm(self, maps: _Padded, corners: str) -> str:
        """Return the norms of the patches at the corners, which only the cosine needs."""
        body = self.body
        squares = body.op("ReduceSumSquare", maps.rows, body.ints([1]), keepdims=0)

        def add(place: str, sums: list[str]) -> list[str]:
            at = body.op("Add", corners, maps.offset(place))
            return [body.op("Add", sums[0], body.op("Gather", squares, at))]

        none = body.op("Expand", body.number(0.0), body.op("Shape", corners))
        rounds = self._places_where(self._is_cosine)
        (sums,) = body.loop(rounds, [(none, TensorProto.FLOAT)], add)
        return body.op("Max", body.op("Sqrt", sums), body.number(SMALLEST_NORM))

    def score(self, candidates: str) -> tuple[str, str]:
        """Return the candidates (B, n, any), m where they may not be matched, and their scores.

        A score is at least the lowest float32, which replaces NaN and -inf, so that it is sorted
        before the -inf of an empty entry; see :meth:`with_infinity`.
        """
        body = self.body
        present = body.op("Less", candidates, self.keys)
        key = body.op("Where", present, candidates, body.ints(0))
        flat = body.op("Add", key, self.key_offset)
        valid = body.op("And", present, body.op("Gather", self._allowed, flat))
        valid = body.op("And", valid, self._searching)
        by_candidate = body.swap(key, 3)  # (B, any, n): all of a candidate's queries in one piece
        corners = self._key.corners(by_candidate)

        def pair(place: str) -> list[str]:
            return [
                body.op("Gather", maps.rows, body.op("Add", at, maps.offset(place)))
                for maps, at in ((self._query, self._query_corners), (self._key, corners))
            ]

        def differences(place: str, sums: list[str]) -> list[str]:
            term = body.op("Sub", *pair(place))
            square = body.op("ReduceSumSquare", term, body.ints([3]), keepdims=0)
            return [body.op("Add", sums[0], square)]

        def product(place: str, sums: list[str]) -> list[str]:
            term = body.op("Mul", *pair(place))
            return [body.op("Add", sums[0], body.op("ReduceSum", term, body.ints([3]), keepdims=0))]

        sums = body.op("Expand", body.number(0.0), body.op("Shape", by_candidate))
        for metric, step in ((self._is_l2, differences), (body.op("Not", self._is_l2), product)):
            # A Loop without rounds for other metrics: bodies have no If.
            (sums,) = body.loop(self._places_where(metric), [(sums, TensorProto.FLOAT)], step)
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
            body.op("Where", valid, candidates, self.keys),
            body.op("Where", valid, score, body.number(-np.inf)),
        )

    def with_infinity(self, score: str) -> str:
        """Return the score with -inf again where it is the lowest float32."""
        body = self.body
        finite = body.op("Greater", score, body.number(_LOWEST))
        return body.op("Where", finite, score, body.number(-np.inf))
