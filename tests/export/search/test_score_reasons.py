"""Scores that are written in place are followed, and attention that is not found has a reason."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from searched_graphs import noise, of_one_size


class Scored(nn.Module):
    """Attention between all positions of a map, whose scores are changed on the way."""

    axis = -1

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.qkv = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 24)
        self.last = nn.Conv2d(8, 3, 1)

    def scores(self, scores: Tensor) -> Tensor:
        return scores

    def forward(self, image: Tensor) -> Tensor:
        map_ = self.first(image)
        q, k, v = self.qkv(map_.flatten(2).mT).chunk(3, -1)
        weights = self.scores(q @ k.mT * 0.4).softmax(self.axis)
        return image + self.last((weights @ v).mT.unflatten(2, map_.shape[2:]))


class WrittenInPlace(Scored):
    """As MViT v2 adds relative positions: to a slice that is all of the scores."""

    def scores(self, scores: Tensor) -> Tensor:
        bias = torch.linspace(-1, 1, scores.shape[-1])
        scores[:, 0:, 0:] = scores[:, 0:, 0:] + bias
        return scores


class Sorted(Scored):
    """The search has no rule for the order of scores."""

    def scores(self, scores: Tensor) -> Tensor:
        return scores.cumsum(-1).sort(-1).values


def test_scores_that_are_written_in_place() -> None:
    found = of_one_size(WrittenInPlace(), 1, 3, 8, 8)
    (attention,) = found.attentions
    assert attention.level in ("map", "tokens")
    assert found.agrees(noise(1, 3, 8, 8))


class AlongQueries(Scored):
    """RNAN's: the weights of all queries for a key sum up to 1."""

    axis = 1


@pytest.mark.parametrize("kind", [Sorted])
def test_attention_that_is_not_found_has_a_reason(kind: type[Scored]) -> None:
    (attention,) = of_one_size(kind(), 1, 3, 8, 8).attentions
    assert attention.level == "as trained"
    assert attention.reason


def test_a_softmax_along_the_queries_is_named() -> None:
    (attention,) = of_one_size(AlongQueries(), 1, 3, 8, 8).attentions
    assert attention.reason == "its softmax is not along its keys"
