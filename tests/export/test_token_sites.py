"""Token sites: the same mechanisms on lists of tokens, against goldens and each other."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance_models import session
from golden_cases import compare, golden
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.full.sites import FEWEST_SCORES
from nystra.export.attention.implementation import Form, implement
from nystra.export.attention.landmark_tokens import MAX_OF_ONE_NODE, make_pooling
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.nystra.parameters import Nystra, NystraPublished
from nystra.export.attention.nystromformer.parameters import Nystromformer
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.trace import trace_piece
from nystra.models.geometry import TokenGeometry, WindowGeometry
from nystra.models.sites import MapSite, TokenSite, WindowSite
from nystra.plugins.library import library_path

FORMS: tuple[Form, ...] = ("plain", "operator")

CASES = {
    "pnp_attn_swinir": ((8, 8), (4, 4), "swinir"),
    "pnp_attn_uformer": ((8, 8), (4, 4), "uformer"),
    "pnp_attn_rvrt_w1_8_8_m16": ((8, 8), (4, 4), "rvrt"),
    "pnp_attn_rvrt_w2_8_8_m32": ((8, 16), (4, 8), "rvrt"),
}


def projections(weights: dict[str, Tensor], x: Tensor) -> list[Tensor]:
    """Return q, k, v, each (B, N, dim)."""
    if "qkv.to_q.weight" in weights:
        q = torch.nn.functional.linear(x, weights["qkv.to_q.weight"], weights["qkv.to_q.bias"])
        kv = torch.nn.functional.linear(x, weights["qkv.to_kv.weight"], weights["qkv.to_kv.bias"])
        return [q, *kv.chunk(2, -1)]
    name = "qkv" if "qkv.weight" in weights else "qkv_self"
    packed = torch.nn.functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
    return list(packed.chunk(3, -1))


@pytest.mark.parametrize("name", CASES)
def test_attention_layers_of_the_reference(name: str) -> None:
    case = golden(name)
    grid, landmarks, architecture = CASES[name]
    constructor = case.constructor
    heads = constructor["num_heads"]
    scale = (constructor["dim"] // heads) ** -0.5
    published = NystraPublished(landmarks, constructor["iters"])
    parameters = published.for_network(architecture, {})
    site = TokenSite(TokenGeometry(grid, grid, scale))
    site.implementation = implement(parameters, site, "plain")  # type: ignore[assignment]
    weights = {key: torch.from_numpy(value) for key, value in case.weights().items()}
    for run, inputs, _, expected in case.runs():
        x = torch.from_numpy(inputs["x"])
        q, k, v = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in projections(weights, x)
        )
        merged = site.attend(q, k, v).transpose(1, 2).flatten(2)
        got = torch.nn.functional.linear(merged, weights["proj.weight"], weights["proj.bias"])
        for key, values in expected.items():
            output = next(output for output in run["outputs"] if output["name"] == key)
            tolerance = max(10 * output["max_abs_f32_minus_f64"], 1e-5 * output["absmax"])
            assert compare(run, key, got.numpy(), values) <= tolerance


def test_nystromformer_of_the_reference() -> None:
    case = golden("nystromformer_attn_noconv_original")
    tokens, landmarks = case.constructor["seq_len"], case.constructor["num_landmarks"]
    site = TokenSite(TokenGeometry((1, tokens), (1, tokens), case.constructor["head_dim"] ** -0.5))
    parameters = Nystromformer((1, landmarks), 6, "batch")
    site.implementation = implement(parameters, site, "plain")  # type: ignore[assignment]
    run, inputs, _, expected = next(case.runs())
    q, k, v = (torch.from_numpy(inputs[name]) for name in ("Q", "K", "V"))
    assert compare(run, "", site.attend(q, k, v).numpy(), expected[""]) < 1e-5


@pytest.mark.parametrize(
    "parameters",
    [Full(), Nystra((2, 3), 4), Nystromformer((2, 3), 4)],
    ids=str,
)
def test_a_window_site_is_token_sites_side_by_side(parameters: Mechanism) -> None:
    torch.manual_seed(0)
    heads, size, window = 2, 5, (4, 6)
    qkv = torch.randn(2, 8, 12, 3 * heads * size, dtype=torch.float64)
    geometry = WindowGeometry(heads, size, size, window, (0, 0), False, 0.4)
    windows: Any = implement(parameters, WindowSite(geometry), "plain")
    tokens_geometry = TokenGeometry(window, window, 0.4)
    tokens: Any = implement(parameters, TokenSite(tokens_geometry), "plain")
    got = windows(qkv, None, geometry)
    for row in (0, 4):
        for column in (0, 6):
            part = qkv[:, row : row + 4, column : column + 6].reshape(2, 24, 3, heads, size)
            q, k, v = part.permute(2, 0, 3, 1, 4)
            out = tokens(q, k, v, None, tokens_geometry)
            expected = out.transpose(1, 2).reshape(2, 4, 6, heads * size)
            torch.testing.assert_close(
                got[:, row : row + 4, column : column + 6], expected, atol=1e-12, rtol=0
            )


def test_cross_attention_between_uneven_grids() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 35, 4), torch.randn(1, 2, 66, 4)
    v = torch.randn(1, 2, 66, 3)
    geometry = TokenGeometry((5, 7), (6, 11), 0.5)
    for parameters in (Full(), Nystra((3, 3)), Nystromformer((3, 3))):
        tokens: Any = implement(parameters, TokenSite(geometry), "plain")
        assert tokens(q, k, v, None, geometry).shape == (1, 2, 35, 3)


class _Attention(torch.nn.Module):
    def __init__(self, computed: Any, geometry: TokenGeometry) -> None:
        super().__init__()
        self.computed, self.geometry = computed, geometry

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        out: Tensor = self.computed(q, k, v, bias, self.geometry)
        return out


@pytest.mark.full
@pytest.mark.parametrize(
    ("queries", "keys", "bias"),
    [
        (1025, 1025, None),
        (35, 66, None),
        (64, 16400, (1, 1, 1, 16400)),
        (1030, 1020, (2, 1030, 1020)),
    ],
    ids=["class token", "few", "hidden keys", "bias of pairs"],
)
def test_exact_attention_between_many_tokens_is_one_node(
    queries: int, keys: int, bias: tuple[int, ...] | None
) -> None:
    torch.manual_seed(0)
    geometry = TokenGeometry((1, queries), (1, keys), 0.5)
    site, shape = TokenSite(geometry), (1, 2)
    q, k, v = (torch.randn(*shape, n, c) for n, c in ((queries, 4), (keys, 4), (keys, 3)))
    inputs = [q, k, v]
    if bias is not None:
        inputs.append(torch.randn(bias).masked_fill(torch.rand(bias) < 0.5, -torch.inf))
    module = _Attention(implement(Full(), site, "operator"), geometry)
    names = ["q", "k", "v", "bias"][: len(inputs)]
    model = trace_piece(module, tuple(inputs), None, 20, names, "out")
    kinds = [node.op_type for node in model.graph.node]
    many = queries * keys >= FEWEST_SCORES
    assert kinds.count("NystraAttention") == many
    assert ("Softmax" in kinds) != many
    attach_bodies(model)
    feeds = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    plain = _Attention(implement(Full(), site, "plain"), geometry)(*inputs)
    (got,) = session(model).run(None, feeds)
    torch.testing.assert_close(torch.from_numpy(got), plain, atol=1e-5, rtol=0)


@pytest.mark.full
def test_exact_attention_over_a_map_of_any_size_is_one_node() -> None:
    torch.manual_seed(0)
    maps = [torch.randn(2, channels, 5, 7) for channels in (6, 6, 4)]
    site: Any = MapSite(0.3)
    expected = site.attend(*maps)
    site.implementation = implement(Full(), site, "operator")
    sizes = {2: torch.export.Dim("h", max=64), 3: torch.export.Dim("w", max=64)}

    class Whole(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = site.attend(q, k, v)
            return out

    model = trace_piece(Whole(), tuple(maps), (sizes,) * 3, 20, ["q", "k", "v"], "out")
    assert [node.op_type for node in model.graph.node].count("NystraAttention") == 1
    attach_bodies(model)
    feeds = {name: map_.numpy() for name, map_ in zip("qkv", maps, strict=True)}
    (got,) = session(model).run(None, feeds)
    torch.testing.assert_close(torch.from_numpy(got), expected, atol=1e-5, rtol=0)


def test_pooling_is_adaptive_average_pooling() -> None:
    torch.manual_seed(0)
    grid = torch.randn(1, 4, 7, 10)
    pooled = make_pooling((7, 10), (3, 4), grid) @ grid.flatten(2).transpose(1, 2)
    expected = torch.nn.functional.adaptive_avg_pool2d(grid, (3, 4))
    torch.testing.assert_close(pooled, expected.flatten(2).transpose(1, 2))


@pytest.mark.full
@pytest.mark.parametrize(("landmarks", "before"), [((3, 4), 1), ((7, 8), 0)])
@pytest.mark.parametrize("kind", [Nystra, Nystromformer])
def test_the_pseudoinverse_of_few_landmarks_is_one_node(
    kind: Any, landmarks: tuple[int, int], before: int
) -> None:
    torch.manual_seed(0)
    geometry = TokenGeometry((9, 10), (9, 10), 0.5)
    tokens = [torch.randn(1, 2, 90 + before, 4) for _ in range(3)]
    sites = [implement(kind(landmarks), TokenSite(geometry), form) for form in FORMS]
    plain, operator = (_Attention(computed, geometry) for computed in sites)
    model = trace_piece(operator, tuple(tokens), None, 20, ["q", "k", "v"], "out")
    few = math.prod(landmarks) + before <= MAX_OF_ONE_NODE
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("NystraPinv") == few
    attach_bodies(model)
    feeds = {name: tensor.numpy() for name, tensor in zip("qkv", tokens, strict=True)}
    for library in (None, library_path()):
        (got,) = session(model, library).run(None, feeds)
        torch.testing.assert_close(torch.from_numpy(got), plain(*tokens), atol=1e-4, rtol=0)
