"""The quality of a model's outputs: images against their ground truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.json_text import json_number
from ...images.images import read_image
from ...images.pairs import pair_images
from ...metrics.image_quality import luma, psnr, ssim
from ...metrics.measures import PSNR_CEILING
from ...options import InputValue
from ...session import Session
from .auxiliary_roles import AuxiliaryInputs
from .options import RunOptions
from .restorer import Restorer, restorer_for


@dataclass(frozen=True)
class RegionQuality:
    """Some pixels of an image against their ground truth.

    Attributes:
        psnr: In dB, peak 1; infinite if they are equal.
        l1: Mean absolute difference.
        share: Share of the image's pixels.
    """

    psnr: float
    l1: float
    share: float


@dataclass(frozen=True)
class ImageQuality:
    """One image against its ground truth.

    Attributes:
        name: File name of the input.
        psnr: In dB, peak 1; infinite if they are equal.
        ssim: Structural similarity.
        inside: The pixels to fill according to a mask; None without a mask.
        outside: All others; None without a mask.
    """

    name: str
    psnr: float
    ssim: float
    inside: RegionQuality | None = None
    outside: RegionQuality | None = None


@dataclass(frozen=True)
class QualityReport:
    """Images against their ground truth, and how it was measured.

    Attributes:
        images: One entry per image.
        crop_border: Pixels left out on every side.
        channel: ``y`` (BT.601) or ``rgb``.
        pad: ``none`` or ``official``.
        warnings: Warnings about masks.
        flicker: Flicker of the frames of a video, see `Flicker`; None of
            images.
    """

    images: tuple[ImageQuality, ...]
    crop_border: int
    channel: str
    pad: str
    warnings: tuple[str, ...] = ()
    flicker: float | None = None

    @property
    def psnr(self) -> float:
        """Mean PSNR over the images, in dB."""
        return float(np.mean([image.psnr for image in self.images]))

    @property
    def ssim(self) -> float:
        """Mean SSIM over the images."""
        return float(np.mean([image.ssim for image in self.images]))

    @property
    def inside(self) -> RegionQuality | None:
        """Means over the filled parts of the images; None without masks."""
        return _mean([image.inside for image in self.images])

    @property
    def outside(self) -> RegionQuality | None:
        """Means over the other parts of the images; None without masks."""
        return _mean([image.outside for image in self.images])

    def figures(self) -> dict[str, float]:
        """Return the figures for a baseline."""
        figures = {"quality_psnr": min(self.psnr, PSNR_CEILING), "quality_ssim": self.ssim}
        return figures | ({} if self.flicker is None else {"quality_flicker": self.flicker})

    def settings(self) -> dict[str, Any]:
        """Return how it was measured."""
        return {
            "channel": self.channel,
            "crop_border": self.crop_border,
            "images": [image.name for image in self.images],
        }

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table, its head first."""
        masked = () if self.inside is None else ("hole", "PSNR in it", "L1 in it", "L1 outside")
        return [
            ("image", f"PSNR ({self.channel})", "SSIM", *masked),
            *(_row(image.name, image) for image in self.images),
            _row("mean", self),
        ]

    def notes(self) -> list[str]:
        """Return how the borders were treated, and the flicker."""
        notes = [f"border {self.crop_border} cropped, padding {self.pad}"]
        if self.flicker is not None:
            notes.append(
                f"flicker {self.flicker:.3f} of 255: mean error of the change from frame to "
                "frame (dtSSD), 0 is best"
            )
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report."""
        rows = [
            {
                "name": p.name,
                "psnr": json_number(p.psnr),
                "ssim": json_number(p.ssim),
                **_regions(p.inside, p.outside),
            }
            for p in self.images
        ]
        return {
            "psnr": json_number(self.psnr),
            "ssim": json_number(self.ssim),
            **_regions(self.inside, self.outside),
            "crop_border": self.crop_border,
            "channel": self.channel,
            "pad": self.pad,
            **({} if self.flicker is None else {"flicker": json_number(self.flicker)}),
            "warnings": list(self.warnings),
            "images": rows,
        }


def validate_quality(
    runner: Session | Restorer,
    input_folder: str | os.PathLike[str],
    truth_folder: str | os.PathLike[str],
    crop_border: int | None = None,
    channel: str = "y",
    pad: str = "none",
    *,
    window: int | None = None,
    tile: int = 0,
    overlap: int | None = None,
    mask: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, InputValue] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> QualityReport:
    """Compare the outputs of a model for a folder of images with their ground truth.

    The ground truth is cropped at the bottom and right to a multiple of the scale, and the
    output is rounded to 8 bits before the comparison, as for published figures.

    Args:
        runner: A `Session`, or a `Restorer` around any function, such as PyTorch.
        input_folder: The inputs of the model.
        truth_folder: The ground truth; see `pair_images` for the names.
        crop_border: Pixels to crop on every side; None: the scale (0 at scale 1).
        channel: ``y`` or ``rgb``; see `nystra.runtime.metrics`.
        pad: ``official`` first mirrors each image as in SwinIR's test procedure, ``none`` leaves
            padding to the model.
        window: The window for ``official``; None: that of the model.
        tile: As in `Restorer`.
        overlap: As in `Restorer`.
        mask: As in `run_images`; filled and other pixels are then also measured separately.
        reference: As in `run_images`.
        inputs: As in `run_images`.
        progress: Called with (images done, total number of images).

    Raises:
        NystraError: An image cannot be read, has no counterpart or a wrong size, or a mask or
            reference is missing, superfluous, or leaves no pixels to measure.
    """
    paths = RunOptions(mask=mask, reference=reference, inputs=inputs).auxiliary()
    restorer = restorer_for(runner) if isinstance(runner, Session) else runner
    auxiliary = AuxiliaryInputs.match(restorer.auxiliary, paths)
    masks = [port.name for port in restorer.auxiliary if port.role == "mask"]
    if isinstance(runner, Session) and window is None and runner.facts.window is not None:
        window = max(runner.facts.window)
    if pad not in ("none", "official"):
        raise NystraError(f"`pad` is {pad!r}, expected 'none' or 'official'")
    if pad == "official" and window is None:
        raise NystraError("the official padding needs the model's window: give `window_size`")
    if pad == "official" and any(port.has_sides for port in restorer.auxiliary):
        raise NystraError(
            "the official padding does not apply to models with a mask or a reference"
        )
    border = choose_border(crop_border, restorer.scale)
    pairs = pair_images(input_folder, truth_folder)
    results: list[ImageQuality] = []
    warnings: list[str] = []
    for index, (source, target) in enumerate(pairs):
        image, truth = read_image(source), read_image(target).pixels
        others, more = auxiliary.read(source, image.size)
        warnings += more
        pixels = image.pixels
        if pad == "official" and window is not None:
            pixels = np.moveaxis(official_pad(np.moveaxis(pixels, 2, 0), window), 0, 2)
        output, _ = restorer(pixels, tile, overlap, auxiliary=others)
        got, expected = comparable(output, image.size, truth, restorer.scale, (source, target))
        regions: tuple[RegionQuality, ...] = ()
        if masks:
            hole = others[masks[0]][:, :, 0].repeat(restorer.scale, 0).repeat(restorer.scale, 1)
            hole = hole[: got.shape[0], : got.shape[1]]
            regions = _inside_outside(got, expected, hole > 0, border, channel, source)
        results.append(measure_image(source.name, got, expected, border, channel, *regions))
        if progress is not None:
            progress(index + 1, len(pairs))
    return QualityReport(tuple(results), border, channel, pad, tuple(dict.fromkeys(warnings)))


def choose_border(crop_border: int | None, scale: int) -> int:
    """Return the pixels to crop on every side: as requested, or the scale, 0 at scale 1."""
    if crop_border is not None:
        return crop_border
    return scale if scale > 1 else 0


def measure_image(
    name: str, got: Array, expected: Array, border: int, channel: str, *regions: RegionQuality
) -> ImageQuality:
    """Return the quality of an output (H, W, C) against its ground truth."""
    return ImageQuality(
        name,
        psnr(got, expected, crop_border=border, channel=channel),
        ssim(got, expected, crop_border=border, channel=channel),
        *regions,
    )


def comparable(
    output: Array, size: tuple[int, int], truth: Array, scale: int, names: tuple[Path, Path]
) -> tuple[Array, Array]:
    """Return an output in 8 bits and its ground truth, with equal size and channels.

    Args:
        output: (H, W, C); pixels beyond the scaled input are padding.
        size: Height and width of the input.
        truth: (H, W, C), cropped to a multiple of the scale.
        scale: Scale of the model.
        names: Names of the input and the truth, for the message.

    Raises:
        NystraError: The output has another size than the truth.
    """
    height, width = (side - side % scale for side in truth.shape[:2])
    output = output[: size[0] * scale, : size[1] * scale]
    if output.shape[:2] != (height, width):
        raise NystraError(
            f"{names[0].name} became {output.shape[:2]} at scale {scale}, expected the size of its "
            f"ground truth {names[1].name}, {(height, width)}"
        )
    rounded = np.round(np.clip(output, 0.0, 1.0) * 255.0) / 255.0
    return _same_colors(rounded, truth[:height, :width])


def _inside_outside(
    got: Array, expected: Array, hole: Array, border: int, channel: str, path: Path
) -> tuple[RegionQuality, RegionQuality]:
    """Return the quality of the hole (H, W) and of the rest, without the border."""
    inner = tuple(slice(border, side - border) for side in hole.shape)
    got, expected, hole = got[inner], expected[inner], hole[inner]
    parts = []
    for what, chosen in (("white", hole), ("black", ~hole)):
        if not chosen.any():
            raise NystraError(
                f"the mask of {path.name} has no {what} pixels inside a border of {border} "
                "pixels: expected pixels to fill (white) and others (black)"
            )
        pair = [array[chosen][:, None] for array in (got, expected)]
        planes = [luma(part) for part in pair] if channel == "y" else pair
        parts.append(
            RegionQuality(
                psnr(*pair, channel=channel),
                float(np.abs(planes[0] - planes[1]).mean(dtype=np.float64)),
                float(chosen.mean()),
            )
        )
    return parts[0], parts[1]


def _row(name: str, quality: ImageQuality | QualityReport) -> tuple[str, ...]:
    """Return a row of the table, for an image or the mean."""
    row = (name, f"{quality.psnr:.2f}", f"{quality.ssim:.4f}")
    inside, outside = quality.inside, quality.outside
    if inside is None or outside is None:
        return row
    hole = (f"{inside.share:.1%}", f"{inside.psnr:.2f}", f"{inside.l1:.4f}")
    return (*row, *hole, f"{outside.l1:.1e}")


def _mean(regions: list[RegionQuality | None]) -> RegionQuality | None:
    present = [(region.psnr, region.l1, region.share) for region in regions if region is not None]
    return RegionQuality(*np.mean(present, 0).tolist()) if present else None


def _regions(inside: RegionQuality | None, outside: RegionQuality | None) -> dict[str, Any]:
    """Return both in JSON form; nothing without a mask."""
    regions = {}
    for name, region in (("inside", inside), ("outside", outside)):
        if region is not None:
            figures = asdict(region).items()
            regions[name] = {key: json_number(value) for key, value in figures}
    return regions


def _same_colors(got: Array, truth: Array) -> tuple[Array, Array]:
    """Return both in gray or both in color: if only one is gray, the other becomes its luma."""
    if got.shape[2] == truth.shape[2]:
        return got, truth
    if got.shape[2] == 3:
        return _full_range_luma(got), truth
    return got, _full_range_luma(truth)


def _full_range_luma(image: Array) -> Array:
    """Return the luma of a color image in the full range 0..1, as (H, W, 1)."""
    full: Array = (luma(image)[:, :, None] * 255.0 - 16.0) / 219.0
    return full


def official_pad(image: Array, window: int) -> Array:
    """Mirror an image at the bottom and right to the size of SwinIR's published test procedure.

    Each side becomes (side // window + 1) * window: something is always added, even to a side
    that is a multiple. The edge row is repeated: ... y z | z y ...

    Args:
        image: (..., H, W), each side at least 1.
        window: The network's window in pixels.

    Returns:
        A new array (..., H', W').

    Raises:
        NystraError: The image is empty or the window is not positive.
    """
    if window < 1 or image.ndim < 2 or 0 in image.shape:
        raise NystraError(f"cannot pad an image of shape {image.shape} to windows of {window}")
    more = [(0, (side // window + 1) * window - side) for side in image.shape[-2:]]
    padded: Array = np.pad(image, [(0, 0)] * (image.ndim - 2) + more, "symmetric")
    return padded
