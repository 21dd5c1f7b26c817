"""``NystraPatchMatch`` in float64 numpy: the search, and an exhaustive one to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nystra.core.errors import NystraError
from nystra.plugins.operators.patch_match.random_table import (
    BOUND,
    NUMBER_FACTOR,
    SEED_FACTOR,
    SIZE,
    TABLE,
    Integers,
)
from nystra.plugins.operators.patch_match.schema import COSINE, L2, SCHEMA, SMALLEST_NORM, STEPS
from nystra.plugins.operators.schema import Attributes

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def draw(y: npt.ArrayLike, x: npt.ArrayLike, number: npt.ArrayLike, seed: int) -> Integers:
    """Return draws in 0..2**30 - 1; the arguments broadcast.

    Args:
        y: Row of the query pixel.
        x: Column of the query pixel.
        number: Index of the draw of that pixel, from 0.
        seed: 0 to 4095.
    """
    rows, cols, numbers = (np.asarray(array, dtype=np.int64) % SIZE for array in (y, x, number))
    u = TABLE[(cols + NUMBER_FACTOR * numbers + SEED_FACTOR * seed) % SIZE]
    v = TABLE[(rows + u % SIZE) % SIZE]
    drawn: Integers = (u + v) % BOUND
    return drawn


@dataclass(frozen=True)
class Maps:
    """One image of the batch.

    Attributes:
        query: (H, W, C).
        key: (Hk, Wk, C).
        searching: (H * W), the pixels that search.
        allowed: (Hk * Wk + 1), the keys that may be matched; the last, "none", may not.
    """

    query: Array
    key: Array
    searching: Flags
    allowed: Flags

    @property
    def none(self) -> int:
        """The index of an empty entry, larger than that of every key."""
        height, width, _ = self.key.shape
        return int(height) * int(width)


def _patch_sums(
    query: Array, pixels: Integers, key: Array, keys: Integers, radius: int, squares: bool
) -> Array:
    """Return the sum over patches of (Q - K)^2 or Q K for pairs of pixels, clamped at borders."""
    (height, width), (key_height, key_width) = query.shape[:2], key.shape[:2]
    y, x = np.divmod(pixels, width)
    v, u = np.divmod(keys, key_width)
    total = np.zeros(pixels.shape)
    for i in range(-radius, radius + 1):
        for j in range(-radius, radius + 1):
            a = query[np.clip(y + i, 0, height - 1), np.clip(x + j, 0, width - 1)]
            b = key[np.clip(v + i, 0, key_height - 1), np.clip(u + j, 0, key_width - 1)]
            total += ((a - b) ** 2 if squares else a * b).sum(axis=-1)
    return total


def pair_scores(
    maps: Maps, pixels: Integers, keys: Integers, patch_size: int, metric: int
) -> Array:
    """Return the score of each pair of a query pixel and a key, by their flat indices; higher wins.

    A score that is not a number is -inf.
    """
    radius = patch_size // 2
    with np.errstate(invalid="ignore", over="ignore"):
        scores = _patch_sums(maps.query, pixels, maps.key, keys, radius, metric == L2)
        if metric == L2:
            scores = -scores
        if metric == COSINE:
            own = _patch_sums(maps.query, pixels, maps.query, pixels, radius, False)
            other = _patch_sums(maps.key, keys, maps.key, keys, radius, False)
            scores /= np.maximum(np.sqrt(own), SMALLEST_NORM)
            scores /= np.maximum(np.sqrt(other), SMALLEST_NORM)
    return np.where(np.isnan(scores), -np.inf, scores)


class _Search:
    """The rows of one image: index (n, k) and score (n, k) of its n query pixels."""

    def __init__(self, maps: Maps, start: Integers, attributes: Attributes) -> None:
        """Fill the rows from the starts (n, k) and the first draws."""
        self.maps = maps
        self.k = int(attributes["neighbors"])
        self.patch_size, self.metric = int(attributes["patch_size"]), int(attributes["metric"])
        self.seed = int(attributes["seed"])
        self.height, self.width = maps.query.shape[:2]
        self.y, self.x = np.divmod(np.arange(self.height * self.width), self.width)
        self.index = np.full((self.height * self.width, self.k), maps.none)
        self.score = np.full(self.index.shape, -np.inf)
        starts = np.where((start >= 0) & (start < maps.none), start, maps.none)
        self.merge([*starts.T, *self._first_draws()])

    def _first_draws(self) -> list[Integers]:
        """Return one key from each of k equal parts of the allowed keys, if there are any."""
        keys = np.flatnonzero(self.maps.allowed)
        bounds = [j * len(keys) // self.k for j in range(self.k + 1)]
        return [
            keys[low + draw(self.y, self.x, j, self.seed) % (high - low)]
            for j, (low, high) in enumerate(pairwise(bounds))
            if high > low
        ]

    def merge(self, candidates: list[Integers]) -> None:
        """Keep the k best of the rows and of the candidates, which are (n) each."""
        if not candidates:
            return
        offered = np.stack(candidates, axis=1)
        offered[~self.maps.allowed[offered]] = self.maps.none
        offered[~self.maps.searching] = self.maps.none
        index = np.concatenate([self.index, offered], axis=1)
        score = np.concatenate([self.score, np.full(offered.shape, np.nan)], axis=1)
        order = np.argsort(index, axis=1, kind="stable")  # of equals the row's own is first
        index = np.take_along_axis(index, order, axis=1)
        score = np.take_along_axis(score, order, axis=1)
        index[:, 1:][index[:, 1:] == index[:, :-1]] = self.maps.none
        score[index == self.maps.none] = -np.inf
        pixels, places = np.nonzero(np.isnan(score))
        score[pixels, places] = pair_scores(
            self.maps, pixels, index[pixels, places], self.patch_size, self.metric
        )
        order = np.lexsort((index, -score), axis=1)[:, : self.k]
        self.index = np.take_along_axis(index, order, axis=1)
        self.score = np.take_along_axis(score, order, axis=1)

    def propagate(self, step: int) -> None:
        """Take the neighbors' matches, shifted back, as candidates."""
        key_height, key_width = self.maps.key.shape[:2]
        candidates = []
        for dy, dx in ((step * a, step * b) for a, b in _DIRECTIONS):
            y, x = self.y + dy, self.x + dx
            inside = (y >= 0) & (y < self.height) & (x >= 0) & (x < self.width)
            neighbor = np.where(inside, y * self.width + x, 0)
            for entry in self.index[neighbor].T:
                v, u = np.divmod(entry, key_width)
                v, u = v - dy, u - dx
                fits = inside & (entry != self.maps.none)
                fits &= (v >= 0) & (v < key_height) & (u >= 0) & (u < key_width)
                candidates.append(np.where(fits, v * key_width + u, self.maps.none))
        self.merge(candidates)

    def search_around(self, iteration: int) -> None:
        """Draw keys from windows around the row's entries, each half as large as the last."""
        key_height, key_width = self.maps.key.shape[:2]
        radii = [max(key_height, key_width)]
        while radii[-1] > 1:
            radii.append(radii[-1] // 2)
        candidates = []
        for z, radius in enumerate(radii):
            center = self.index[:, (z + iteration) % self.k]
            center = np.where(center == self.maps.none, self.index[:, 0], center)
            v, u = np.divmod(center, key_width)
            number = self.k + 2 * (iteration * len(radii) + z)
            row = self._drawn_near(v, radius, key_height, number)
            col = self._drawn_near(u, radius, key_width, number + 1)
            drawn = row * key_width + col
            candidates.append(np.where(center == self.maps.none, self.maps.none, drawn))
        self.merge(candidates)

    def _drawn_near(self, center: Integers, radius: int, size: int, number: int) -> Integers:
        low = np.clip(center - radius, 0, size - 1)
        high = np.clip(center + radius, 0, size - 1)
        drawn: Integers = low + draw(self.y, self.x, number, self.seed) % (high - low + 1)
        return drawn


def _images(
    query: npt.ArrayLike, key: npt.ArrayLike, query_mask: npt.ArrayLike, key_mask: npt.ArrayLike
) -> tuple[list[Maps], tuple[int, ...]]:
    """Return the images of the batch and the shape (B, C, H, W) of the query."""
    queries, keys = (np.asarray(array, dtype=np.float64) for array in (query, key))
    if queries.ndim != 4 or keys.ndim != 4 or queries.shape[:2] != keys.shape[:2]:
        raise NystraError(
            f"{SCHEMA.name}: query is {queries.shape} and key {keys.shape}; expected (B, C, H, W) "
            "and (B, C, Hk, Wk)"
        )
    batch = queries.shape[0]
    if queries[:, :1].size and not keys[0, 0].size:
        raise NystraError(f"{SCHEMA.name}: key is {keys.shape}; expected at least one key to match")
    searching, allowed = (
        np.broadcast_to(
            np.asarray(mask, dtype=np.float64) > 0, (batch, 1, *maps.shape[2:])
        ).reshape(batch, -1)
        for mask, maps in ((query_mask, queries), (key_mask, keys))
    )
    images = [
        Maps(
            queries[b].transpose(1, 2, 0),
            keys[b].transpose(1, 2, 0),
            searching[b],
            np.append(allowed[b], False),
        )
        for b in range(batch)
    ]
    return images, queries.shape


def _field(index: Integers, none: int, height: int, width: int) -> npt.NDArray[np.int32]:
    """Return the rows (n, k) as a map (k, H, W) with -1 for empty entries."""
    rows = np.where(index == none, -1, index).astype(np.int32)
    return rows.T.reshape(-1, height, width)


def reference(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    query_mask: npt.ArrayLike,
    key_mask: npt.ArrayLike,
    start: npt.ArrayLike,
    **attributes: object,
) -> tuple[npt.NDArray[np.int32], Array]:
    """Return the field of approximate nearest patches.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        query_mask: Broadcasts to (B, 1, H, W); pixels above 0 search.
        key_mask: Broadcasts to (B, 1, Hk, Wk); keys above 0 may be matched.
        start: Broadcasts to (B, k, H, W); indices of keys to start from, -1: none.
        **attributes: Those of the schema.

    Returns:
        Index (B, k, H, W) int32, y*Wk + x or -1, and score (B, k, H, W) float64.

    Raises:
        NystraError: The schema refuses the attributes, or query and key do not fit.
    """
    checked = SCHEMA.validate(attributes)
    images, (batch, _, height, width) = _images(query, key, query_mask, key_mask)
    k = int(checked["neighbors"])
    index = np.empty((batch, k, height, width), dtype=np.int32)
    score = np.empty(index.shape)
    starts = np.broadcast_to(np.asarray(start, dtype=np.int64), index.shape)
    for b, maps in enumerate(images):
        search = _Search(maps, starts[b].reshape(k, height * width).T, checked)
        for iteration in range(int(checked["iterations"])):
            for step in STEPS:
                search.propagate(step)
            search.search_around(iteration)
        index[b] = _field(search.index, maps.none, height, width)
        score[b] = search.score.T.reshape(k, height, width)
    return index, score


def exhaustive(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    query_mask: npt.ArrayLike = 1.0,
    key_mask: npt.ArrayLike = 1.0,
    *,
    patch_size: int,
    neighbors: int,
    metric: int = L2,
    block: int = 256,
) -> tuple[npt.NDArray[np.int32], Array]:
    """Return the true k nearest patches: every query pixel against every allowed key.

    Needs time O(n m) and memory O(block m + (n + m) C p^2) for n query pixels and m keys.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        query_mask: As for :func:`reference`.
        key_mask: As for :func:`reference`.
        patch_size: p.
        neighbors: k.
        metric: 0 l2, 1 dot, 2 cosine.
        block: Query pixels at a time.

    Returns:
        Index (B, k, H, W) int32 and score (B, k, H, W) float64, ordered as the operator's.

    Raises:
        NystraError: Query and key do not fit.
    """
    images, (batch, _, height, width) = _images(query, key, query_mask, key_mask)
    index = np.empty((batch, neighbors, height, width), dtype=np.int32)
    score = np.empty(index.shape)
    for b, maps in enumerate(images):
        rows = np.full((height * width, neighbors), maps.none)
        scores = np.full(rows.shape, -np.inf)
        keys = np.flatnonzero(maps.allowed)
        pixels = np.flatnonzero(maps.searching)
        queries, others = (_patches(array, patch_size) for array in (maps.query, maps.key))
        others = others[keys]
        for part in np.split(pixels, range(block, len(pixels), block)):
            nearest = keys[_nearest(queries[part], others, metric, neighbors)]
            rows[part, : nearest.shape[1]] = nearest
            scores[part, : nearest.shape[1]] = pair_scores(
                maps, np.repeat(part, nearest.shape[1]), nearest.ravel(), patch_size, metric
            ).reshape(nearest.shape)
        index[b] = _field(rows, maps.none, height, width)
        score[b] = scores.T.reshape(neighbors, height, width)
    return index, score


def _patches(image: Array, patch_size: int) -> Array:
    """Return the patches (H * W, C p p) of an image (H, W, C), clamped at the borders."""
    radius = patch_size // 2
    padded = np.pad(image, ((radius, radius), (radius, radius), (0, 0)), mode="edge")
    views = np.lib.stride_tricks.sliding_window_view(padded, (patch_size, patch_size), axis=(0, 1))
    return views.reshape(image.shape[0] * image.shape[1], -1)


def _nearest(queries: Array, keys: Array, metric: int, neighbors: int) -> Integers:
    """Return the places (q, up to k) of the keys (m, d) that score best with queries (q, d)."""
    scores = queries @ keys.T
    if metric == L2:
        scores = 2 * scores - (keys**2).sum(axis=1)  # less |q|^2, the same for every key
    if metric == COSINE:
        scores /= np.maximum(np.sqrt((keys**2).sum(axis=1)), SMALLEST_NORM)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    places: Integers = np.argsort(-scores, axis=1, kind="stable")[:, :neighbors]
    return places
