"""PyTorch's fused attention of any number of axes, with masks of every form, in a file.

A query whose keys are all hidden gets zeros in PyTorch, and so in a file.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import found_toys as toys
from conformance_models import session
from later import full, release
from nystra.export import ExportOptions, Plan, export_module, mechanism, replacement_timing
from nystra.export.attention.full import sites
from nystra.export.tracing.programs import export_program
from nystra.export.tracing.trace import convert_program, optimize_graph, trace_piece
from nystra.plugins.domain import DOMAIN
from nystra.runtime import Session

IMAGES, WINDOWS, HEADS, QUERIES, KEYS, CHANNELS, VALUES = 2, 3, 4, 5, 6, 8, 7

LEADING: dict[int, tuple[int, ...]] = {
    2: (),
    3: (IMAGES,),
    4: (IMAGES, HEADS),
    5: (IMAGES, WINDOWS, HEADS),
    6: (IMAGES, 2, WINDOWS, HEADS),
}
"""Number of axes -> those before tokens and channels."""

NAMED: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"scale": 0.3},
    {"scale": 0.3, "is_causal": True},
]


def mask_shapes(axes: int) -> list[tuple[int, ...]]:
    """Return every shape that is broadcast to the scores, with 2 axes and more."""
    leading = LEADING[axes]
    shapes = []
    for count in range(len(leading) + 1):
        sides = [(1, side) for side in leading[len(leading) - count :]]
        tokens = [(QUERIES, KEYS), (1, KEYS), (QUERIES, 1)]
        shapes += [(*before, *pair) for before in itertools.product(*sides) for pair in tokens]
    return shapes


KINDS = ("finite", "bool", "-inf")
"""Of masks: biases, and those that hide keys and whole rows of keys."""


def masked(kind: str, biases: Tensor) -> Tensor:
    """Return a mask of a kind; those that hide keys hide all of some query."""
    visible = biases > -1.0
    visible[(0,) * (biases.dim() - 1)] = False
    if kind == "bool":
        return visible
    return biases if kind == "finite" else biases.masked_fill(~visible, -math.inf)


class Masked(nn.Module):
    """Attention with all masks of a number of axes."""

    def __init__(self, axes: int, kind: str) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        biases = [torch.randn(shape, generator=random) for shape in mask_shapes(axes)]
        self.masks = [masked(kind, bias) for bias in biases]

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.stack([F.scaled_dot_product_attention(q, k, v, mask) for mask in self.masks])


class Named(nn.Module):
    """Attention with every combination of other arguments."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.stack([F.scaled_dot_product_attention(q, k, v, **more) for more in NAMED])


class Grouped(nn.Module):
    """Attention in which several heads of queries share keys and values."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (tensor[..., :2, :, :] for tensor in (k, v))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


class MaskOfPixels(nn.Module):
    """Attention with a mask that is computed, of as many axes as the scores."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = (q.mean(-1, keepdim=True) + k.mean(-1)[..., None, :]) > 0
        mask[..., 1, :] = False
        biases = torch.zeros_like(q[..., :1] * k[..., 0].unsqueeze(-2)).masked_fill(
            ~mask, -math.inf
        )
        both = [F.scaled_dot_product_attention(q, k, v, one) for one in (mask, biases)]
        return torch.stack(both)


class GroupedAndMasked(Grouped):
    """The same, with a row of keys that are all hidden."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (tensor[..., :2, :, :] for tensor in (k, v))
        mask = torch.arange(QUERIES)[:, None] != torch.full((KEYS,), 1)
        return F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)


class Shared(nn.Module):
    """Attention in which all images have the keys of the first."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k[:1], v[:1])


def check(module: nn.Module, axes: int, opset: int = 20) -> None:
    """Compare a module with its file for the traced number of images and another one."""
    fixed = axes == 2 or isinstance(module, Masked)  # some masks have as many images
    free = None if fixed else ({0: Dim.DYNAMIC},) * 3

    def inputs(images: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(images)
        leading = (images, *LEADING[axes][1:]) if axes > 2 else ()
        tokens = [(QUERIES, CHANNELS), (KEYS, CHANNELS), (KEYS, VALUES)]
        return [torch.randn(*leading, *pair, generator=random) for pair in tokens]

    model = trace_piece(module, tuple(inputs(IMAGES)), free, opset, ["q", "k", "v"], "y")
    run = session(model)
    for images in (IMAGES,) if fixed else (IMAGES, 3):
        given = inputs(images)
        feeds = {name: tensor.numpy() for name, tensor in zip("qkv", given, strict=True)}
        (output,) = run.run(None, feeds)
        np.testing.assert_allclose(output, module(*given), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [2, *full(3, 4, 5), *release(6)])
def test_masks(axes: int, kind: str) -> None:
    check(Masked(axes, kind), axes)


@pytest.mark.parametrize("axes", [2, *full(3, 4, 5, 6)])
def test_other_arguments(axes: int) -> None:
    check(Named(), axes)


@pytest.mark.full
@pytest.mark.parametrize("axes", [4, *full(5, 6)])
def test_groups_of_heads(axes: int) -> None:
    check(Grouped(), axes)
    check(GroupedAndMasked(), axes)


@pytest.mark.parametrize("axes", [2, *full(3, 4, 5, 6)])
def test_a_mask_of_pixels(axes: int) -> None:
    check(MaskOfPixels(), axes)


@pytest.mark.full
@pytest.mark.parametrize("axes", [3, *full(4, 5, 6)])
def test_keys_of_one_image(axes: int) -> None:
    check(Shared(), axes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.full
@pytest.mark.parametrize("axes", [3, 4, 5])
def test_one_operator_of_onnx(axes: int, kind: str) -> None:
    network = Masked(axes, kind)
    random = torch.Generator().manual_seed(1)
    tokens = [(QUERIES, CHANNELS), (KEYS, CHANNELS), (KEYS, VALUES)]
    given = [torch.randn(*LEADING[axes], *pair, generator=random) for pair in tokens]
    program, _ = export_program(network, tuple(given), None)
    graph = convert_program(program, ["q", "k", "v"], ["y"], 23, {}, network, fused=True)
    assert [node for node in graph.graph if node.op_type == "Attention"]
    feeds = {name: tensor.numpy() for name, tensor in zip("qkv", given, strict=True)}
    (output,) = session(optimize_graph(graph)).run(None, feeds)
    np.testing.assert_allclose(output, network(*given), rtol=0, atol=1e-5)


class RowsHidden(toys.Toy):
    """Attention in windows, in which one token sees none and another does by its pixels."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (toys.heads_of(toys.windows_of(t, 4), 2) for t in (q, k, v))
        first = F.scaled_dot_product_attention(
            q, k, v, torch.arange(16)[:, None] != torch.full((16,), 3)
        )
        mask = (v.mean(-1, keepdim=True) > 0).expand(-1, -1, -1, -1, -1, 16)
        out = F.scaled_dot_product_attention(q, k, first, mask)
        return toys.map_of(out.transpose(-2, -3).flatten(-2), 4)


@pytest.mark.full
def test_a_file_gives_zeros_where_all_keys_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])
    monkeypatch.setattr(sites, "FEWEST_SCORES", 0)
    torch.manual_seed(0)
    network = toys.lively(RowsHidden()).eval()
    options = ExportOptions(plan=Plan(mechanism("full")), static=(1, 3, 16, 24), speed=False)
    result = export_module(network, tmp_path / "hidden.onnx", options)
    model = onnx.load(result.model)
    assert [node.op_type for node in model.graph.node if node.domain == DOMAIN]
    image = np.random.default_rng(0).random((1, 3, 16, 24), np.float32)
    expected = network(torch.from_numpy(image)).detach().numpy()
    for library in ("auto", None):
        output = Session(result.model, "ort-cpu", 1, library)(image)
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)
