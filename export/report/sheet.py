"""The sheet of a model file: its outputs for real images, side by side at 1:1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...runtime.images.image_data import luma_of, resize_plane
from ...runtime.images.sheet import comparison_sheet, magnify_difference, readable_factor
from ...runtime.metrics.image_quality import psnr
from ...runtime.metrics.measures import PSNR_CEILING
from ...runtime.tasks.restoration.auxiliary_roles import AUXILIARY_ROLES
from ...runtime.tasks.restoration.restorer import Restorer
from .scenes import Pixels, Scene


@dataclass(frozen=True)
class SheetRow:
    """The output of a model file for a scene.

    Attributes:
        scene: The scene.
        source: The input as shown: gray for colorization, with holes in white.
        exported: By the model file; images from here on are (H, W, 3) in 0..1.
        exact: By PyTorch with exact attention, or None.
        truth: The scene's ground truth, or None.
        resized: The input, enlarged by Lanczos interpolation if the model enlarges.
    """

    scene: Scene
    source: Pixels
    exported: Pixels
    exact: Pixels | None
    truth: Pixels | None
    resized: Pixels

    @property
    def baseline_image(self) -> tuple[str, Pixels]:
        """The reference of the difference: name and image."""
        if self.exact is not None:
            return "full attention", self.exact
        if self.truth is not None:
            return "truth", self.truth
        sides = self.scene.pixels.shape[:2]
        same = self.resized.shape[:2] == sides
        return ("input" if same else "Lanczos"), self.resized

    @property
    def difference(self) -> Pixels:
        """Largest difference of red, green and blue of the exported image, (H, W, 1)."""
        difference = magnify_difference(self.exported, self.baseline_image[1], 1.0)
        largest: Pixels = difference.max(axis=2, keepdims=True)
        return largest

    def cells(self, factor: float) -> list[tuple[str, Pixels]]:
        """Return captions and images from left to right."""
        height, width = self.scene.pixels.shape[:2]
        name, _ = self.baseline_image
        cells = [(f"{self.scene.name}: input, {width}x{height}", self.source)]
        for port in self.scene.ports:
            if port.has_sides and not AUXILIARY_ROLES[port.role].same_size:
                cells.append((port.role, self.scene.auxiliary[port.name]))
        if name == "Lanczos":
            cells.append(("Lanczos, without the model", self.resized))
        if self.exact is not None:
            cells.append((f"full attention{self._against(self.exact)}", self.exact))
        figure = self._against(self.exported)
        if self.exact is not None:
            figure += f"{',' if figure else ':'} {_decibels(self.exported, self.exact)} to full"
        cells.append((f"exported{figure}", self.exported))
        if self.truth is not None:
            cells.append(("truth", self.truth))
        return [*cells, (f"difference from {name} x {factor:g}", self.difference * factor)]

    def _against(self, image: Pixels) -> str:
        if self.truth is None:
            return ""
        return f": {_decibels(image, self.truth)} to truth"


def run_scenes(
    scenes: Iterator[Scene], restorer: Restorer, exact: Restorer | None
) -> list[SheetRow]:
    """Run the scenes.

    Args:
        scenes: One per row.
        restorer: The model file.
        exact: The network with the attention it was trained with, or None.

    Raises:
        NystraError: An image cannot be read or run.
    """
    rows = []
    for scene in scenes:
        others = scene.auxiliary
        exported = _color(restorer(scene.pixels, auxiliary=others)[0])
        full = None
        if exact is not None:
            full = _color(exact(scene.pixels, auxiliary=others)[0])
        truth = None if scene.truth is None else _color(scene.truth)
        source = _prepare_shown(scene, restorer)
        change = _resize(source, exported)
        rows.append(SheetRow(scene, source, exported, full, truth, change))
    return rows


def draw_sheet(
    path: Path,
    rows: list[SheetRow],
    scale: int,
    model: str,
) -> None:
    """Draw rows.

    Args:
        path: The sheet.
        rows: As `run_scenes` returns them.
        scale: Pixels of an output for one of its input, and axis.
        model: Name of the model file.

    Raises:
        NystraError: The sheet cannot be written.
    """
    factor = readable_factor([row.difference for row in rows])
    name = rows[0].baseline_image[0]
    enlarged = f"; the input is shown {scale}x{scale} as large"
    heading = [
        f"{model}: output at 1:1{enlarged * (scale > 1)}",
        f"difference: the largest of R, G, B; white: {1 / factor:g} or more (range 0 to 1)",
    ]
    if name in ("full attention", "truth"):
        heading.append("dB: PSNR in RGB of the images shown")
    cells = [row.cells(factor) for row in rows]
    comparison_sheet(cells, path, heading)


def _color(image: Pixels) -> Pixels:
    clipped = np.clip(image, 0.0, 1.0)
    if clipped.shape[2] == 1:
        return np.repeat(clipped, 3, axis=2)
    return clipped


def _resize(image: Pixels, exported: Pixels) -> Pixels:
    planes = np.moveaxis(_color(image), 2, 0)
    size = (exported.shape[0], exported.shape[1])
    resized = [resize_plane(plane, size) for plane in planes]
    return np.stack(resized, axis=2)


def _prepare_shown(scene: Scene, restorer: Restorer) -> Pixels:
    pixels = scene.pixels
    colors_luma = (restorer.input_channels, restorer.output_channels) == (1, 3)
    if colors_luma and pixels.shape[2] == 3:
        pixels = luma_of(pixels)[:, :, None]
    for port in scene.ports:
        if port.role == "mask":
            missing = scene.auxiliary[port.name] > 0
            pixels = np.where(missing, np.float32(1), pixels)
    return pixels


def _decibels(got: Pixels, expected: Pixels) -> str:
    return f"{min(psnr(got, expected), PSNR_CEILING):.1f} dB"
