"""The attentions that PSAL is compared with, as functions of maps with one interface.

Each takes query (1, C, H, W), key (1, C, Hk, Wk) and value (1, Cv, Hk, Wk) and returns
(1, Cv, H, W); a token is the patch of ``patch`` pixels around a pixel, borders repeated. ``full``
and ``local`` compare by l2, the others by the dot product, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from nystra.models.layers.patches import neighborhoods

Attention: TypeAlias = Callable[..., Tensor]

WINDOW = 50
"""Side of the window of ``local`` (table 1)."""

_CHUNK = 64  # tokens that Reformer compares, with as many before them


def tokens(image: Tensor, patch: int) -> Tensor:
    """Return the patches of a map (1, C, H, W) as (H W, C patch^2)."""
    return neighborhoods(image, patch, "replicate").flatten(2)[0].T


def features_of(depth: int) -> int:
    """Return the random features that Performer is recommended for tokens of that depth."""
    return int(depth * math.log(depth))


def full(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    patch: int = 7,
    temperature: float = 1.0,
    stride: int = 1,
    best: int = 0,
    at_once: int = 1 << 24,
) -> Tensor:
    """Attend to every key, to those of every ``stride``-th row and column, or to the best k.

    ``at_once`` is the number of scores that are held at a time.
    """
    begin = stride // 2
    places = slice(begin, None, stride)
    keys = neighborhoods(key, patch, "replicate")[0][:, places, places].flatten(1)
    values = value[0, :, places, places].flatten(1).T
    squares, parts = keys.square().sum(0), []
    for block in tokens(query, patch).split(max(1, at_once // keys.shape[1])):
        scores = 2.0 * block @ keys - squares - block.square().sum(1, keepdim=True)
        if best:
            top = (scores / temperature).topk(best, 1)
            parts.append((top.values.softmax(1).unsqueeze(-1) * values[top.indices]).sum(1))
        else:
            parts.append((scores / temperature).softmax(1) @ values)
    return _map(torch.cat(parts), query)


def local(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    patch: int = 7,
    temperature: float = 1.0,
    window: int = WINDOW,
) -> Tensor:
    """Attend to the ``window`` x ``window`` keys around a pixel; both maps have one size."""
    low, high = window // 2, window - window // 2 - 1
    height, width = query.shape[2:]
    around, values = (
        F.pad(each, (low, high, low, high), mode="replicate") for each in (key, value)
    )

    def moved(image: Tensor, place: int) -> Tensor:
        row, column = divmod(place, window)
        return image[:, :, row : row + height, column : column + width]

    def score(place: int) -> Tensor:
        cost = (query - moved(around, place)).square().sum(1, keepdim=True)
        cost = F.pad(cost, (patch // 2,) * 4, mode="replicate")
        return F.avg_pool2d(cost, patch, 1)[0, 0] * (-(patch**2) / temperature)

    weights = torch.stack([score(place) for place in range(window * window)]).softmax(0)
    out = torch.zeros_like(query[:, :1]).expand(-1, value.shape[1], -1, -1)
    for place in range(window * window):
        out = out + weights[place] * moved(values, place)
    return out


def linear(query: Tensor, key: Tensor, value: Tensor, patch: int = 7) -> Tensor:
    """Attend by the features elu(x) + 1 (Katharopoulos et al., 2020, equation 7)."""
    return _by_features(query, key, value, patch, lambda x: F.elu(x) + 1)


def performer(
    query: Tensor, key: Tensor, value: Tensor, patch: int = 7, features: int = 0
) -> Tensor:
    """Attend by positive random features, by default d log d (Choromanski et al., 2020, lemma 1).

    They are not orthogonalized; one draw serves all calls.
    """
    depth = query.shape[1] * patch**2
    count = features or features_of(depth)
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(count, depth, generator=generator) / depth**0.25

    def of(x: Tensor) -> Tensor:
        projected = x @ projection.T - x.square().sum(1, keepdim=True) / (2 * depth**0.5)
        return (projected - projected.amax().detach()).exp()

    return _by_features(query, key, value, patch, of)


def reformer(query: Tensor, key: Tensor, value: Tensor, patch: int = 7, rounds: int = 4) -> Tensor:
    """Attend within buckets of random rotations (Kitaev et al., 2020, section 2).

    Queries and keys, the latter of length 1, are sorted by bucket, in it by their place in their
    map, and cut into chunks of 64; a query attends to the keys of its chunk and of the one before,
    which may hold none: then it gets 0 from this round. Rounds are weighted by their sums of
    exponentials.
    """
    a, b = tokens(query, patch), tokens(key, patch)
    both = torch.cat(
        (a, F.normalize(b, dim=1), a.new_zeros(-(len(a) + len(b)) % _CHUNK, a.shape[1]))
    )
    values = torch.cat((value.new_zeros(len(a), value.shape[1]), value[0].flatten(1).T))
    values = F.pad(values, (0, 0, 0, len(both) - len(values)))
    row = torch.arange(len(both))
    is_key = (row >= len(a)) & (row < len(a) + len(b))
    place = torch.cat([torch.arange(len(x)) / len(x) for x in (a, b)]).double()
    place = F.pad(place, (0, len(both) - len(place)), value=1.0)
    buckets = max(2, len(both) // _CHUNK // 2 * 2)
    outputs, sums = [], []
    for number in range(rounds):
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            turned = both @ torch.randn(both.shape[1], buckets // 2, generator=generator)
            order = (2 * torch.cat((turned, -turned), 1).argmax(1) + place).argsort(stable=True)
        chunks = order.view(-1, _CHUNK)
        seen = torch.cat((chunks, chunks.roll(1, 0)), 1)
        scores = both[chunks] @ both[seen].transpose(1, 2) / both.shape[1] ** 0.5
        scores = scores.masked_fill(~is_key[seen].unsqueeze(1), torch.finfo(scores.dtype).min / 4)
        back = order.argsort()[: len(a)]
        weights = scores.softmax(2) * is_key[seen].unsqueeze(1)
        outputs.append((weights @ values[seen]).flatten(0, 1)[back])
        sums.append(scores.logsumexp(2).flatten()[back])
    shares = torch.stack(sums).softmax(0).unsqueeze(2)
    return _map((shares * torch.stack(outputs)).sum(0), query)


def _by_features(
    query: Tensor, key: Tensor, value: Tensor, patch: int, features: Callable[[Tensor], Tensor]
) -> Tensor:
    a, b = features(tokens(query, patch)), features(tokens(key, patch))
    out = a @ (b.T @ value[0].flatten(1).T) / (a @ b.sum(0)).unsqueeze(1)
    return _map(out, query)


def _map(out: Tensor, query: Tensor) -> Tensor:
    """Return rows (H W, C) as a map of the query's size."""
    return out.T.reshape(1, -1, *query.shape[2:])


COMPETITORS: dict[str, Attention] = {
    "full": full,
    "local": local,
    "linear": linear,
    "performer": performer,
    "reformer": reformer,
}
