"""The files of whole networks that are timed: 36 blocks, 180 channels, 6 heads, seeded weights.

SwinIR-M x2 (``w8``, ``w32``, ``w32b``) and HAT x4 (``hat``), the published forms but where said;
``hat-group`` is HAT with one of its six groups. ``w16``, ``nobias`` and ``sst`` are shipped ones:
``swinir_x2_w16``, ``swinir_x2_w32_nobias`` and ``sst_x2_w64``.

``w32`` is the network without position bias and shift mask, as ``--window 32`` and PnP-Nystra make
it of a network of another window; ``w32b`` is built with both, ``w8`` is the official one.
``int8`` has all layers but the first and last convolution in 8 bits. ``plain`` is an export by
``torch.onnx.export`` for the single timed input shape, which allows more constant folding than our
files of any size.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast
from unittest import mock

import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn

from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism as planned
from nystra.export.attention.site import resolve
from nystra.export.graph.int8.transform import quantize_model
from nystra.export.tracing.bodies import attach_bodies, inline_bodies
from nystra.export.tracing.site_graph import trace_network
from nystra.models import load
from nystra.models.architecture import PrecisionPolicy
from nystra.models.checkpoints.restorer import restorer_facts
from nystra.models.hat.network import HAT
from nystra.models.layers.image_network import ImageNetwork
from nystra.models.loading import LoadedModel
from nystra.models.swinir.network import SwinIR
from nystra.plugins.library import library_path
from nystra.plugins.operators.attention_torch import softmax_attention
from nystra.plugins.operators.window_softmax import torch_op
from nystra.runtime.metrics.measures import MEASURES

HEADS, HEAD_DIM, SIDE = 6, 30, 128
SHIPPED = {"w16": "swinir_x2_w16", "nobias": "swinir_x2_w32_nobias", "sst": "sst_x2_w64"}
"""How the files of shipped networks begin -> name of the network."""

SHIPPED_SIDE = 256
"""Of the image for shipped networks, which are small ones."""

OPSET = 20


def _shipped(name: str) -> LoadedModel | None:
    known = SHIPPED.get(name.partition("-")[0])
    return None if known is None else load(known)


def network(name: str) -> nn.Module:
    """Return SwinIR-M, HAT or a shipped network by the name of a file of it."""
    torch.manual_seed(0)
    if (shipped := _shipped(name)) is not None:
        return shipped.network
    if name.startswith("hat-"):
        return HAT(upscale=4, depths=[6] if "group" in name else [6] * 6).eval()
    official = not name.startswith("w32-")
    return SwinIR(
        upscale=2,
        embed_dim=HEADS * HEAD_DIM,
        depths=[6] * 6,
        num_heads=[HEADS] * 6,
        window_size=8 if name.startswith("w8-") else 32,
        upsampler="pixelshuffle",
        position_bias=official,
        mask=official,
    ).eval()


def make_image(name: str = "") -> Tensor:
    """Return the image for timing a network: (1, 3, side, side) in 0..1."""
    side = SHIPPED_SIDE if name.partition("-")[0] in SHIPPED else SIDE
    return torch.rand((1, 3, side, side), generator=torch.Generator().manual_seed(1))


def qkv() -> Tensor:
    """Return the map for timing a region: (1, 128, 128, 540)."""
    shape = (1, SIDE, SIDE, 3 * HEADS * HEAD_DIM)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Region(nn.Module):
    """The attention region of a shifted block, written as SwinIR does, with bias and mask."""

    def __init__(self, window: int) -> None:
        """Build it for maps of SIDE x SIDE with shift window / 2."""
        super().__init__()
        self.window, self.shift = window, window // 2
        rows = torch.arange(window)
        gap = (rows[:, None] - rows[None] + window - 1).repeat_interleave(window, 0)
        gap = gap.repeat_interleave(window, 1) * (2 * window - 1)
        gap = gap + (rows[:, None] - rows[None] + window - 1).repeat(window, window)
        self.register_buffer("index", gap)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, HEADS))
        border = torch.tensor([SIDE - window, window - self.shift, self.shift])
        part = torch.arange(3).repeat_interleave(border)
        regions = self.split((3 * part[:, None] + part[None])[None, :, :, None].float())[:, :, 0]
        self.register_buffer("mask", -100.0 * (regions[:, None] != regions[:, :, None]).float())

    def split(self, x: Tensor) -> Tensor:
        """Cut (1, SIDE, SIDE, C) into windows (n, tokens, C)."""
        n, w = SIDE // self.window, self.window
        x = x.view(1, n, w, n, w, x.shape[-1]).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(n * n, w * w, x.shape[-1])

    def forward(self, x: Tensor) -> Tensor:
        """Attend: (1, SIDE, SIDE, 540) to (1, SIDE, SIDE, 180)."""
        n, w = SIDE // self.window, self.window
        x = self.split(torch.roll(x, (-self.shift, -self.shift), (1, 2)))
        x = x.reshape(n * n, w * w, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        scores = (x[0] * HEAD_DIM**-0.5) @ x[1].transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(w * w, w * w, HEADS).permute(2, 0, 1)
        scores = scores + bias[None] + self.mask[:, None]
        x = (scores.softmax(-1) @ x[2]).transpose(1, 2).reshape(n, n, w, w, HEADS * HEAD_DIM)
        x = x.permute(0, 2, 1, 3, 4).reshape(1, SIDE, SIDE, HEADS * HEAD_DIM)
        return torch.roll(x, (self.shift, self.shift), (1, 2))


def _plain(module: nn.Module, example: Tensor, path: Path) -> None:
    torch.onnx.export(
        module.eval(),
        (example,),
        path,
        dynamo=True,
        opset_version=OPSET,
        external_data=False,
        input_names=["input"],
        output_names=["output"],
        verbose=False,
    )


def _shipped_plain(name: str, path: Path) -> None:
    _plain(network(name), make_image(name), path)


def _ours(
    name: str, mechanism: str, path: Path, *, inline: bool = False, int8: bool = False
) -> None:
    shipped, net = _shipped(name), network(name)
    if shipped is None:
        facts = restorer_facts("network", cast("ImageNetwork", net), {"in_chans": 3}, "none")
    else:
        facts = shipped.facts
    parameters = resolve(Plan(planned(mechanism)), net)
    model = trace_network(net, facts, OPSET).write_mechanisms(parameters)
    if int8:
        _quantize(model)
    attach_bodies(model)
    if inline:
        inline_bodies(model)
    onnx.save(model, path)


def _quantize(model: onnx.ModelProto) -> None:
    """Write 8-bit layers without an accuracy limit; the ranges are those of one image."""
    policy = PrecisionPolicy(modules=dict.fromkeys(("conv_first", "conv_last"), "an image's own"))
    feeds = [{"input": make_image().numpy()}]
    quantize_model(model, policy, feeds, MEASURES["picture"], -math.inf)


FILES: dict[str, Callable[[Path], None]] = {
    "region-8-plain": lambda path: _plain(Region(8), qkv(), path),
    "w32-plain": lambda path: _plain(network("w32-"), make_image(), path),
    "w32-nystra": lambda path: _ours("w32-", "nystra", path),
    "w32-nystra-inline": lambda path: _ours("w32-", "nystra", path, inline=True),
    "w32-int8": lambda path: _ours("w32-", "nystra", path, int8=True),
    "w32b-plain": lambda path: _plain(network("w32b-"), make_image(), path),
    "w32b-nystra": lambda path: _ours("w32b-", "nystra", path),
    **{f"{name}-plain": partial(_shipped_plain, name) for name in SHIPPED},
    **{f"{name}-full": partial(_ours, name, "full") for name in SHIPPED},
    **{f"{name}-cluster": partial(_ours, name, "cluster") for name in SHIPPED},
    "w8-plain": lambda path: _plain(network("w8-"), make_image(), path),
    "w8-full": lambda path: _ours("w8-", "full", path),
    "w8-int8": lambda path: _ours("w8-", "full", path, int8=True),
    "hat-plain": lambda path: _plain(network("hat-"), make_image(), path),
    "hat-full": lambda path: _ours("hat-", "full", path),
    "hat-cluster": lambda path: _ours("hat-", "cluster", path),
    "hat-group-plain": lambda path: _plain(network("hat-group-"), make_image(), path),
    "hat-group-full": lambda path: _ours("hat-group-", "full", path),
    "hat-group-cluster": lambda path: _ours("hat-group-", "cluster", path),
}
"""How each file is made."""

ON_LIBRARY = tuple(
    name for name in FILES if name.rpartition("-")[2] in ("nystra", "full", "cluster")
)
"""The files that run on the library."""


def file(name: str, folder: Path) -> Path:
    """Return the path of a file in the cache folder, which is created if it is missing."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        start = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{name}.unfinished.onnx"
        with torch.no_grad():
            FILES[name](unfinished)
        unfinished.replace(path)
        print(f"made {path} in {time.perf_counter() - start:.0f} s")
    return path


def session(name: str, folder: Path, threads: int) -> ort.InferenceSession:
    """Return a session on a file, with the library if the file has our operators."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_mem_reuse = (
        "inline" not in name
    )  # else onnxruntime 1.31 takes most of a minute to open it
    if name in ON_LIBRARY:
        options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(
        str(file(name, folder)), options, providers=["CPUExecutionProvider"]
    )


def explicit_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None
) -> Tensor:
    """Return softmax attention in three steps, as the published networks compute it."""
    scores = (q * scale) @ k.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1) @ v


def runner(name: str, folder: Path, threads: int) -> Callable[[], object]:
    """Return a function that runs a network or region once.

    Args:
        name: A key of ``FILES``, or the network in torch, eager: ``w32-torch``, ``w32b-torch`` with
            the scores as a matrix, as the published code has it, ``w32-sdpa`` with PyTorch's
            fused attention.
        folder: Cache of the files.
        threads: Of onnxruntime or torch.
    """
    kind = name.rpartition("-")[2]
    if kind in ("torch", "sdpa"):
        torch.set_num_threads(threads)
        net, image = network(name), make_image(name)
        attention = softmax_attention if kind == "sdpa" else explicit_attention

        def eager() -> object:
            swapped = mock.patch.object(torch_op, "softmax_attention", attention)
            with swapped, torch.inference_mode():
                return net(image)

        return eager
    runner, value = session(name, folder, threads), qkv() if "region" in name else make_image(name)
    feed = {"input": value.numpy()}
    return lambda: runner.run(None, feed)[0]
