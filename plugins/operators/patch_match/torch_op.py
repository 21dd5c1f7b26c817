"""``NystraPatchMatch`` in torch: a plain search and ``torch.ops.nystra.patch_match``.

No patch is ever materialized: a score gathers one row of two patches at a time. The search has no
gradient; layers compute the scores of the found pairs again where they need one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from ....core.errors import NystraError
from ..operator_torch import register
from .random_table import BOUND, NUMBER_FACTOR, SEED_FACTOR, SIZE, TABLE
from .schema import LARGEST_MAP, SCHEMA, STEPS
from .scores_torch import PairScores

_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))

_ENTRIES_AT_ONCE = 1 << 20
"""Candidates times entries of a row that are compared at a time: bounds the memory of a pass."""


_PIXELS_AT_ONCE = 1 << 15
"""Pixels of images that are searched together: many small images take as few steps as one."""


@functools.cache
def _table(device: torch.device) -> Tensor:
    return torch.from_numpy(TABLE).to(device)


def _draw(y: Tensor, x: Tensor, number: int, seed: int) -> Tensor:
    """Return draws in 0..2**30 - 1 of the query pixels in rows ``y`` and columns ``x`` (int64)."""
    table = _table(y.device)
    u = table[(x % SIZE + NUMBER_FACTOR * (number % SIZE) + SEED_FACTOR * seed) % SIZE]
    v = table[(y % SIZE + u % SIZE) % SIZE]
    return (u + v) % BOUND


class _Search:
    """The rows of some images: index (n, k) and score (n, k) of all their query pixels, n in all.

    Keys are counted through all m of the images. An empty entry has the index ``none`` = m, above
    every key's, and the score -inf.
    """

    def __init__(
        self,
        scores: PairScores,
        images: int,
        query_size: tuple[int, int],
        key_size: tuple[int, int],
        searching: Tensor,
        allowed: Tensor,
        neighbors: int,
        seed: int,
    ) -> None:
        """Start with empty rows; ``searching`` (n) and ``allowed`` (m) select queries and keys."""
        self.scores, self.k, self.seed = scores, neighbors, seed
        (self.height, self.width), (self.key_height, self.key_width) = query_size, key_size
        self.none = images * self.key_height * self.key_width
        self.searching = searching
        self.keys = allowed.nonzero()[:, 0]
        self.allowed = torch.cat([allowed, allowed.new_zeros(1)])
        pixels = torch.arange(images * self.height * self.width, device=searching.device)
        image = pixels // (self.height * self.width)
        self.first_pixel = image * (self.height * self.width)
        self.first_key = image * (self.key_height * self.key_width)
        pixels = pixels - self.first_pixel
        self.y, self.x = pixels // self.width, pixels % self.width
        counts = allowed.view(images, -1).sum(1)
        self.count = counts[image]
        self.first_listed = (counts.cumsum(0) - counts)[image]
        self.index = torch.full((len(pixels), neighbors), self.none, device=searching.device)
        self.score = torch.full_like(self.index, -torch.inf, dtype=scores.dtype)

    def begin(self, start: Tensor) -> None:
        """Fill the rows from the starts (n, k) and one draw from each of k parts of the keys."""
        keys = self.key_height * self.key_width
        first = self.first_key.unsqueeze(1)
        candidates = [torch.where((start >= 0) & (start < keys), first + start, self.none)]
        listed = torch.cat([self.keys, self.keys.new_tensor([self.none])])
        for j in range(self.k):
            low, high = j * self.count // self.k, (j + 1) * self.count // self.k
            drawn = low + _draw(self.y, self.x, j, self.seed) % (high - low).clamp(min=1)
            place = torch.where(high > low, self.first_listed + drawn, len(self.keys))
            candidates.append(listed[place].unsqueeze(1))
        self._merge(torch.cat(candidates, 1))

    def propagate(self, step: int) -> None:
        """Take the neighbors' matches, shifted back, as candidates."""
        candidates = []
        for dy, dx in ((step * a, step * b) for a, b in _DIRECTIONS):
            y, x = self.y + dy, self.x + dx
            inside = (y >= 0) & (y < self.height) & (x >= 0) & (x < self.width)
            entries = self.index[torch.where(inside, self.first_pixel + y * self.width + x, 0)]
            first = self.first_key.unsqueeze(1)
            local = entries - first
            v, u = local // self.key_width - dy, local % self.key_width - dx
            fits = inside.unsqueeze(1) & (entries != self.none)
            fits &= (v >= 0) & (v < self.key_height) & (u >= 0) & (u < self.key_width)
            candidates.append(torch.where(fits, first + v * self.key_width + u, self.none))
        self._merge(torch.cat(candidates, 1))

    def search_around(self, iteration: int) -> None:
        """Draw keys from windows around the row's entries, each half as large as the last."""
        radii = [max(self.key_height, self.key_width)]
        while radii[-1] > 1:
            radii.append(radii[-1] // 2)
        candidates = []
        for z, radius in enumerate(radii):
            center = self.index[:, (z + iteration) % self.k]
            center = torch.where(center == self.none, self.index[:, 0], center)
            number = self.k + 2 * (iteration * len(radii) + z)
            local = center - self.first_key
            row = self._draw_near(local // self.key_width, radius, self.key_height, number)
            col = self._draw_near(local % self.key_width, radius, self.key_width, number + 1)
            drawn = self.first_key + row * self.key_width + col
            candidates.append(torch.where(center == self.none, self.none, drawn))
        self._merge(torch.stack(candidates, 1))

    def _draw_near(self, center: Tensor, radius: int, size: int, number: int) -> Tensor:
        low = (center - radius).clamp(0, size - 1)
        high = (center + radius).clamp(0, size - 1)
        return low + _draw(self.y, self.x, number, self.seed) % (high - low + 1)

    def _merge(self, candidates: Tensor) -> None:
        """Keep the k best of the rows and the candidates (n, any)."""
        valid = self.allowed[candidates] & self.searching.unsqueeze(1)
        candidates = torch.where(valid, candidates, self.none)
        rows = max(1, _ENTRIES_AT_ONCE // (self.k * candidates.shape[1]))
        for begin in range(0, len(candidates), rows):
            part = candidates[begin : begin + rows]
            repeated = (part.unsqueeze(2) == self.index[begin : begin + rows].unsqueeze(1)).any(2)
            part = torch.where(repeated, self.none, part)
            pixels = (part != self.none).any(1).nonzero()[:, 0]
            self._merge_rows(begin + pixels, part[pixels])

    def _merge_rows(self, pixels: Tensor, candidates: Tensor) -> None:
        """Merge candidates that are not in the rows of the pixels, but may be there twice."""
        candidates = candidates.sort(1).values
        candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = self.none
        score = torch.full_like(candidates, -torch.inf, dtype=self.score.dtype)
        rows, places = (candidates != self.none).nonzero(as_tuple=True)
        score[rows, places] = self.scores(pixels[rows], candidates[rows, places])
        index = torch.cat([self.index[pixels], candidates], 1)
        score = torch.cat([self.score[pixels], score], 1)
        by_index = index.argsort(1)  # then the stable sort by score leaves equals by index
        by_score = score.gather(1, by_index).sort(dim=1, descending=True, stable=True).indices
        order = by_index.gather(1, by_score[:, : self.k])
        self.index[pixels] = index.gather(1, order)
        self.score[pixels] = score.gather(1, order)


@torch.no_grad()
def patch_match(
    query: Tensor,
    key: Tensor,
    query_mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    start: Tensor | None = None,
    **attributes: int,
) -> tuple[Tensor, Tensor]:
    """Return the field of approximate nearest patches, computed in the type of ``query``.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        query_mask: Broadcasts to (B, 1, H, W); pixels above 0 search; None: all.
        key_mask: Broadcasts to (B, 1, Hk, Wk); keys above 0 may be matched; None: all.
        start: Broadcasts to (B, k, H, W), integers; keys to start from, -1: none.
        **attributes: Those of the schema.

    Returns:
        Index (B, k, H, W) int32, y*Wk + x or -1, and score (B, k, H, W), best first; without
        gradient.

    Raises:
        NystraError: An attribute is refused, or the inputs do not fit together.
    """
    checked = {name: int(value) for name, value in SCHEMA.validate(attributes).items()}
    patch_size, neighbors = checked["patch_size"], checked["neighbors"]
    everywhere = query.new_ones(1, 1, 1, 1)
    query_mask, key_mask = (everywhere if mask is None else mask for mask in (query_mask, key_mask))
    start = -torch.ones_like(everywhere, dtype=torch.int32) if start is None else start
    index, score = _empty(query, key, query_mask, key_mask, start, checked)
    if not index.numel():
        return index, score
    batch, _, height, width = query.shape
    key_size = (key.shape[2], key.shape[3])
    if not key.shape[2] * key.shape[3]:
        raise NystraError(
            f"{SCHEMA.name}: key is {tuple(key.shape)}; expected at least one key to match"
        )
    searching = (query_mask > 0).expand(batch, 1, height, width).flatten(1)
    allowed = (key_mask > 0).expand(batch, 1, *key_size).flatten(1)
    starts = start.long().expand(index.shape).flatten(2).transpose(1, 2)
    keys = key_size[0] * key_size[1]
    images = max(1, _PIXELS_AT_ONCE // max(height * width, keys))
    for begin in range(0, batch, images):
        part = slice(begin, min(begin + images, batch))
        images = part.stop - begin
        search = _Search(
            PairScores(query[part], key[part], patch_size, checked["metric"]),
            images,
            (height, width),
            key_size,
            searching[part].flatten(),
            allowed[part].flatten(),
            neighbors,
            checked["seed"],
        )
        search.begin(starts[part].flatten(0, 1))
        for iteration in range(checked["iterations"]):
            for step in STEPS:
                search.propagate(step)
            search.search_around(iteration)
        local = search.index - search.first_key.unsqueeze(1)
        matches = torch.where(search.index == search.none, -1, local)
        index[part] = matches.view(images, -1, neighbors).transpose(1, 2).reshape_as(index[part])
        score[part] = (
            search.score.view_as(matches)
            .view(images, -1, neighbors)
            .transpose(1, 2)
            .reshape_as(score[part])
        )
    return index, score


def _empty(
    query: Tensor,
    key: Tensor,
    query_mask: Tensor,
    key_mask: Tensor,
    start: Tensor,
    attributes: Mapping[str, float],
) -> tuple[Tensor, Tensor]:
    """Allocate index and score; symbolic sizes are not checked."""
    k = int(attributes["neighbors"])
    if query.dim() != 4 or key.dim() != 4 or _differ(query.shape[:2], key.shape[:2]):
        raise NystraError(
            f"{SCHEMA.name}: query is {tuple(query.shape)} and key {tuple(key.shape)}; expected "
            "(B, C, H, W) and (B, C, Hk, Wk)"
        )
    batch, _, height, width = query.shape
    _, _, key_height, key_width = key.shape
    for name, tensor, full in (
        ("query_mask", query_mask, (batch, 1, height, width)),
        ("key_mask", key_mask, (batch, 1, key_height, key_width)),
        ("start", start, (batch, k, height, width)),
    ):
        if tensor.dim() != 4 or _differ(tensor.shape, full, broadcast=True):
            raise NystraError(
                f"{SCHEMA.name}: {name} is {tuple(tensor.shape)}; expected {tuple(full)}, or 1 in "
                "any place of it"
            )
    for name, pixels in (("query", height * width), ("key", key_height * key_width)):
        if isinstance(pixels, int) and pixels >= LARGEST_MAP:
            raise NystraError(
                f"{SCHEMA.name}: {name} has {pixels} pixels; expected less than {LARGEST_MAP}"
            )
    shape = (batch, k, height, width)
    return query.new_empty(shape, dtype=torch.int32), query.new_empty(shape)


def _differ(sizes: torch.Size, expected: tuple[int, ...], broadcast: bool = False) -> bool:
    return any(
        isinstance(size, int)
        and isinstance(want, int)
        and size != want
        and not (broadcast and size == 1)
        for size, want in zip(sizes, expected, strict=True)
    )


register(SCHEMA, patch_match, _empty)
