"""PSAL: the scores of its search, aggregation, and the weighting of the reference."""

import math
from typing import Any

import pytest
import torch

from golden_cases import golden
from nystra.core.errors import NystraError
from nystra.models.psal.search import PsalOptions, matches
from nystra.models.psal.values import aggregate_values, match_logits, match_weights
from psal_maps import field, maps, pair, patch, slow_aggregate


@pytest.mark.parametrize("metric", ["l2", "dot", "cosine"])
def test_scores_are_those_of_the_definition(metric: str) -> None:
    query, key = maps((2, 3, 5, 6), (2, 3, 4, 7), grad=False)
    options = PsalOptions(neighbors=3, patch_size=5, iterations=1, metric=metric)
    index, got = matches(query, key, options)
    for b, j, y, x in [(0, 0, 0, 0), (1, 2, 4, 5), (0, 1, 2, 3), (1, 0, 0, 5)]:
        place = int(index[b, j, y, x])
        expected = pair(patch(query[b], y, x, 5), patch(key[b], place // 7, place % 7, 5), metric)
        assert float(got[b, j, y, x]) == pytest.approx(float(expected), abs=1e-10)


def test_matches_carry_no_gradient() -> None:
    query, key = maps((1, 2, 5, 5), (1, 2, 5, 5))
    assert not matches(query, key, PsalOptions(patch_size=3))[1].requires_grad


@pytest.mark.parametrize("masked", [False, True])
def test_aggregation_is_equation_10(masked: bool) -> None:
    score, value = maps((2, 3, 5, 7), (2, 2, 4, 6), grad=False)
    index = field(2, 3, (5, 7), 24)
    mask = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(1)) > 0.3
    got = aggregate_values(score, index, value, 5, mask.double() if masked else None)
    for b in range(2):
        given = mask[b, 0] if masked else None
        expected = slow_aggregate(index[b], score[b], value[b], 5, given, votes=False)
        torch.testing.assert_close(got[b], expected, atol=1e-12, rtol=0)


def test_far_apart_scores_do_not_underflow() -> None:
    """The largest score may belong to a key that is excluded."""
    score = torch.tensor([0.0, -1000.0, -1001.0]).view(1, 1, 1, 3)
    index = torch.arange(3, dtype=torch.int32).view(1, 1, 1, 3)
    value = torch.tensor([5.0, 1.0, 2.0]).view(1, 1, 1, 3)
    mask = torch.tensor([0.0, 1.0, 1.0]).view(1, 1, 1, 3)
    got = aggregate_values(score, index, value, 3, mask)
    # Pixel 1 sees: (0: key 0 -> 1), (1: key 1), (2: key 2 -> 1); all three give key 1.
    assert got[0, 0, 0, 1] == pytest.approx(1.0)
    # Pixel 2 sees pixel 1's key shifted to key 2, and key 2 itself.
    assert got[0, 0, 0, 2] == pytest.approx(2.0)


def test_temperature_and_empty_entries() -> None:
    index = torch.tensor([[3, -1], [0, -1]], dtype=torch.int32).view(1, 2, 1, 2)
    score = torch.tensor([[2.0, -math.inf], [1.0, -math.inf]]).view(1, 2, 1, 2)
    value = torch.arange(4.0).view(1, 1, 2, 2)
    weight = 1 / (1 + math.exp(-1 / 0.5))
    logits = match_logits(index, score, 0.5)
    weights = match_weights(logits, index).flatten().tolist()
    assert weights == pytest.approx([weight, 0.0, 1 - weight, 0.0])
    out = aggregate_values(logits, index, value, 1).flatten().tolist()
    assert out == pytest.approx([3 * weight, 0.0])


@pytest.mark.parametrize("name", ["p3", "p7", "p5_T01"])
def test_weighting_of_the_reference(name: str) -> None:
    """The form ``aggregate`` for given maps, at every pixel.

    The reference gives neighbors outside the map the cost 10 and the match (10, 10), here they
    take no part: with such a border put around the given maps, and cut off the result, both are
    the same formula.
    """
    case = golden("psal_weighting")
    ((run, given, _, expected),) = (
        run for run in case.runs() if run[0]["name"] == f"{name}_aggregate"
    )
    shift, cost, value = (torch.from_numpy(given[key]) for key in ("shift_map", "cost_map", "v"))
    r = run["patch_size"] // 2
    index = (shift[0] * value.shape[2] + shift[1]).unsqueeze(0).to(torch.int32)
    index = torch.nn.functional.pad(index, (r, r, r, r), value=10 * value.shape[2] + 10)
    score = torch.nn.functional.pad(-cost.unsqueeze(0), (r, r, r, r), value=-10.0)
    logits = match_logits(index, score, run["T"])
    got = aggregate_values(logits, index, value.unsqueeze(0), run["patch_size"])
    got = got[..., r : got.shape[2] - r, r : got.shape[3] - r]
    torch.testing.assert_close(got, torch.from_numpy(expected[""]), atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metric": "l1"}, "metric is 'l1'; expected l2, dot, cosine"),
        ({"temperature": 0.0}, "a number above 0"),
    ],
)
def test_bad_options(values: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        PsalOptions(**values)
