"""The images for the search and verification of a plan, as many as time allows.

The time is estimated from operations, so that a network has the same images on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core.errors import NystraError
from ...models.facts import Facts
from ...models.loading import LoadedModel
from ...runtime.metrics.measures import measure_for
from ..attention.candidates import candidates
from ..attention.cost import count_all_operations
from ..attention.full.parameters import Full
from ..attention.plan import Plan
from ..attention.site import find_sites
from .images import (
    Feeds,
    Images,
    Pixels,
    calibration_images,
    feeds_of,
    read_sample,
    sample_side,
)

MAX_OPERATIONS = 36e12
"""Budget of all measurements: about five minutes of two cores."""

MAX_CROPS = 24
CROPS = 4
"""Of an image: its corners, or the middle alone where time is short."""

_STRIDE = 3
"""Every third image is held out."""


def choose_samples(
    loaded: LoadedModel, folder: Path | None, keep_full: Sequence[str] = ()
) -> Images:
    """Cut samples from the images, and hold out every third image.

    Of a single image the last crop is held out.

    Args:
        loaded: The network.
        folder: The user's images, or None for the shipped photographs.
        keep_full: Sites that stay as trained.

    Raises:
        NystraError: The folder is missing or holds no images, or one smaller than a window; the
            network has no attention, no such site, or an output that is not an image.
    """
    _refuse_unsuitable(loaded, keep_full)
    facts, paths = loaded.facts, calibration_images(folder)
    side = sample_side(facts)
    crops, count, coarse = _effort(loaded, side, len(paths))
    total = len(paths)
    paths = [paths[total * index // count] for index in range(count)]
    samples: dict[str, Feeds] = {}
    held_out: list[str] = []
    last = min(len(paths), _STRIDE) - 1
    out = [path for place, path in enumerate(paths) if place % _STRIDE == last]
    crops_of_each = max(crops, 2) if len(paths) == 1 else crops
    for path in paths:
        pixels = read_sample(facts, path, folder)
        cut = _cut(facts, path.name, pixels, side, crops_of_each)
        numbers = range(1, len(cut) + 1)
        names = [f"{path.name} {place}/{len(cut)}" for place in numbers]
        samples |= dict(zip(names, cut, strict=True))
        if path in out:
            held_out += names[-1:] if len(paths) == 1 else names
    if len(samples) == len(held_out):
        raise NystraError(
            f"`calibrate` {folder} holds one image, too small for two crops of {side}x{side}: "
            "give more images, some of which are held out to verify the plan"
        )
    names_out = tuple(path.name for path in out)
    return Images(samples, tuple(held_out), names_out, coarse)


def _refuse_unsuitable(loaded: LoadedModel, keep_full: Sequence[str]) -> None:
    headline = measure_for(loaded.facts.outputs[0]).headline
    if headline != "psnr":
        raise NystraError(
            "`mechanism` auto is for images and frames: the outputs of this network "
            f"({loaded.facts.task}) are compared by {headline}; choose a mechanism; "
            "see docs/mechanisms.md"
        )
    sites = [site.path for site in find_sites(loaded.network)]
    if not sites:
        raise NystraError("the network has no attention that `mechanism` auto can replace: omit it")
    plan = Plan(sites=dict.fromkeys(keep_full, Full()))
    plan.refuse_unknown_sites(sites)


def _effort(loaded: LoadedModel, side: int, images: int) -> tuple[int, int, bool]:
    size = loaded.facts.test_size()
    operations = count_all_operations(loaded.network, loaded.facts)
    crop = operations * side * side / (size["height"] * size["width"])
    alike = {}
    for site in find_sites(loaded.network):
        geometry = repr(getattr(site.module, "geometry", None))
        alike[type(site.module), geometry] = site
    all_kept = min(images, MAX_CROPS)
    few = min(images, _STRIDE)
    two = min(images, 2)
    most_crops = max(1, min(CROPS, MAX_CROPS // all_kept))
    levels = [
        (most_crops, all_kept, False),
        (1, few, False),
        (1, few, True),
    ]
    for crops, count, coarse in levels:
        options = [candidates(site, coarse=coarse) for site in alike.values()]
        runs = sum(map(len, options))  # at most: alike sites share candidates
        if runs * crop * crops * count <= MAX_OPERATIONS:
            return crops, count, coarse
    return 1, two, True


def _cut(facts: Facts, name: str, pixels: Pixels, side: int, crops: int) -> list[Feeds]:
    height, width = pixels.shape[:2]
    smallest = max(facts.window[-2:]) if facts.window is not None else 1
    if facts.sides is None and min(height, width) < smallest:
        raise NystraError(
            f"{name} is {height}x{width}, smaller than a window of the network: choosing a "
            f"plan needs images of at least {smallest}x{smallest}"
        )
    size = facts.size(min(side, height), min(side, width))
    if crops == 1 or facts.sides is not None:
        return [feeds_of(facts, pixels, size)]
    columns = _ends(width, side)
    corners = [(row, column) for row in _ends(height, side) for column in columns]
    cut = [np.ascontiguousarray(pixels[corner]) for corner in corners[:crops]]
    return [feeds_of(facts, corner, size) for corner in cut]


def _ends(length: int, side: int) -> list[slice]:
    if length <= side:
        return [slice(0, length)]
    return [slice(0, side), slice(length - side, length)]
