"""One image to its restored image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ....core.arrays import Array
from ...images.image_data import ImageData, resize_plane
from ...metrics.sanity import beyond_doubt, contrast_doubt, find_problems
from ..handler import UnusableOutputError
from .probing import shows_pictures
from .restorer import Restorer

DISCOURAGED = "discouraged"
"""Tiling of a model whose result depends on the tiles."""


@dataclass(frozen=True)
class RestoredImage:
    """The output of a model for an image.

    Attributes:
        image: The result.
        tiles: Number of tiles that were run.
        warnings: Warnings about the result.
    """

    image: ImageData
    tiles: int
    warnings: list[str]


def restore(restorer: Restorer, before: ImageData, name: str, **how: Any) -> RestoredImage:
    """Restore an image; alpha, profile and resolution are kept.

    Args:
        restorer: The model.
        before: The image.
        name: What to call it in the messages.
        **how: As `Restorer` takes it by name.

    Raises:
        UnusableOutputError: The output is not finite, or has another range than assumed.
        NystraError: The model fails.
    """
    pixels, tiles = restorer(before.pixels, **how)
    warnings = check_output(pixels, before.pixels, name, restorer)
    if tiles > 1 and restorer.tiling == DISCOURAGED:
        warnings.append(
            f"it was run in {tiles} tiles, but the model uses means over the whole image, so the "
            f"result differs from that of a whole run{restorer.tile_loss}: give it more memory and "
            "omit `tile` to run it whole"
        )
    return RestoredImage(with_pixels(before, pixels), tiles, warnings)


def check_output(
    pixels: Array, source: Array, name: str, restorer: Restorer | None = None
) -> list[str]:
    """Return warnings about a model's output.

    Args:
        pixels: The output.
        source: The input: if it is flat, a flat output is correct.
        name: What to call the image in the messages.
        restorer: The model. If it makes a mask of a color image, takes further inputs, which may
            paint over the image, or makes a picture of a test picture, an output without contrast
            is only a warning.

    Raises:
        UnusableOutputError: It is not finite, or its range is another one than assumed.
    """
    findings = find_problems(pixels, "the model's output", source)
    if any(finding.kind != "flat" for finding in findings):
        text = "; ".join(finding.message for finding in findings)
        raise UnusableOutputError(f"{text} for {name}")
    doubt, flat = beyond_doubt(pixels), contrast_doubt(pixels, source)
    if flat and not doubt:
        if restorer is None or not (
            restorer.output_channels < restorer.input_channels
            or restorer.auxiliary
            or shows_pictures(restorer)
        ):
            doubt = flat
        elif not findings:
            return [flat]
    if doubt:
        raise UnusableOutputError(
            f"{doubt} for {name}: the model takes or returns other values than it was run with. "
            "State them: `range` 0..255, or `range` 0..1,0..255 if only the output has 0..255"
        )
    return [finding.message for finding in findings]


def with_pixels(before: ImageData, pixels: Array) -> ImageData:
    """Return an image with other pixels: its alpha resized, its profile kept if it fits."""
    size = (pixels.shape[0], pixels.shape[1])
    alpha = None if before.alpha is None else resize_plane(before.alpha, size)
    return replace(before, pixels=pixels, alpha=alpha).with_profile_of(before)
