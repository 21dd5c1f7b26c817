"""Linear attention on lists of tokens, against the published layers and their formulas."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from golden_cases import compare, golden
from nystra.models.vit.linformer import linformer_attention
from nystra.models.vit.nystromformer import segment_attention, segment_means
from nystra.models.vit.performer import orthogonal_features, performer_attention


def runs(case: Any) -> Any:
    """Yield the inputs of each run by name and what checks a result, in tensors."""
    for run, inputs, kwargs, expected in case.runs():
        (name,) = expected
        unit = run["outputs"][0].get("max_abs_f32_minus_f64") or 0.0
        limit = max(10 * unit, 1e-5 * run["outputs"][0]["absmax"])

        def check(got: Tensor, run: Any = run, name: str = name, limit: float = limit) -> None:
            wanted = expected[name]  # noqa: B023 - called before the next run
            assert compare(run, name, got.numpy(), wanted) <= limit

        given = {key: torch.from_numpy(value) for key, value in inputs.items()}
        yield run["name"], given | {"mask": given.get("mask", kwargs.get("mask"))}, check


def weights_of(case: Any) -> dict[str, Tensor]:
    return {key: torch.from_numpy(value) for key, value in case.weights().items()}


def test_linformer_layer() -> None:
    case = golden("linformer_attn_lra")
    matrix = weights_of(case)["E"]
    for _, given, check in runs(case):
        seen = given["mask"][:, None, :, None]  # a layer of text zeroes what is padded
        k, v = given["K"] * seen, given["V"] * seen
        scale = case.constructor["head_dim"] ** -0.5
        check(linformer_attention(given["Q"], k, v, matrix, matrix, scale))


@pytest.mark.parametrize("kind", ["relu", "exp"])
def test_performer_layer(kind: str) -> None:
    """The published layer computes the softmax kernel for every setting."""
    case = golden(f"performer_attn_lra_{kind}")
    directions = weights_of(case)["attn_fn.projection_matrix"]
    for _, given, check in runs(case):
        seen = given["mask"][:, None, :, None]
        k, v = given["K"] * seen, given["V"] * seen
        scale = 1 / case.constructor["head_dim"]
        check(performer_attention(given["Q"], k, v, directions, scale))


@pytest.mark.parametrize(
    "name", ["conv_exact", "conv_original", "landmarks_eq_len", "noconv_original"]
)
def test_nystromformer_layer(name: str) -> None:
    """Without a mask: images have none."""
    case = golden(f"nystromformer_attn_{name}")
    made = case.constructor
    for run, given, check in runs(case):
        if run == "full":
            out = segment_attention(
                given["Q"],
                given["K"],
                given["V"],
                made["num_landmarks"],
                made["head_dim"] ** -0.5,
                start=made.get("inv_init_coeff_option", "original"),
                taps=weights_of(case).get("conv.weight"),
            )
            check(out)


@pytest.mark.parametrize("name", ["softmax", "linformer", "performer", "nystrom"])
def test_layer_with_projections(name: str) -> None:
    case = golden(f"lra_attention_{name}")
    weights, made = weights_of(case), case.constructor
    scale = made["head_dim"] ** -0.5
    attentions: dict[str, Any] = {
        "softmax": lambda q, k, v: (q @ k.mT * scale).softmax(-1) @ v,
        "linformer": lambda q, k, v: linformer_attention(
            q, k, v, weights["attn.E"], weights["attn.E"], scale
        ),
        "performer": lambda q, k, v: performer_attention(
            q, k, v, weights["attn.attn_fn.projection_matrix"], scale**2
        ),
        "nystrom": lambda q, k, v: segment_attention(
            q, k, v, made["num_landmarks"], scale, taps=weights.get("attn.conv.weight")
        ),
    }
    for run, given, check in runs(case):
        if run == "full":
            q, k, v = (
                linear(given["X"], weights[f"{part}.weight"], weights[f"{part}.bias"])
                .unflatten(-1, (made["num_head"], -1))
                .transpose(1, 2)
                for part in ("W_q", "W_k", "W_v")
            )
            mixed = attentions[name](q, k, v).transpose(1, 2).flatten(2)
            check(linear(mixed, weights["ff.weight"], weights["ff.bias"]))


def test_uneven_segments() -> None:
    case = golden("nystromformer_t2t_attn")
    weights, made = weights_of(case), case.constructor
    for _, given, check in runs(case):
        packed = linear(given["x"], weights["qkv.weight"], weights["qkv.bias"])
        q, k, v = packed.unflatten(-1, (3, made["num_heads"], -1)).permute(2, 0, 3, 1, 4)
        out = segment_attention(
            q,
            k,
            v,
            made["num_landmarks"],
            (made["dim"] // made["num_heads"]) ** -0.5,
            start="exact",
            padding="none",
            taps=weights["conv.weight"],
        )
        merged = linear(
            out.transpose(1, 2).flatten(2), weights["proj.weight"], weights["proj.bias"]
        )
        check(merged + v.transpose(1, 2).flatten(2))


def test_padding_at_the_front() -> None:
    case = golden("nystrom_attention_front_pad")
    weights, made = weights_of(case), case.constructor
    for run, given, check in runs(case):
        if not run.endswith("_mask"):
            q, k, v = (
                part.unflatten(-1, (made["heads"], -1)).transpose(1, 2)
                for part in linear(given["x"], weights["to_qkv.weight"]).chunk(3, -1)
            )
            out = segment_attention(
                q,
                k,
                v,
                made["num_landmarks"],
                made["dim_head"] ** -0.5,
                padding="front",
                taps=weights["res_conv.weight"],
            )
            merged = out.transpose(1, 2).flatten(2)
            check(linear(merged, weights["to_out.0.weight"], weights["to_out.0.bias"]))


def test_the_exact_start_does_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 13, 4).unbind()
    k[1] *= 4.0
    first = [part[:1] for part in (q, k, v)]
    for start, alone in (("exact", True), ("original", False)):
        whole = segment_attention(q, k, v, 4, 0.5, start=start)[:1]  # type: ignore[arg-type]
        single = segment_attention(*first, 4, 0.5, start=start)  # type: ignore[arg-type]
        assert torch.allclose(whole, single, atol=1e-5) is alone


def test_segments_share_the_tokens() -> None:
    means = segment_means(13, 4, torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close((means > 0).sum(1), torch.tensor([3, 3, 3, 4]))
    torch.testing.assert_close(means.sum(1), torch.ones(4, dtype=torch.float64))
    with pytest.raises(ValueError, match="5 landmarks, expected at most 4"):
        segment_means(4, 5, means)


def test_features_are_orthogonal_in_blocks() -> None:
    rows = orthogonal_features(11, 4, 0).double().numpy()
    assert rows.shape == (11, 4)
    for block in (rows[:4], rows[4:8], rows[8:]):
        gram = block @ block.T
        assert np.abs(gram - np.diag(np.diag(gram))).max() < 1e-5
    assert not np.array_equal(rows, orthogonal_features(11, 4, 1).numpy())


def test_relu_features_by_their_formula() -> None:
    random = np.random.default_rng(0)
    q, k, v = random.standard_normal((3, 1, 2, 5, 4))
    directions = orthogonal_features(6, 4, 0).double()
    got = performer_attention(*map(torch.from_numpy, (q, k, v)), directions, 0.25, "relu")
    for head in range(2):
        phi_q, phi_k = (
            np.maximum(part[0, head] * 0.5 @ directions.numpy().T, 0.0) + 1e-3 for part in (q, k)
        )
        weights = phi_q @ phi_k.T
        expected = weights / weights.sum(1, keepdims=True) @ v[0, head]
        np.testing.assert_allclose(got[0, head].numpy(), expected, rtol=1e-12)


def test_many_features_come_near_softmax() -> None:
    """For short vectors; for long ones most features are below the added floor."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 20, 8, dtype=torch.float64).unbind()
    q, k = q / 3, k / 3
    exact = (q @ k.mT * 8**-0.5).softmax(-1) @ v
    errors = [
        float(
            (
                performer_attention(q, k, v, orthogonal_features(count, 8, 0).double(), 8**-0.5)
                - exact
            ).norm()
            / exact.norm()
        )
        for count in (8, 2048)
    ]
    assert errors[1] < 0.1 < errors[0]
