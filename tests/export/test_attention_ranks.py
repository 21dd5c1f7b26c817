"""PyTorch's fused attention of any number of axes, with masks of every form, in a file."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from conformance_models import session
from nystra.export.tracing.trace import trace_piece

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


class Masked(nn.Module):
    """Attention with all masks of a number of axes, float or bool."""

    def __init__(self, axes: int, dtype: torch.dtype) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.masks = [torch.randn(shape, generator=random) for shape in mask_shapes(axes)]
        if dtype == torch.bool:
            self.masks = [mask > -1.0 for mask in self.masks]
            for mask in self.masks:
                mask[..., :1] = True  # no row without keys: PyTorch gives zeros there, ONNX a mean

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
        mask[..., :1] = True
        return F.scaled_dot_product_attention(q, k, v, mask)


class Shared(nn.Module):
    """Attention in which all images have the keys of the first."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k[:1], v[:1])


def check(module: nn.Module, axes: int) -> None:
    """Compare a module with its file for the traced number of images and another one."""
    fixed = axes == 2 or isinstance(module, Masked)  # some masks have as many images
    free = None if fixed else ({0: Dim.DYNAMIC},) * 3

    def inputs(images: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(images)
        leading = (images, *LEADING[axes][1:]) if axes > 2 else ()
        tokens = [(QUERIES, CHANNELS), (KEYS, CHANNELS), (KEYS, VALUES)]
        return [torch.randn(*leading, *pair, generator=random) for pair in tokens]

    model = trace_piece(module, tuple(inputs(IMAGES)), free, 20, ["q", "k", "v"], "y")
    run = session(model)
    for images in (IMAGES,) if fixed else (IMAGES, 3):
        given = inputs(images)
        feeds = {name: tensor.numpy() for name, tensor in zip("qkv", given, strict=True)}
        (output,) = run.run(None, feeds)
        np.testing.assert_allclose(output, module(*given), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
@pytest.mark.parametrize("axes", LEADING)
def test_masks(axes: int, dtype: torch.dtype) -> None:
    check(Masked(axes, dtype), axes)


@pytest.mark.parametrize("axes", LEADING)
def test_other_arguments(axes: int) -> None:
    check(Named(), axes)


@pytest.mark.parametrize("axes", [4, 5, 6])
def test_groups_of_heads(axes: int) -> None:
    check(Grouped(), axes)


@pytest.mark.parametrize("axes", LEADING)
def test_a_mask_of_pixels(axes: int) -> None:
    check(MaskOfPixels(), axes)


@pytest.mark.parametrize("axes", [3, 4, 5, 6])
def test_keys_of_one_image(axes: int) -> None:
    check(Shared(), axes)
