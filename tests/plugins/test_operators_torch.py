"""What the conformance table does not cover: gradients, tracing, invariance, regions, the guard."""

import importlib

import numpy as np
import pytest
import torch
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.plugins.operators.attention.torch_op import attention
from nystra.plugins.operators.attention_torch import (
    landmark_pool,
    nystrom_attention,
    nystrom_terms,
    softmax_attention,
)
from nystra.plugins.operators.pinv.torch_op import pinv
from nystra.plugins.operators.window_nystrom.torch_op import window_nystrom, window_nystrom_terms
from nystra.plugins.operators.window_nystromformer.torch_op import window_nystromformer
from nystra.plugins.operators.window_softmax.torch_op import window_softmax
from reference.window_nystrom import reference
from reference.window_nystromformer import reference as former_reference

SIZES = {"heads": 2, "head_dim": 5, "value_dim": 3, "scale": 0.5}
WINDOW = {**SIZES, "window_h": 8, "window_w": 8}


def packed(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, 26, generator=generator, dtype=dtype)


@pytest.mark.parametrize("function", [window_nystrom, window_nystromformer, window_softmax])
def test_gradients(function) -> None:  # type: ignore[no-untyped-def]
    attributes = {**SIZES, "window_h": 4, "window_w": 4, "shift_h": 2, "shift_w": 2, "mask": 1}
    if function is not window_softmax:
        attributes |= {"landmark_rows": 2, "landmark_cols": 2, "iterations": 2}
    qkv = packed(1, 4, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, **attributes), (qkv,), fast_mode=True)


def test_gradients_of_attention_between_lists() -> None:
    lists = [torch.randn(1, 2, n, 3, dtype=torch.float64) for n in (4, 5, 5)]
    bias = torch.randn(1, 1, 4, 5, dtype=torch.float64)
    bias[..., 0, :] = -torch.inf  # of a query that sees no key
    inputs = [tensor.requires_grad_() for tensor in lists]

    def function(*qkv: Tensor) -> Tensor:
        return attention(*qkv, bias, bias=1, scale=0.5)

    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(1, 2, 3, 4), (1, 2, 5, 3), (1, 2, 5, 4)], r"k is .*; expected \(1, 2, 5, 4\)"),
        ([(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 6, 4)], r"v is .*; expected \(1, 2, 5, 4\)"),
        ([(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)], "expected at least one key"),
        ([(2, 3, 4), (2, 5, 4), (2, 5, 4)], "q is .*; expected .batch, heads, tokens, channels."),
    ],
)
def test_lists_that_do_not_fit_are_refused(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        attention(*map(torch.zeros, shapes), scale=1.0)


@pytest.mark.parametrize("function", [window_nystrom, window_nystromformer, window_softmax])
def test_meta(function) -> None:  # type: ignore[no-untyped-def]
    qkv = torch.empty(2, 16, 24, 26, device="meta")
    out = function(qkv, **WINDOW, shift_h=4, shift_w=4, mask=1)
    assert out.shape == (2, 16, 24, 6)
    assert out.device.type == "meta"


class Operators(torch.nn.Module):
    def forward(self, qkv: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        ops = torch.ops.nystra
        return (
            ops.window_softmax(qkv, table, 2, 5, 3, 8, 8, 4, 4, 1, 1, 0.5),
            ops.window_nystrom(qkv, 2, 5, 3, 8, 8, 4, 4, 1, 0.5, 4, 4, 6, 0, 5.0, 0.02),
            ops.window_nystromformer(qkv, 2, 5, 3, 8, 8, 4, 4, 1, 0.5, 4, 4, 6, 0),
            ops.pinv(qkv[..., :8, :8], 6, 0),
        )


def test_fake_kernels_keep_symbolic_shapes() -> None:
    importlib.import_module("nystra.plugins.operators.pinv.torch_op")
    dim = torch.export.Dim
    program = torch.export.export(
        Operators(),
        (packed(2, 16, 24), torch.randn(225, 2, dtype=torch.float64)),
        dynamic_shapes=({0: dim("b", max=64), 1: 8 * dim("h"), 2: 8 * dim("w")}, None),
    )
    batch, height, width = (
        next(node for node in program.graph.nodes if node.name == "qkv").meta["val"].shape[:3]
    )
    called = [n for n in program.graph.nodes if "nystra" in str(n.target)]
    assert [n.target.name() for n in called] == [
        "nystra::window_softmax",
        "nystra::window_nystrom",
        "nystra::window_nystromformer",
        "nystra::pinv",
    ]
    for node in called[:3]:
        assert node.meta["val"].shape == (batch, height, width, 6)
    assert all(isinstance(size, torch.SymInt) for size in (batch, height, width))
    outs = program.module()(packed(3, 8, 40), torch.randn(225, 2, dtype=torch.float64))
    assert [out.shape for out in outs[:3]] == [(3, 8, 40, 6)] * 3


def test_operator_schemas_hold() -> None:
    qkv = packed(1, 8, 8, dtype=torch.float32)
    lists = (torch.randn(1, 2, n, 4) for n in (3, 5, 5))
    for operator, arguments in (
        (torch.ops.nystra.pinv, (torch.randn(2, 4, 4), 3, 0)),
        (torch.ops.nystra.attention, (*lists, torch.randn(1, 1, 1, 5), 1, 0.5)),
        (
            torch.ops.nystra.window_nystrom,
            (qkv, 2, 5, 3, 8, 8, 0, 0, 0, 0.5, 4, 4, 6, 0, 5.0, 0.02),
        ),
    ):
        checks = ("test_schema", "test_faketensor")
        torch.library.opcheck(operator.default, arguments, test_utils=checks)


def test_empty_batch() -> None:
    out = torch.ops.nystra.window_nystrom(
        packed(0, 8, 8), 2, 5, 3, 8, 8, 0, 0, 0, 0.5, 4, 4, 6, 1, 5.0, 0.02
    )
    assert out.shape == (0, 8, 8, 6)


def test_refusals() -> None:
    with pytest.raises(NystraError, match=r"qkv has 26 channels; expected 39"):
        window_nystrom(packed(1, 8, 8), **{**WINDOW, "heads": 3})
    with pytest.raises(NystraError, match=r"width of the map is 9; .* multiple of the window, 8"):
        window_softmax(packed(1, 8, 9), **WINDOW)
    with pytest.raises(NystraError, match=r"bias table of shape \(3, 2\); expected \(225, heads\)"):
        window_softmax(packed(1, 8, 8), torch.zeros(3, 2), **WINDOW, bias=1)
    with pytest.raises(NystraError, match="cuts a landmark's cell"):
        window_nystrom(packed(1, 8, 8), **WINDOW, shift_h=3, mask=1)
    with pytest.raises(NystraError, match=r"A is \(3, 4\); expected"):
        torch.ops.nystra.pinv(torch.zeros(3, 4), 3, 0)


@pytest.mark.parametrize("function", [window_nystrom, window_nystromformer])
def test_default_start_value_is_batch_and_tile_invariant(function) -> None:  # type: ignore[no-untyped-def]
    qkv = 2 * packed(3, 16, 24)
    whole = function(qkv, **WINDOW)
    for image in range(3):
        alone = function(qkv[image : image + 1], **WINDOW)
        torch.testing.assert_close(alone[0], whole[image], rtol=0, atol=1e-12)
    tile = function(qkv[:, 8:16, 8:24], **WINDOW)
    torch.testing.assert_close(tile, whole[:, 8:16, 8:24], rtol=0, atol=1e-12)
    batched = function(qkv, **WINDOW, batch_init=1)
    assert (batched - whole).abs().max() > 1e-6, "the other start value depends on the batch"


@pytest.mark.parametrize("of", [reference, former_reference])
@pytest.mark.parametrize(("window", "landmarks"), [((8, 8), (4, 4)), ((8, 12), (2, 6))])
def test_cut_window_is_its_regions_alone(of, window, landmarks) -> None:  # type: ignore[no-untyped-def]
    """With shift w/2 the four regions of one window are windows of half the size."""
    qkv = 2 * packed(2, *window).numpy()
    half = (window[0] // 2, window[1] // 2)
    cut = of(
        qkv,
        **SIZES,
        window_h=window[0],
        window_w=window[1],
        shift_h=half[0],
        shift_w=half[1],
        mask=1,
        landmark_rows=landmarks[0],
        landmark_cols=landmarks[1],
        batch_init=0,
    )
    alone = of(
        np.roll(qkv, (-half[0], -half[1]), (1, 2)),
        **SIZES,
        window_h=half[0],
        window_w=half[1],
        landmark_rows=landmarks[0] // 2,
        landmark_cols=landmarks[1] // 2,
        batch_init=0,
    )
    np.testing.assert_allclose(cut, np.roll(alone, half, (1, 2)), rtol=0, atol=1e-12)


def test_landmark_pool_is_adaptive_pooling() -> None:
    for n, parts in ((8, 4), (7, 3), (4, 6), (1, 1), (17, 5)):
        values = torch.randn(1, 2, n, dtype=torch.float64)
        pooled = torch.nn.functional.adaptive_avg_pool1d(values, parts)
        matrix = landmark_pool(n, parts, dtype=torch.float64)
        torch.testing.assert_close(values @ matrix.T, pooled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_attention_is_the_explicit_softmax(dtype: torch.dtype) -> None:
    """The fused kernel has the accuracy of its type, also in float64."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 70, 10, generator=generator, dtype=dtype) * 2 for _ in range(3))
    bias = torch.randn(3, 70, 70, generator=generator, dtype=dtype)
    for added in (None, bias):
        logits = 0.7 * q.double() @ k.double().transpose(-2, -1)
        logits = logits if added is None else logits + added.double()
        want = logits.softmax(-1) @ v.double()
        got = softmax_attention(q, k, v, 0.7, added).double()
        explicit = 0.7 * q @ k.transpose(-2, -1)
        explicit = (explicit if added is None else explicit + added).softmax(-1) @ v
        limit = 1e-13 if dtype == torch.float64 else 3 * (explicit.double() - want).abs().max()
        assert (got - want).abs().max() <= limit


def test_pinv_tends_to_the_inverse() -> None:
    matrix = torch.eye(5, dtype=torch.float64) + 0.1 * torch.rand(2, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(pinv(matrix, 8), torch.linalg.inv(matrix), rtol=0, atol=1e-9)


def _tokens(sharpness: float) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 2, 64, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    pool = torch.kron(landmark_pool(8, 4), landmark_pool(8, 4)).double()
    q, k = q * sharpness, k * sharpness
    return q, k, v, pool @ q, pool @ k


def test_guard_touches_sharp_tokens_only() -> None:
    _, smooth = nystrom_terms(*_tokens(0.5), scale=0.3)
    assert smooth.shape == (1, 2, 64)
    assert (smooth == 1).all()
    out, sharp = nystrom_terms(*_tokens(4.0), scale=0.3)
    assert (sharp < 1).any()
    q, k, v, q_m, k_m = _tokens(4.0)
    assert out.abs().max() < 3 * v.abs().max() / 0.02, "the guard bounds the output"
    bare, untouched = nystrom_terms(q, k, v, q_m, k_m, scale=0.3, guard=0)
    assert (untouched == 1).all()
    kept = (sharp == 1).unsqueeze(-1).expand_as(out)
    torch.testing.assert_close(out[kept], bare[kept], rtol=1e-6, atol=1e-9)


def test_guarded_tokens_of_windows_are_where_the_map_says() -> None:
    qkv = 4 * packed(1, 16, 16)
    out, t = window_nystrom_terms(qkv, **WINDOW, shift_h=4, shift_w=4)
    assert t.shape == (1, 16, 16, 2)
    soft_only, touched = (t == 0), (t < 1)
    assert touched.any()
    bare = window_nystrom(qkv, **WINDOW, shift_h=4, shift_w=4, guard=0)
    same = ((out - bare).abs().unflatten(-1, (2, 3)).amax(-1)) < 1e-8
    assert same[~touched].all()
    assert not same[soft_only].any()


def test_an_overflowing_pseudoinverse_goes_soft() -> None:
    """If Z overflows, the two-step form is used, in torch and the reference."""
    q, k, v, q_m, k_m = _tokens(1.0)
    arguments = {"scale": 0.3, "iterations": 1}
    finite = nystrom_attention(q, k, v, q_m, k_m, **arguments)
    huge = nystrom_attention(
        q.float() * 1e15,
        k.float() * 1e15,
        v.float(),
        q_m.float() * 1e15,
        k_m.float() * 1e15,
        **arguments,
    )
    assert finite.isfinite().all()
    assert huge.isfinite().all()
