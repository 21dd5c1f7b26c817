"""What a model makes of one picture, with what the picture carries besides its pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....core.errors import NystraError
from ...checking.sanity import find_problems
from ...images.picture import Array, Picture, resize_plane
from .restorer import Restorer


def restored(
    restorer: Restorer, before: Picture, name: str, **how: Any
) -> tuple[Picture, int, list[str]]:
    """Restore a picture.

    Args:
        restorer: The model.
        before: The picture.
        name: What to call it in the messages.
        **how: As `Restorer` takes it by name.

    Returns:
        The picture, the number of tiles that were run, and what is odd about the output.

    Raises:
        NystraError: The model fails, or its output is not finite.
    """
    pixels, tiles = restorer(before.pixels, **how)
    doubts = check_output(pixels, before.pixels, name)
    return with_pixels(before, pixels), tiles, doubts


def check_output(pixels: Array, given: Array, name: str) -> list[str]:
    """Return what is odd about a model's output.

    Args:
        pixels: The output.
        given: The input: where that is flat too, flat is right.
        name: What to call the picture in the messages.

    Raises:
        NystraError: It is not finite.
    """
    findings = find_problems(pixels, "the model's output", given)
    if any(finding.kind != "flat" for finding in findings):
        raise NystraError("; ".join(finding.message for finding in findings) + f" for {name}")
    return [finding.message for finding in findings]


def with_pixels(before: Picture, pixels: Array) -> Picture:
    """Return a picture with other pixels: its alpha resized, its profile kept where it fits."""
    size = (pixels.shape[0], pixels.shape[1])
    alpha = None if before.alpha is None else resize_plane(before.alpha, size)
    icc = before.icc if before.grey == (pixels.shape[2] == 1) else None
    return replace(before, pixels=pixels, alpha=alpha, icc=icc)
