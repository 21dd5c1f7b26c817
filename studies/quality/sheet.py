"""Draw the outputs of plans: results.png and cluster.jpg of studies/measurements/images.

Crops of 56 pixels, taken where ``nystra`` departs most from full attention, without guard or, with
``--cluster``, with it; and below each the absolute difference from full attention in gray, 10 times
as large::

    python -m studies.quality.sheet --out studies/measurements/images/results.png \\
        swinir_x2_w16:Set5/LR_bicubic/X2/butterflyx2.png:Set5/HR/butterfly.png ...
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.registry import mechanism
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import LoadedModel, load
from nystra.runtime.images.images import read_image
from nystra.runtime.images.sheet import comparison_sheet, magnified_difference
from nystra.runtime.metrics.measures import clipped_psnr
from studies.quality.measure import WHOLE, planned, restorer
from studies.quality.tables import ITERATIONS, LANDMARKS, cluster, nystra, nystromformer

SIDE, ZOOM, FACTOR = 56, 3, 10.0

Pixels = npt.NDArray[Any]


def restored(model: LoadedModel, parameters: Mechanism, pixels: Pixels) -> Pixels:
    """Return the output of a plan for an image, (H, W, 3), 0..1."""
    output, _ = restorer(model, NetworkSession(planned(model, parameters)))(pixels, WHOLE)
    return np.clip(output, 0.0, 1.0)


def worst_place(got: Pixels, expected: Pixels) -> tuple[int, int]:
    """Return top and left of the crop with the largest mean square difference."""
    error = ((got - expected) ** 2).sum(2)
    total = np.pad(error.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    crops = (
        total[SIDE:, SIDE:] - total[:-SIDE, SIDE:] - total[SIDE:, :-SIDE] + total[:-SIDE, :-SIDE]
    )
    top, left = np.unravel_index(int(crops.argmax()), crops.shape)
    return int(top), int(left)


def row(checkpoint: str, small: Path, large: Path, clustered: bool) -> dict[str, Pixels]:
    """Return the images of one row, by column, cropped and magnified, difference below."""
    model = load(checkpoint)
    pixels, truth = read_image(small).pixels, read_image(large).pixels
    full = restored(model, mechanism("full"), pixels)
    columns: dict[str, Pixels] = {"truth": truth}
    if not clustered:
        eight = Image.fromarray(np.round(pixels * 255).astype(np.uint8))
        bicubic = eight.resize((truth.shape[1], truth.shape[0]), Image.Resampling.BICUBIC)
        columns["bicubic"] = np.asarray(bicubic) / 255.0
    columns["full attention"] = full
    columns["nystra 16, 6 it"] = worst = restored(model, nystra(16), pixels)
    if clustered:
        columns["nystromformer 16"] = restored(model, nystromformer(16), pixels)
        columns["cluster 16, block 4"] = restored(model, cluster(16), pixels)
    else:
        columns["nystra, no guard, worst"] = worst = _least_alike(model, pixels, full)
        columns["nystromformer 16"] = restored(model, nystromformer(16), pixels)
    top, left = worst_place(worst, full)
    print(f"{checkpoint} {small.name}: crop at {top},{left}; dB against full:")
    tiles = {}
    for name, image in columns.items():
        print(f"  {name}: {clipped_psnr(image, full):.1f}")
        difference = magnified_difference(image, full, FACTOR)
        gray = difference.mean(2, keepdims=True).repeat(3, 2)
        both = [array[top : top + SIDE, left : left + SIDE] for array in (image, gray)]
        tiles[name] = np.concatenate(both).repeat(ZOOM, 0).repeat(ZOOM, 1)
    return tiles


def _least_alike(model: LoadedModel, pixels: Pixels, full: Pixels) -> Pixels:
    """Return the output of ``nystra`` without guard at its worst setting."""
    bare = (restored(model, nystra(m, n, 0.0), pixels) for m in LANDMARKS for n in ITERATIONS)
    return min(bare, key=lambda image: clipped_psnr(image, full))


def main() -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cluster", action="store_true", help="the sheet with cluster")
    parser.add_argument("rows", nargs="+", metavar="CHECKPOINT:SMALL:LARGE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for text in options.rows:
        checkpoint, small, large = text.split(":")
        rows.append(row(checkpoint, Path(small), Path(large), options.cluster))
    gap = np.ones((8, SIDE * ZOOM, 3))
    columns = []
    for name in rows[0]:
        parts = [part for cells in rows for part in (cells[name], gap)]
        columns.append((name, np.concatenate(parts[:-1])))
    comparison_sheet([columns], options.out)
    with Image.open(options.out) as sheet:
        sheet.save(options.out, optimize=True)


if __name__ == "__main__":
    main()
