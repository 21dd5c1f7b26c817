"""The study's PSAL layer: gradients, aggregation, votes, masks, and the reference's weighting."""

import math

import pytest
import torch
from torch import Tensor

from golden_cases import golden
from nystra.core.errors import NystraError
from nystra.models.colorization.checkpoint import colorization_hyper
from nystra.models.colorization.network import Colorization
from nystra.models.psal.search import PsalOptions
from nystra.models.psal.values import match_logits
from psal_maps import field, maps, slow_aggregate
from studies.psal import scores
from studies.psal.colorization import ATTENTIONS, put
from studies.psal.competitors import full, linear, local, performer, reformer
from studies.psal.layer import LayerOptions, Psal, matches, psal, reconstruct
from studies.psal.published_search import published_search
from studies.psal.scores import pair_scores
from studies.psal.values import aggregate_values, mix_values, vote_values


@pytest.fixture(params=[0, 1e9], ids=["matrix", "pairs"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores by the matrix of all of them, and pair by pair."""
    monkeypatch.setattr(scores, "_SHARE", request.param)


@pytest.mark.parametrize("metric", ["l2", "dot", "cosine"])
@pytest.mark.usefixtures("either_way")
def test_scores_are_those_of_the_search(metric: str) -> None:
    query, key = maps((2, 3, 5, 6), (2, 3, 4, 7), grad=False)
    options = PsalOptions(neighbors=3, patch_size=5, iterations=1, metric=metric)
    index, expected = matches(query, key, options)
    got = pair_scores(query, key, index, 5, metric)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)


@pytest.mark.full
@pytest.mark.parametrize("metric", ["l2", "dot", "cosine"])
@pytest.mark.parametrize("reconstruction", ["center", "aggregate", "votes"])
@pytest.mark.usefixtures("either_way")
def test_gradients_with_a_fixed_field(metric: str, reconstruction: str) -> None:
    query, key, value = maps((1, 2, 4, 3), (1, 2, 3, 5), (1, 2, 3, 5))
    index = field(1, 2, (4, 3), 15)
    index[0, 1, 1, 1] = -1
    options = LayerOptions(
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
    options = LayerOptions(neighbors=3, patch_size=1, metric="dot")
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


def test_one_neighbor_has_no_gradient_for_query_and_key() -> None:
    query, key, value = maps((1, 2, 5, 5), (1, 2, 5, 5), (1, 1, 5, 5))
    out = psal(query, key, value, LayerOptions(neighbors=1, patch_size=3))
    by_q, by_k, by_v = torch.autograd.grad(out.square().sum(), (query, key, value))
    assert float(by_q.abs().max()) == 0.0
    assert float(by_k.abs().max()) == 0.0
    assert float(by_v.abs().max()) > 0.0
    aggregated = LayerOptions(neighbors=1, patch_size=3, reconstruction="aggregate")
    out = psal(query, key, value, aggregated)
    assert float(torch.autograd.grad(out.square().sum(), query)[0].abs().max()) > 0.0


@pytest.mark.full
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("with_gradients", [False, True])
def test_votes_are_the_overlap_add(masked: bool, with_gradients: bool) -> None:
    score, value = maps((2, 3, 5, 7), (2, 2, 4, 6), grad=with_gradients)
    index = field(2, 3, (5, 7), 24)
    mask = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(1)) > 0.3
    got = vote_values(score, index, value, 5, mask.double() if masked else None)
    for b in range(2):
        given = mask[b, 0] if masked else None
        expected = slow_aggregate(index[b], score[b], value[b], 5, given, votes=True)
        torch.testing.assert_close(got[b], expected, atol=1e-12, rtol=0)


def test_temperature_and_empty_entries() -> None:
    index = torch.tensor([[3, -1], [0, -1]], dtype=torch.int32).view(1, 2, 1, 2)
    score = torch.tensor([[2.0, -math.inf], [1.0, -math.inf]]).view(1, 2, 1, 2)
    value = torch.arange(4.0).view(1, 1, 2, 2)
    weight = 1 / (1 + math.exp(-1 / 0.5))
    logits = match_logits(index, score, 0.5)
    got = mix_values(logits, index, value).flatten().tolist()
    assert got == pytest.approx([3 * weight, 0.0])
    for add_up in (aggregate_values, vote_values):
        out = add_up(logits, index, value, 1).flatten().tolist()
        assert out == pytest.approx([3 * weight, 0.0])


def test_all_keys_as_neighbors_are_full_attention() -> None:
    query, key, value = maps((2, 3, 3, 4), (2, 3, 4, 4), (2, 5, 4, 4), grad=False)
    options = LayerOptions(neighbors=16, patch_size=1, metric="dot", temperature=1.7)
    scores = query.flatten(2).transpose(1, 2) @ key.flatten(2) / 1.7
    expected = scores.softmax(-1) @ value.flatten(2).transpose(1, 2)
    got = psal(query, key, value, options).flatten(2).transpose(1, 2)
    torch.testing.assert_close(got, expected)


def test_self_attention_with_one_neighbor_is_the_identity() -> None:
    (image,) = maps((1, 3, 9, 8), grad=False)
    for reconstruction in ("center", "votes", "aggregate"):
        options = LayerOptions(1, 3, 4, reconstruction=reconstruction)
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
        options = LayerOptions(3, 3, 2, reconstruction=reconstruction)
        out = psal(query, key, value, options, known, 1 - known)
        hole = out[..., 4:8, 4:8]
        torch.testing.assert_close(hole, torch.ones_like(hole))
        assert float(out[..., 0, 0]) == 0.0  # far from any query that searches
    nothing = psal(query, key, value, LayerOptions(2, 3, 1), torch.zeros(1, 1, 1, 1))
    assert float(nothing.abs().max()) == 0.0


def test_training_moves_queries_to_keys() -> None:
    """A few steps of gradient descent reduce a loss that depends on q and k only."""
    torch.manual_seed(0)
    key, value = torch.randn(1, 2, 10, 10), torch.randn(1, 1, 10, 10)
    query = torch.nn.Parameter(torch.randn(1, 2, 10, 10))
    layer, target = Psal(LayerOptions(3, 1, 3)), torch.randn(1, 1, 10, 10)
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

    The reference gives neighbors outside the map the cost 10 and the match (10, 10), here they
    take no part: with such a border put around the given maps, and cut off the result, both are
    the same formula.
    """
    case = golden("psal_weighting")
    runs = {run["name"]: (run, expected) for run, _, _, expected in case.runs()}
    inputs = {run["name"]: given for run, given, _, _ in case.runs()}[f"{name}_aggregate"]
    run, expected = runs[f"{name}_{form}"]
    shift, cost, value = (torch.from_numpy(inputs[key]) for key in ("shift_map", "cost_map", "v"))
    aggregate = form == "aggregate"
    r = run["patch_size"] // 2 if aggregate else 0
    index = (shift[0] * value.shape[2] + shift[1]).unsqueeze(0).to(torch.int32)
    index = torch.nn.functional.pad(index, (r, r, r, r), value=10 * value.shape[2] + 10)
    score = torch.nn.functional.pad(-cost.unsqueeze(0), (r, r, r, r), value=-10.0)
    options = LayerOptions(
        3,
        run["patch_size"],
        temperature=run["T"],
        reconstruction="aggregate" if aggregate else "center",
    )
    got = reconstruct(index, score, value.unsqueeze(0), options)
    got = got[..., r : got.shape[2] - r, r : got.shape[3] - r]
    torch.testing.assert_close(got, torch.from_numpy(expected[""]), atol=2e-5, rtol=0)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("attention", sorted(set(ATTENTIONS) - {"psal15", "psal31", "full-dot"}))
def test_training_through_the_colorization_network(attention: str, shared: bool) -> None:
    network = Colorization(channels=16, shared=shared)
    put(network, attention)
    generator = torch.Generator().manual_seed(0)
    gray = torch.rand(1, 1, 9, 9, generator=generator)
    network(gray, torch.rand(1, 3, 9, 9, generator=generator)).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        # Distances do not see a constant added to both maps; one match has no weight to move.
        if name != "embed.bias" and attention != "psal1":
            assert float(parameter.grad.abs().max()) > 0.0, name


def test_separate_convolutions_are_read_from_the_tensors() -> None:
    for shared in (True, False):
        state = Colorization(channels=4, shared=shared).state_dict()
        assert colorization_hyper(state) == {"channels": 4, "shared": shared}


def test_competitors_in_special_cases() -> None:
    query, key, value = maps((1, 2, 8, 8), (1, 2, 8, 8), (1, 3, 8, 8), grad=False)
    query, key, value = query.float(), key.float(), value.float()
    exact = full(query, key, value, 3)
    torch.testing.assert_close(full(query, key, value, 3, best=64), exact)
    torch.testing.assert_close(full(query, key, value, 3, at_once=1), exact)
    assert full(query, key, value, 3, stride=3).shape == value.shape
    # One pixel of window is the value itself; so is any mean of a constant.
    torch.testing.assert_close(local(query, key, value, 3, window=1), value)
    ones = torch.ones_like(value)
    for attend in (full, local, linear, performer, reformer):
        torch.testing.assert_close(attend(query, key, ones, 3), ones, atol=1e-4, rtol=0)
    # Many random features approach the softmax of dot products.
    scores_of = (query / 4).flatten(2)[0].T @ (key / 4).flatten(2)[0] / 2**0.5
    expected = (scores_of.softmax(1) @ value.flatten(2)[0].T).T.reshape(value.shape)
    got = performer(query / 4, key / 4, value, 1, features=20_000)
    torch.testing.assert_close(got, expected, atol=0.05, rtol=0)


def test_reformer_finds_the_same_patch() -> None:
    """Equal vectors share a bucket in every round, and sharp scores take the value of the key."""
    (image,) = maps((1, 16, 16, 16), grad=False)
    image = 200 * torch.nn.functional.normalize(image.float(), dim=1)
    got = reformer(image, image, image, 1)
    close = (got - image).abs().amax(1) < 1
    assert float(close.float().mean()) > 0.95


def test_reformer_where_all_share_a_bucket() -> None:
    """A query meets the keys around its own place; the first chunk wraps around."""
    flat = torch.ones(1, 3, 16, 16)
    rows = torch.arange(16.0).view(1, 1, 16, 1).expand(1, 1, 16, 16)
    got = reformer(flat, flat, rows, 1)
    torch.testing.assert_close(got[:, :, 2:], rows[:, :, 2:], atol=4, rtol=0)


def test_the_published_search_finds_what_is_there() -> None:
    """Its scores are those of its matches; with the keys shifted, the shift spreads."""
    (image,) = maps((1, 3, 16, 16), grad=False)
    shifted = image.roll((2, 3), (2, 3))
    options = PsalOptions(neighbors=2, patch_size=3, iterations=6)
    index, score = matches(shifted, image, options, search=published_search)
    torch.testing.assert_close(score, pair_scores(shifted, image, index, 3, "l2"))
    assert bool((score[:, 0] >= score[:, 1]).all())
    assert not bool((index[:, 0] == index[:, 1]).any())
    inside = score[0, 0, 4:-2, 4:-2] > -1e-9
    assert float(inside.double().mean()) > 0.9


def test_bad_reconstruction() -> None:
    with pytest.raises(NystraError, match="expected center, aggregate, votes"):
        LayerOptions(reconstruction="patch")
