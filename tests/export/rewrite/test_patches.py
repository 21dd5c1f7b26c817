"""Attention over all patches of an image of any size, as diffusion transformers have it."""

from pathlib import Path

import onnx

from nystra.export.attention.site import find_sites
from nystra.export.load.onnx_file import load_onnx
from nystra.models.sites import MapSite
from onnx_files import Writer

HEADS, WIDTH = 2, 4
CHANNELS = HEADS * WIDTH


def heads(w: Writer, tokens: str, batch: str) -> str:
    flat = w.op("MatMul", tokens, w.weight(CHANNELS, CHANNELS, scale=0.5))
    apart = w.op("Reshape", flat, w.sizes(batch, -1, HEADS, WIDTH))
    return w.op("Transpose", apart, perm=[0, 2, 1, 3])


def patches(path: Path) -> Path:
    """Write a network of one attention over the patches of 2x2 pixels."""
    w = Writer()
    batch, rows, columns = (
        w.op("Slice", w.op("Shape", "x"), w.whole(at), w.whole(at + 1)) for at in (0, 2, 3)
    )
    x = w.op("SpaceToDepth", "x", blocksize=2)
    x = w.op("Reshape", x, w.sizes(batch, 12, -1))
    tokens = w.op("Transpose", x, perm=[0, 2, 1])
    tokens = w.op("MatMul", tokens, w.weight(12, CHANNELS, scale=0.5))
    q, k, v = (heads(w, tokens, batch) for _ in range(3))
    scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2]))
    out = w.op("MatMul", w.op("Softmax", scores, axis=-1), v)
    out = w.op("Transpose", out, perm=[0, 2, 1, 3])
    out = w.op("Add", tokens, w.op("Reshape", out, w.sizes(batch, -1, CHANNELS)))
    out = w.op("MatMul", out, w.weight(CHANNELS, 12, scale=0.5))
    out = w.op("Transpose", out, perm=[0, 2, 1])
    half = [w.op("Div", side, w.whole(2)) for side in (rows, columns)]
    out = w.op("Reshape", out, w.sizes(batch, 12, *half))
    w.op("DepthToSpace", out, blocksize=2)
    sides = ["b", 3, "h", "w"]
    onnx.save(w.model(sides, sides, {"": 18}), path)
    return path


def test_attention_over_patches_of_any_image_is_a_site(tmp_path: Path) -> None:
    """A site is compared with the file at two sizes before it is one."""
    loaded = load_onnx(patches(tmp_path / "theirs.onnx"), {})
    (site,) = find_sites(loaded.network)
    assert isinstance(site.module, MapSite)
    assert not loaded.warnings
    assert loaded.facts.inputs[0].multiple == 2
