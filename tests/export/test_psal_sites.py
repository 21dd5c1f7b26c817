"""Mechanism psal at every kind of site: with all keys it is exact attention; its plan."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.export.attention.implementation import implement
from nystra.export.attention.plan import Plan, parse_plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import resolve, swap
from nystra.models.colorization.network import Colorization
from nystra.models.contextual_attention.network import ContextualAttention
from nystra.models.csnln.network import CrossScaleAttention
from nystra.models.geometry import PatchGeometry, TokenGeometry, WindowGeometry
from nystra.models.layers.patches import exact_patches
from nystra.models.psal.search import PsalOptions, matches
from nystra.models.psal.values import aggregate_values, match_logits
from nystra.models.sites import MapSite, PatchSite, TokenSite, WindowSite

KINDS = {
    "l2": PatchGeometry(3, "l2", 0.1, border="replicate"),
    "l2, zeros around": PatchGeometry(3, "l2", 0.1),
    "dot": PatchGeometry(5, scale=0.1),
    "cross-scale": PatchGeometry(
        3, scale=2.0, key_norm="floor", value_patch=6, value_stride=2, divisor=6.0
    ),
    "shrunk": PatchGeometry(
        3, scale=3.0, key_norm="ridge", key_epsilon=0.1, shrink=2, value_patch=4, value_stride=2
    ),
}


def maps(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def patch_maps(geometry: PatchGeometry) -> list[Tensor]:
    s, t = geometry.shrink, geometry.value_stride
    return maps((2, 3, 6 * s, 8 * s), (2, 3, 5 * s, 6 * s), (2, 4, 5 * t, 6 * t))


def at(site: Any, name: str = "psal", form: Any = "plain", **parameters: Any) -> Any:
    return implement(mechanism(name, **parameters), site, form)


@pytest.mark.parametrize("kind", KINDS)
def test_patch_sites_with_all_keys_are_exact(kind: str) -> None:
    geometry = KINDS[kind]
    query, key, value = patch_maps(geometry)
    got = at(PatchSite(geometry), neighbors=30)(query, key, value, None, geometry)
    expected = exact_patches(query, key, value, None, geometry)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_masked_keys_are_left_out() -> None:
    """Exact attention keeps them with the score 0, which is negligible at this scale."""
    geometry = PatchGeometry(
        3, scale=60.0, key_norm="ridge", shrink=2, value_patch=4, value_stride=2, divisor=4.0
    )
    query, key, value = patch_maps(geometry)
    mask = torch.ones(1, 1, 10, 12, dtype=torch.float64)
    mask[..., 4:6, 6:8] = 0
    value = value.where(mask > 0, 1e3)
    got = at(PatchSite(geometry), neighbors=25)(query, key, value, mask, geometry)
    expected = exact_patches(query, key, value, mask, geometry)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)
    assert float(got.abs().max()) < 10.0


def test_few_neighbors_are_close_where_attention_is_sharp() -> None:
    site = ContextualAttention(fuse=False)
    b, noise = maps((1, 3, 20, 24), (1, 3, 20, 24))
    f = torch.roll(b, (2, -4), (2, 3)) + 0.1 * noise  # matches that lie side by side
    exact = site(f, b)
    site.implementation = at(site, neighbors=8)
    difference = (site(f, b) - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert 1e-9 < float(difference) < 0.05


def test_the_plan_may_compare_unshrunk_maps_and_paste_single_pixels() -> None:
    """Section 4.4: patch 7, full resolution, the central pixel."""
    site = ContextualAttention()
    f, b = maps((1, 3, 12, 10), (1, 3, 12, 10))
    site.implementation = at(site, full_size=True, patch_size=7, neighbors=2, metric="l2")
    zeros = PatchGeometry(7, "l2", scale=10.0)
    expected = at(PatchSite(zeros), neighbors=2)(f, b, b, None, zeros)
    assert torch.equal(site(f, b), expected)
    cross = CrossScaleAttention(4, scale=2)  # its values are finer than its keys: nothing to undo
    image = torch.rand(1, 4, 6, 6)
    cross.implementation = at(cross)
    usual = cross(image)
    cross.implementation = at(cross, full_size=True)
    assert torch.equal(cross(image), usual)


def test_aggregation_at_a_patch_site_is_equation_10() -> None:
    geometry = KINDS["l2"]
    query, key, value = patch_maps(geometry)
    got = at(PatchSite(geometry), aggregate=True, temperature=2.0, seed=3)(
        query, key, value, None, geometry
    )
    index, score = matches(query, key, PsalOptions(3, 3, seed=3))
    expected = aggregate_values(match_logits(index, score, 20.0), index, value, 3)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


@pytest.mark.full
@pytest.mark.parametrize("shift", [(0, 0), (2, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_window_sites_with_all_keys_are_exact(shift: tuple[int, int], masked: bool) -> None:
    geometry = WindowGeometry(2, 5, 3, (4, 4), shift, masked, 0.4)
    site = WindowSite(geometry)
    qkv, table = maps((2, 8, 12, 26), (49, 2))
    for bias in (None, table):
        got = at(site, neighbors=16)(qkv, bias, geometry)
        expected = at(site, "full")(qkv, bias, geometry)
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_window_sites_find_the_best_tokens() -> None:
    """Tokens whose dot product decreases with their distance."""
    geometry = WindowGeometry(1, 16, 4, (8, 8), (0, 0), False, 3.0)
    angles = torch.arange(8.0)[:, None] * torch.tensor([0.2, 0.4, 0.7, 1.1])
    waves = torch.cat((angles.cos(), angles.sin()), 1).double()
    tokens = torch.cat((waves[:, None].expand(8, 8, 8), waves[None].expand(8, 8, 8)), 2)
    (v,) = maps((8, 8, 4))
    qkv = torch.cat((tokens, tokens, v), 2).unsqueeze(0)
    exact = (tokens.view(64, 16) @ tokens.view(64, 16).T * 3.0).topk(5)
    expected = (exact.values.softmax(1).unsqueeze(-1) * v.view(64, 4)[exact.indices]).sum(1)
    got = at(WindowSite(geometry), neighbors=5)(qkv, None, geometry).view(64, 4)
    same = (got - expected).abs().amax(1) < 1e-3
    assert float(same.double().mean()) > 0.9  # the search is approximate


def test_token_sites_with_all_keys_are_exact() -> None:
    q, k, v, bias = maps((2, 2, 12, 4), (2, 2, 10, 4), (2, 2, 10, 3), (2, 12, 10))
    for grid in ((3, 4), (3, 3)):  # (3, 3): tokens that do not fill their grid
        geometry = TokenGeometry(grid, (2, 5), 0.5)
        site = TokenSite(geometry)
        got = at(site, neighbors=10)(q, k, v, bias, geometry)
        expected = at(site, "full")(q, k, v, bias, geometry)
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_map_sites_are_exact_in_local_windows() -> None:
    q, k, v = maps((2, 3, 7, 9), (2, 3, 7, 9), (2, 4, 7, 9))
    got = at(MapSite(), local_window=4)(q, k, v, 0.3)
    for rows in (slice(0, 4), slice(4, 7)):
        for columns in (slice(0, 4), slice(4, 8), slice(8, 9)):
            part = [tensor[:, :, rows, columns] for tensor in (q, k, v)]
            expected = at(MapSite(), "full")(*part, 0.3)
            torch.testing.assert_close(got[:, :, rows, columns], expected, atol=1e-12, rtol=0)


def test_a_window_with_fewer_tokens_than_neighbors_keeps_full_attention() -> None:
    geometry = WindowGeometry(1, 2, 2, (4, 4), (0, 0), False, 1.0)
    assert mechanism("psal", neighbors=16).fits(geometry) == ""
    reason = mechanism("psal", neighbors=17).fits(geometry)
    assert reason == "more neighbors than tokens of the 4x4 window"


def test_a_psal_plan_survives_its_json() -> None:
    parameters = mechanism(
        "psal", neighbors=5, search_iterations=2, patch_size=7, metric="l2", seed=9,
        temperature=0.5, aggregate=True, full_size=True, local_window=16, mask="none",
    )  # fmt: skip
    document = json.loads(json.dumps(Plan(parameters).as_dict()))
    assert parse_plan(document).default == parameters
    assert "landmarks" not in document["default"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("neighbors", 33, "`neighbors` is 33, expected a whole number from 1 to 32"),
        ("patch_size", 4, "0 \\(as in the network\\) or an odd number"),
        ("metric", "l1", "site, l2, dot or cosine"),
        ("seed", 4096, "a whole number from 0 to 4095"),
        ("temperature", 0.0, "a number from 1e-06 to 1e\\+06"),
        ("aggregate", 1, "`aggregate` is 1, expected true or false"),
        ("search_iterations", 17, "a whole number from 1 to 16"),
        ("local_window", 0, "a whole number from 1 to 1024"),
        ("neighbor", 3, "unknown key 'neighbor'"),
    ],
)
def test_bad_parameters(key: str, value: Any, message: str) -> None:
    document = {"schema_version": 1, "default": {"mechanism": "psal", key: value}}
    with pytest.raises(NystraError, match=message):
        parse_plan(document)


def test_operator_form_equals_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_TORCH_KERNELS", "0")  # kernels round otherwise
    network = Colorization(channels=4, patch=3).eval()
    resolved = resolve(Plan(mechanism("psal", aggregate=True)), network)
    generator = torch.Generator().manual_seed(0)
    gray, reference = (torch.rand(2, c, 9, 11, generator=generator) for c in (1, 3))
    with torch.no_grad():
        plain, operator = (swap(network, resolved, form) for form in ("plain", "operator"))
        assert torch.equal(plain(gray, reference), operator(gray, reference))
