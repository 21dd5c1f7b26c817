"""Small networks whose scores are masked, replaced or scaled: may a search replace them?"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import found_toys as toys

SIDE = 4


class Scored(toys.Toy):
    """Windows of 4 whose scores become weights in a way of their own.

    ``x`` has the image, and ``tokens`` its windows (B, rows, columns, N, 3).
    """

    def forward(self, x: Tensor) -> Tensor:
        self.x, self.tokens = x, toys.windows_of(x, SIDE)
        return super().forward(x)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (toys.heads_of(toys.windows_of(t, SIDE), 2) for t in (q, k, v))
        weights = self.weigh(q @ k.mT * 0.35)
        return toys.map_of((weights @ v).transpose(-2, -3).flatten(-2), SIDE)

    def weigh(self, scores: Tensor) -> Tensor:
        raise NotImplementedError

    def black(self) -> Tensor:
        """Return where keys are black, (B, rows, columns, 1, 1, N)."""
        return (self.tokens.amax(-1) <= 0)[..., None, None, :]

    def white(self) -> Tensor:
        """Return where keys are white, (B, rows, columns, 1, 1, N)."""
        return (self.tokens.amin(-1) >= 1)[..., None, None, :]


def of(weigh: Callable[[Scored, Tensor], Tensor]) -> type[Scored]:
    """Return a toy whose weights a function computes from its scores."""
    return type(weigh.__name__, (Scored,), {"weigh": weigh})


def weak_white(self: Scored, scores: Tensor) -> Tensor:
    return torch.where(self.white(), torch.full_like(scores, -2.0), scores).softmax(-1)


def lowered_large(self: Scored, scores: Tensor) -> Tensor:
    return torch.where(scores > 20, torch.full_like(scores, -20.0), scores).softmax(-1)


def low_black(self: Scored, scores: Tensor) -> Tensor:
    """All scores of a black window are -1e4: its weights are equal."""
    return scores.masked_fill(self.black(), -1e4).softmax(-1)


def low_last_keys(self: Scored, scores: Tensor) -> Tensor:
    """A score of -100 hides a key only from those that are not as low."""
    return scores.masked_fill(torch.arange(SIDE**2) > 11, -100.0).softmax(-1)


def low_rows(self: Scored, scores: Tensor) -> Tensor:
    """All scores of the first query are replaced by the same number."""
    return scores.masked_fill((torch.arange(SIDE**2) < 1)[:, None], -1e9).softmax(-1)


def score_by_pixels(self: Scored, scores: Tensor) -> Tensor:
    other = self.tokens.mean(-1)[..., None, None, :].expand(scores.shape)
    return torch.where(self.white(), other, scores).softmax(-1)


def raised_again(self: Scored, scores: Tensor) -> Tensor:
    hidden = torch.arange(SIDE**2) > 11
    return (scores.masked_fill(hidden, -4e4) + hidden * 4e4).softmax(-1)


def clipped(self: Scored, scores: Tensor) -> Tensor:
    return scores.clamp(-40, 40).softmax(-1)


def at_most(self: Scored, scores: Tensor) -> Tensor:
    return torch.minimum(scores, torch.tensor(40.0)).softmax(-1)


def at_least(self: Scored, scores: Tensor) -> Tensor:
    return torch.maximum(scores, torch.tensor(-40.0)).softmax(-1)


def capped(self: Scored, scores: Tensor) -> Tensor:
    return (50 * torch.tanh(scores / 50)).softmax(-1)


def softly_positive(self: Scored, scores: Tensor) -> Tensor:
    return F.softplus(scores, threshold=5).softmax(-1)


def rounded(self: Scored, scores: Tensor) -> Tensor:
    return (scores * 1e4).to(torch.int64).to(torch.float32).mul(1e-4).softmax(-1)


def times_mask(self: Scored, scores: Tensor) -> Tensor:
    return (scores * (torch.arange(SIDE**2) != 7)).softmax(-1)


def temperature(self: Scored, scores: Tensor) -> Tensor:
    return (scores * (1 + self.x.mean())).softmax(-1)


def with_one_more(self: Scored, scores: Tensor) -> Tensor:
    power = (scores - scores.amax(-1, keepdim=True)).exp()
    return power / (power.sum(-1, keepdim=True) + 1e-6)


def lowered_by_columns(self: Scored, scores: Tensor) -> Tensor:
    """The maximum over the queries differs between keys."""
    return (scores - scores.amax(-2, keepdim=True)).softmax(-1)


def cut_white(self: Scored, scores: Tensor) -> Tensor:
    return scores.softmax(-1).masked_fill(self.white(), 0.0)


def even_without_keys(self: Scored, scores: Tensor) -> Tensor:
    hidden = self.black()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return weights.masked_fill(hidden.all(-1, keepdim=True), 1 / 7)


def empty_if_some(self: Scored, scores: Tensor) -> Tensor:
    """Rows with at least one hidden key are set to zero, not those without a key."""
    hidden = self.black()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return weights.masked_fill(hidden.any(-1, keepdim=True), 0.0)


REFUSED = tuple(
    of(weigh)
    for weigh in (
        weak_white,
        lowered_large,
        low_black,
        low_last_keys,
        low_rows,
        score_by_pixels,
        raised_again,
        clipped,
        at_most,
        at_least,
        capped,
        softly_positive,
        rounded,
        times_mask,
        temperature,
        with_one_more,
        lowered_by_columns,
        cut_white,
        even_without_keys,
        empty_if_some,
    )
)
"""Toys that stay as trained."""


def hidden_black(self: Scored, scores: Tensor) -> Tensor:
    return scores.masked_fill(self.black(), torch.finfo().min).softmax(-1)


def hidden_keys(self: Scored, scores: Tensor) -> Tensor:
    return scores.masked_fill(torch.arange(SIDE**2) > 11, -1e9).softmax(-1)


def unsafe(self: Scored, scores: Tensor) -> Tensor:
    """The weights of a black window are NaN."""
    return scores.masked_fill(self.black(), -torch.inf).softmax(-1)


def safe(self: Scored, scores: Tensor) -> Tensor:
    hidden = self.black()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return weights.masked_fill(hidden.all(-1, keepdim=True), 0.0)


def safe_by_scores(self: Scored, scores: Tensor) -> Tensor:
    scores = scores.masked_fill(self.black(), -torch.inf)
    weights = scores.softmax(-1)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    return torch.where(empty, torch.zeros_like(weights), weights)


def without_nan(self: Scored, scores: Tensor) -> Tensor:
    weights = scores.masked_fill(self.black(), -torch.inf).softmax(-1)
    return torch.where(weights.isnan(), torch.zeros_like(weights), weights)


def visible(self: Scored, scores: Tensor) -> Tensor:
    seen = ~self.black()
    weights = torch.where(seen, scores, -torch.inf).softmax(-1)
    return torch.where(seen.any(-1, keepdim=True), weights, 0.0)


def in_pieces(self: Scored, scores: Tensor) -> Tensor:
    power = (scores - scores.amax(-1, keepdim=True)).exp()
    return power / power.sum(-1, keepdim=True)


SERVED = tuple(
    of(weigh)
    for weigh in (
        hidden_black,
        hidden_keys,
        unsafe,
        safe,
        safe_by_scores,
        without_nan,
        visible,
        in_pieces,
    )
)
"""Toys whose attention is replaced."""


def rows_of(self: Scored) -> Tensor:
    """Return the number of rows of the image as a tensor that is computed from its shape."""
    rows: Tensor = torch.ops.aten.sym_size.int(self.x, 2) * torch.ones(1)
    return rows


def scaled_by_logarithm(self: Scored, scores: Tensor) -> Tensor:
    return (scores * (rows_of(self).log() / 3.0).clamp(min=1.6)).softmax(-1)


def scaled_when_large(self: Scored, scores: Tensor) -> Tensor:
    return (scores * (60 / rows_of(self)).clamp(max=1.0)).softmax(-1)


def masked_when_large(self: Scored, scores: Tensor) -> Tensor:
    last = (torch.arange(SIDE**2) >= 8).float()
    return (scores - 100 * last * (rows_of(self) - 60).clamp(min=0)).softmax(-1)


class HiddenPadding(Scored):
    """Images are padded to windows; the padding is hidden."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        pads = (0, -width % SIDE, 0, -height % SIDE)
        inside = toys.windows_of(F.pad(torch.ones(1, 1, height, width), pads), SIDE)
        self.hidden = (inside[..., 0] == 0)[..., None, None, :]
        return super().forward(F.pad(x, pads))[:, :, :height, :width]

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(self.hidden, -1e9).softmax(-1)


def scaled_by_count(self: Scored, scores: Tensor) -> Tensor:
    """The rows are counted as a sum of ones."""
    rows = torch.ones_like(self.x[:1, :1, :, :1]).sum()
    return (scores * (rows.log() / 3.0).clamp(min=1.6)).softmax(-1)


BY_SIZE = tuple(
    of(weigh)
    for weigh in (scaled_by_logarithm, scaled_when_large, masked_when_large, scaled_by_count)
)
"""Toys that compute something else for images of more than 60 rows."""


def images() -> dict[str, Tensor]:
    """Return images that tell masks of black and white pixels, and of large scores."""
    noise = torch.rand(2, 3, 16, 24, generator=torch.Generator().manual_seed(3))
    half = [noise.clone() for _ in range(2)]
    half[0][:, :, :6] = 0.0
    half[1][:, :, :6] = 1.0
    return {
        "noise": noise,
        "half black": half[0],
        "half white": half[1],
        "black": noise * 0,
        "white": noise * 0 + 1,
        "30 times": noise * 30,
        "1000 times": (noise - 0.5) * 1000,
    }
