"""Files of others that hold whole attentions, rotary embeddings and norms as one operator each."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from nystra.export.attention.site import find_sites
from nystra.export.load.onnx_file import load_onnx
from onnx_files import Writer

SIDE, HEADS, WIDTH = 8, 2, 8
TOKENS, CHANNELS = SIDE * SIDE, HEADS * WIDTH
MICROSOFT = "com.microsoft"


def transformer(path: Path, attend: Callable[[Writer, str, str, str], str], opset: int) -> Path:
    """Write a network of one attention over the 8x8 patches of an image of 16x16 pixels.

    ``attend`` takes queries, keys and values (1, N, h d) and returns their attention.
    """
    w = Writer()
    x = w.op("Conv", "x", w.weight(CHANNELS, 3, 2, 2, scale=0.3), strides=[2, 2])
    x = w.op("Reshape", x, w.whole(1, CHANNELS, TOKENS))
    tokens = w.op("Transpose", x, perm=[0, 2, 1])
    q, k, v = (w.op("MatMul", tokens, w.weight(CHANNELS, CHANNELS, scale=0.4)) for _ in range(3))
    out = w.op("Add", tokens, attend(w, q, k, v))
    back = w.op("Transpose", out, perm=[0, 2, 1])
    back = w.op("Reshape", back, w.whole(1, CHANNELS, SIDE, SIDE))
    w.op("ConvTranspose", back, w.weight(CHANNELS, 3, 2, 2, scale=0.2), strides=[2, 2])
    shape = [1, 3, 2 * SIDE, 2 * SIDE]
    onnx.save(w.model(shape, shape, {"": opset, MICROSOFT: 1}, ir_version=10), path)
    return path


def heads(w: Writer, x: str) -> str:
    apart = w.op("Reshape", x, w.whole(1, TOKENS, HEADS, WIDTH))
    return w.op("Transpose", apart, perm=[0, 2, 1, 3])


def together(w: Writer, x: str) -> str:
    return w.op("Reshape", w.op("Transpose", x, perm=[0, 2, 1, 3]), w.whole(1, TOKENS, CHANNELS))


def caches(w: Writer, rows: int) -> tuple[str, str]:
    """Return cosines and sines of the angles of every place, (rows, d / 2)."""
    angles = np.arange(rows)[:, None] * 10.0 ** -np.arange(WIDTH // 2)
    return (w.constant(turn(angles).astype(np.float32)) for turn in (np.cos, np.sin))


def masked(w: Writer, q: str, k: str, v: str) -> str:
    near = np.abs(np.arange(TOKENS)[:, None] - np.arange(TOKENS)) < 20
    apart = [heads(w, x) for x in (q, k, v)]
    return together(w, w.op("Attention", *apart, w.constant(near)))


def packed(w: Writer, q: str, k: str, v: str) -> str:
    bias = w.weight(1, HEADS, TOKENS, TOKENS)
    return w.op("Attention", q, k, v, bias, q_num_heads=HEADS, kv_num_heads=HEADS, scale=0.3)


def microsoft(w: Writer, q: str, k: str, v: str) -> str:
    return w.op("MultiHeadAttention", q, k, v, num_heads=HEADS, domain=MICROSOFT)


def microsoft_biased(w: Writer, q: str, k: str, v: str) -> str:
    bias = w.weight(1, HEADS, TOKENS, TOKENS)
    return w.op(
        "MultiHeadAttention", q, k, v, "", "", bias, num_heads=HEADS, scale=0.3, domain=MICROSOFT
    )


def rotary(w: Writer, q: str, k: str, v: str) -> str:
    apart = [w.op("RMSNormalization", heads(w, x), w.weight(WIDTH), axis=-1) for x in (q, k)]
    cos, sin = caches(w, TOKENS)
    cos, sin = (w.op("Unsqueeze", x, w.whole(0)) for x in (cos, sin))
    turned = [w.op("RotaryEmbedding", x, cos, sin) for x in apart]
    return together(w, w.op("Attention", *turned, heads(w, v)))


def microsoft_rotary(w: Writer, q: str, k: str, v: str) -> str:
    places = w.constant(np.arange(TOKENS)[None])
    cos, sin = caches(w, TOKENS)
    turned = [
        w.op("RotaryEmbedding", x, places, cos, sin, num_heads=HEADS, domain=MICROSOFT)
        for x in (q, k)
    ]
    return w.op("MultiHeadAttention", *turned, v, num_heads=HEADS, domain=MICROSOFT)


@pytest.mark.parametrize(
    ("attend", "opset"),
    [
        (masked, 23),
        (packed, 24),
        (microsoft, 17),
        (microsoft_biased, 20),
        (rotary, 23),
        (microsoft_rotary, 17),
    ],
)
def test_the_attention_of_one_operator_is_a_site(
    attend: Callable[[Writer, str, str, str], str], opset: int, tmp_path: Path
) -> None:
    """A site is compared with the operator, in onnxruntime, before it is one."""
    loaded = load_onnx(transformer(tmp_path / "theirs.onnx", attend, opset), {})
    assert len(find_sites(loaded.network)) == 1, loaded.warnings


def biased_projection(w: Writer, q: str, k: str, v: str) -> str:
    bias = w.weight(3 * CHANNELS)
    return w.op("MultiHeadAttention", q, k, v, bias, num_heads=HEADS, domain=MICROSOFT)


def causal(w: Writer, q: str, k: str, v: str) -> str:
    return together(w, w.op("Attention", *(heads(w, x) for x in (q, k, v)), is_causal=1))


def grouped(w: Writer, q: str, k: str, v: str) -> str:
    """Two heads share keys and values."""
    fewer = [w.op("MatMul", x, w.weight(CHANNELS, CHANNELS // 2, scale=0.4)) for x in (k, v)]
    return w.op("Attention", q, *fewer, q_num_heads=HEADS, kv_num_heads=HEADS // 2)


@pytest.mark.parametrize(
    ("attend", "reason"),
    [
        (biased_projection, "MultiHeadAttention has inputs that are not read"),
        (causal, "its attention is causal"),
        (grouped, "several heads share their keys"),
    ],
)
def test_what_is_not_read_stays_and_is_said(
    attend: Callable[[Writer, str, str, str], str], reason: str, tmp_path: Path
) -> None:
    loaded = load_onnx(transformer(tmp_path / "theirs.onnx", attend, 23), {})
    assert not find_sites(loaded.network)
    assert reason in loaded.warnings[-1]
