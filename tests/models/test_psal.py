"""The PSAL layer: gradients, aggregation, votes, masks, borders, and the reference's weighting."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.models.psal.layer import Psal, PsalOptions, matches, psal, reconstruct
from nystra.models.psal.scores import pair_scores
from nystra.models.psal.values import aggregate_values, match_logits, mix_values
from shared import golden


def maps(*shapes: tuple[int, ...], grad: bool = True) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return [array.requires_grad_(grad) for array in made]


def field(batch: int, k: int, size: tuple[int, int], keys: int) -> Tensor:
    """Return matches without duplicates in a row."""
    generator = torch.Generator().manual_seed(5)
    order = torch.rand(batch, *size, keys, generator=generator).argsort(-1)
    return order[..., :k].permute(0, 3, 1, 2).to(torch.int32)


def patch(image: Tensor, y: int, x: int, side: int) -> Tensor:
    """Return the patch (C, side, side) around a pixel of (C, H, W), coordinates clamped."""
    r = side // 2
    rows = torch.arange(y - r, y + r + 1).clamp(0, image.shape[1] - 1)
    columns = torch.arange(x - r, x + r + 1).clamp(0, image.shape[2] - 1)
    return image[:, rows][:, :, columns]


def pair(q: Tensor, k: Tensor, metric: str) -> Tensor:
    if metric == "l2":
        return -(q - k).square().sum()
    product = (q * k).sum()
    return product if metric == "dot" else product / (q.norm() * k.norm())


@pytest.mark.parametrize("metric", ["l2", "dot", "cosine"])
def test_scores_are_those_of_the_definition_and_of_the_search(metric: str) -> None:
    query, key = maps((2, 3, 5, 6), (2, 3, 4, 7), grad=False)
    options = PsalOptions(neighbors=3, patch_size=5, iterations=1, metric=metric)
    index, expected = matches(query, key, options)
    got = pair_scores(query, key, index, 5, metric)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)
    for b, j, y, x in [(0, 0, 0, 0), (1, 2, 4, 5), (0, 1, 2, 3), (1, 0, 0, 5)]:
        place = int(index[b, j, y, x])
        expected = pair(patch(query[b], y, x, 5), patch(key[b], place // 7, place % 7, 5), metric)
        assert float(got[b, j, y, x]) == pytest.approx(float(expected), abs=1e-10)


@pytest.mark.parametrize("metric", ["l2", "dot", "cosine"])
@pytest.mark.parametrize("reconstruction", ["center", "aggregate", "votes"])
def test_gradients_with_a_fixed_field(metric: str, reconstruction: str) -> None:
    query, key, value = maps((1, 2, 4, 3), (1, 2, 3, 5), (1, 2, 3, 5))
    index = field(1, 2, (4, 3), 15)
    index[0, 1, 1, 1] = -1
    options = PsalOptions(
        neighbors=2, patch_size=3, metric=metric, temperature=2.0, reconstruction=reconstruction
    )

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return reconstruct(index, pair_scores(q, k, index, 3, metric), v, options)

    assert torch.autograd.gradcheck(layer, (query, key, value))


def test_gradients_with_masked_keys() -> None:
    query, key, value = maps((1, 1, 3, 4), (1, 1, 3, 4), (1, 2, 3, 4))
    index = field(1, 2, (3, 4), 12)
    mask = torch.ones(1, 1, 3, 4)
    mask[..., 1, 1:3] = 0

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = match_logits(index, pair_scores(q, k, index, 3, "l2"), 1.0)
        return aggregate_values(logits, index, v, 3, mask)

    assert torch.autograd.gradcheck(layer, (query, key, value))


def test_derivatives_are_equations_6_to_8() -> None:
    """Scalars: Q, K, V have one channel, the patch one pixel, S_ij = Q_i K_j."""
    query, key, value = maps((1, 1, 1, 4), (1, 1, 1, 6), (1, 1, 1, 6))
    index = field(1, 3, (1, 4), 6)
    options = PsalOptions(neighbors=3, patch_size=1, metric="dot")
    score = pair_scores(query, key, index, 1, "dot")
    out = reconstruct(index, score, value, options).flatten()
    q, k, v = (tensor.detach().flatten() for tensor in (query, key, value))
    psi = [index[0, :, 0, i].tolist() for i in range(4)]
    a = torch.zeros(4, 6, dtype=torch.float64)
    for i in range(4):
        a[i, psi[i]] = torch.softmax(q[i] * k[psi[i]], 0)
    torch.testing.assert_close(out, a @ v)
    for i in range(4):
        by_q, by_k, by_v = torch.autograd.grad(out[i], (query, key, value), retain_graph=True)
        torch.testing.assert_close(by_v.flatten(), a[i])  # equation 6
        own = sum(
            float(a[i, n] * v[n] * (k[n] - sum(a[i, m] * k[m] for m in psi[i]))) for n in psi[i]
        )
        expected = [own if j == i else 0.0 for j in range(4)]
        assert by_q.flatten().tolist() == pytest.approx(expected)  # equation 7
        # Equation 8; its A_ik is A_ij: with k it would not be the derivative of equation 5.
        eight = [
            float(q[i] * sum(a[i, n] * (float(j == n) - a[i, j]) * v[n] for n in psi[i]))
            if j in psi[i]
            else 0.0
            for j in range(6)
        ]
        assert by_k.flatten().tolist() == pytest.approx(eight)


def test_one_neighbour_has_no_gradient_for_query_and_key() -> None:
    query, key, value = maps((1, 2, 5, 5), (1, 2, 5, 5), (1, 1, 5, 5))
    out = psal(query, key, value, PsalOptions(neighbors=1, patch_size=3))
    by_q, by_k, by_v = torch.autograd.grad(out.square().sum(), (query, key, value))
    assert float(by_q.abs().max()) == 0.0
    assert float(by_k.abs().max()) == 0.0
    assert float(by_v.abs().max()) > 0.0
    aggregated = PsalOptions(neighbors=1, patch_size=3, reconstruction="aggregate")
    out = psal(query, key, value, aggregated)
    assert float(torch.autograd.grad(out.square().sum(), query)[0].abs().max()) > 0.0


def slow_aggregate(
    index: Tensor, score: Tensor, value: Tensor, side: int, mask: Tensor | None, votes: bool
) -> Tensor:
    """Equation 10 and the overlap-add of votes, pixel by pixel for one picture."""
    k, height, width = index.shape
    rows, columns = value.shape[1:]
    r, out = side // 2, torch.zeros(value.shape[0], height, width, dtype=value.dtype)
    for y in range(height):
        for x in range(width):
            weights, taken = [], []
            for a in range(max(0, y - r), min(height, y + r + 1)):
                for b in range(max(0, x - r), min(width, x + r + 1)):
                    here = score[:, a, b].softmax(0) if votes else score[:, a, b].exp()
                    for j in range(k):
                        v = int(index[j, a, b]) // columns - (a - y)
                        u = int(index[j, a, b]) % columns - (b - x)
                        v, u = min(max(v, 0), rows - 1), min(max(u, 0), columns - 1)
                        if mask is None or mask[v, u] > 0:
                            weights.append(here[j])
                            taken.append(value[:, v, u])
            if weights:
                w = torch.stack(weights)
                out[:, y, x] = (torch.stack(taken, 1) * w).sum(1) / w.sum()
    return out


@pytest.mark.parametrize("votes", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_aggregation_is_equation_10(votes: bool, masked: bool) -> None:
    score, value = maps((2, 3, 5, 7), (2, 2, 4, 6), grad=False)
    index = field(2, 3, (5, 7), 24)
    mask = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(1)) > 0.3
    mask_or_none = mask.double() if masked else None
    got = aggregate_values(score, index, value, 5, mask_or_none, votes=votes)
    for b in range(2):
        given = mask[b, 0] if masked else None
        expected = slow_aggregate(index[b], score[b], value[b], 5, given, votes)
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
    got = mix_values(logits, index, value).flatten().tolist()
    assert got == pytest.approx([3 * weight, 0.0])
    for votes in (False, True):
        out = aggregate_values(logits, index, value, 1, votes=votes).flatten().tolist()
        assert out == pytest.approx([3 * weight, 0.0])


def test_all_keys_as_neighbours_are_full_attention() -> None:
    query, key, value = maps((2, 3, 3, 4), (2, 3, 4, 4), (2, 5, 4, 4), grad=False)
    options = PsalOptions(neighbors=16, patch_size=1, metric="dot", temperature=1.7)
    scores = query.flatten(2).transpose(1, 2) @ key.flatten(2) / 1.7
    expected = scores.softmax(-1) @ value.flatten(2).transpose(1, 2)
    got = psal(query, key, value, options).flatten(2).transpose(1, 2)
    torch.testing.assert_close(got, expected)


def test_self_attention_with_one_neighbour_is_the_identity() -> None:
    (image,) = maps((1, 3, 9, 8), grad=False)
    for reconstruction in ("center", "votes", "aggregate"):
        options = PsalOptions(1, 3, 4, reconstruction=reconstruction)
        _, score = matches(image, image, options)
        itself = score.abs() < 1e-12
        assert float(itself.double().mean()) > 0.9  # random search: most pixels find themselves
        layer = Psal(options)
        if reconstruction == "center":
            same = (layer(image, image, image) - image).abs().amax(1) < 1e-12
            assert torch.equal(same, itself[:, 0])


def test_only_valid_keys_give_values() -> None:
    query, key = maps((1, 2, 12, 12), (1, 2, 12, 12), grad=False)
    known = torch.ones(1, 1, 12, 12)
    known[..., 4:8, 4:8] = 0
    value = torch.where(known > 0, 1.0, 1000.0).double()
    for reconstruction in ("center", "votes", "aggregate"):
        options = PsalOptions(3, 3, 2, reconstruction=reconstruction)
        out = psal(query, key, value, options, known, 1 - known)
        hole = out[..., 4:8, 4:8]
        torch.testing.assert_close(hole, torch.ones_like(hole))
        assert float(out[..., 0, 0]) == 0.0  # far from any query that searches
    nothing = psal(query, key, value, PsalOptions(2, 3, 1), torch.zeros(1, 1, 1, 1))
    assert float(nothing.abs().max()) == 0.0


def test_training_moves_queries_to_keys() -> None:
    """A few steps of descent through the layer lower a loss that only q and k can lower."""
    torch.manual_seed(0)
    key, value = torch.randn(1, 2, 10, 10), torch.randn(1, 1, 10, 10)
    query = torch.nn.Parameter(torch.randn(1, 2, 10, 10))
    layer, target = Psal(PsalOptions(3, 1, 3)), torch.randn(1, 1, 10, 10)
    optimizer = torch.optim.Adam([query], 0.05)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = (layer(query, key, value) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", ["p3", "p7", "p5_T01"])
@pytest.mark.parametrize("form", ["simple", "aggregate"])
def test_weighting_of_the_reference(name: str, form: str) -> None:
    """For given maps, at every pixel.

    The reference gives neighbours outside the map the cost 10 and the match (10, 10), here they
    take no part: with such a border put around the given maps, and cut off the result, both are
    the same formula.
    """
    case = golden("psal_weighting")
    runs = {run["name"]: (run, expected) for run, _, _, expected, _ in case.runs()}
    inputs = {run["name"]: given for run, given, _, _, _ in case.runs()}[f"{name}_aggregate"]
    run, expected = runs[f"{name}_{form}"]
    shift, cost, value = (torch.from_numpy(inputs[key]) for key in ("shift_map", "cost_map", "v"))
    aggregate = form == "aggregate"
    r = run["patch_size"] // 2 if aggregate else 0
    index = (shift[0] * value.shape[2] + shift[1]).unsqueeze(0).to(torch.int32)
    index = torch.nn.functional.pad(index, (r, r, r, r), value=10 * value.shape[2] + 10)
    score = torch.nn.functional.pad(-cost.unsqueeze(0), (r, r, r, r), value=-10.0)
    options = PsalOptions(
        3,
        run["patch_size"],
        temperature=run["T"],
        reconstruction="aggregate" if aggregate else "center",
    )
    got = reconstruct(index, score, value.unsqueeze(0), options)
    got = got[..., r : got.shape[2] - r, r : got.shape[3] - r]
    torch.testing.assert_close(got, torch.from_numpy(expected[""]), atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metric": "l1"}, "metric is 'l1'; expected l2, dot, cosine"),
        ({"reconstruction": "patch"}, "expected center, aggregate, votes"),
        ({"temperature": 0.0}, "a number above 0"),
    ],
)
def test_bad_options(values: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        PsalOptions(**values)
