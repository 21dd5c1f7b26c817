"""The preprocessing of images for a vision transformer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ...core.metadata import key_of
from ...core.ports.preprocessing import Preprocessing, Resize, read_preprocessing
from .layouts import Layout

_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_ADVICE = 'give `hyper` \'preprocessing={"mean": [...], "std": [...]}\' if it is another one'


def choose_preprocessing(
    stored: Any, layout: Layout, sides: tuple[int, int], channels: int
) -> tuple[Preprocessing, tuple[str, ...]]:
    """Return the preprocessing, and a warning if it is assumed.

    A stored one takes precedence over the default of the network's library: that of torchvision's
    published ViT weights, and of most of timm's. The study has no default: it does not publish its
    normalization.

    Args:
        stored: The JSON object of ``nystra.preprocessing``, or None.
        layout: Layout of the checkpoint.
        sides: Height and width that the network takes.
        channels: That it takes.

    Raises:
        NystraError: The stored one has another form.
    """
    if stored is not None:
        stated = read_preprocessing(
            json.dumps(stored), f"the metadata entry {key_of('preprocessing')}"
        )
        fits = stated.size == sides
        return stated if fits else replace(stated, resize=Resize(sides), crop=None), ()
    if channels != 3 or layout.name not in ("timm", "torchvision"):
        assumed = "the normalization of images is unknown, so they are not normalized"
        return Preprocessing(Resize(sides)), (f"{assumed}: {_ADVICE}",)
    if layout.name == "torchvision":
        default = Preprocessing(
            *_middle(sides, 224 / 256, "bilinear"), mean=_IMAGENET_MEAN, std=_IMAGENET_STD
        )
    else:
        half = (0.5, 0.5, 0.5)
        default = Preprocessing(*_middle(sides, 0.9, "bicubic"), mean=half, std=half)
    assumed = f"images are prepared as is usual for {layout.name} (mean {default.mean[0]:g}, ...)"
    return default, (f"{assumed}: {_ADVICE}",)


def _middle(
    sides: tuple[int, int], share: float, filter_name: str
) -> tuple[Resize, tuple[int, int] | None]:
    if sides[0] != sides[1]:
        return Resize(sides, filter_name), None
    return Resize((int(sides[0] / share),), filter_name), sides
