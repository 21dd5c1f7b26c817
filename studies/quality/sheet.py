"""Draw the outputs of plans: results.png and cluster.jpg of studies/measurements/images.

Crops of 56 pixels, taken where the least like full attention of ``--columns`` departs most from it,
and below each the absolute difference from full attention in gray, 10 times as large::

    python -m studies.quality.sheet --out studies/measurements/images/results.png \\
        swinir_x2_w16:Set5/LR_bicubic/X2/butterflyx2.png:Set5/HR/butterfly.png ...

Rows come before ``--columns``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
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
from nystra.runtime.images.sheet import comparison_sheet, magnify_difference
from nystra.runtime.metrics.measures import clip_and_measure_psnr
from studies.quality.measure import WHOLE, planned, restorer
from studies.quality.tables import (
    ITERATIONS,
    LANDMARKS,
    cluster,
    nystra,
    nystromformer,
    published,
)

SIDE, ZOOM, FACTOR = 56, 3, 10.0

PLANS: dict[str, list[Mechanism]] = {
    "worst": [nystra(m, n, guard=0.0) for m in LANDMARKS for n in ITERATIONS],
    "nystra": [nystra(16)],
    "published": [published(16)],
    "nystromformer": [nystromformer(16)],
    "cluster": [cluster(16)],
}
"""Name of a column -> its plans, 16 landmarks or clusters; the one farthest from full is drawn."""

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


def row(checkpoint: str, small: Path, large: Path, names: Sequence[str]) -> dict[str, Pixels]:
    """Return the images of one row, by column, cropped and magnified, difference below."""
    model = load(checkpoint)
    pixels, truth = read_image(small).pixels, read_image(large).pixels
    full = restored(model, mechanism("full"), pixels)
    given = Image.fromarray(np.round(pixels * 255).astype(np.uint8))
    enlarged = given.resize((truth.shape[1], truth.shape[0]), Image.Resampling.BICUBIC)
    columns: dict[str, Pixels] = {
        "truth": truth,
        "input": np.asarray(enlarged) / 255.0,
        "full": full,
    }
    for name in names:
        made = (restored(model, plan, pixels) for plan in PLANS[name])
        columns[name] = min(made, key=lambda image: clip_and_measure_psnr(image, full))
    worst = min(names, key=lambda name: clip_and_measure_psnr(columns[name], full))
    top, left = worst_place(columns[worst], full)
    print(f"{checkpoint} {small.name}: crop at {top},{left}; dB against full:")
    tiles = {}
    for name, image in columns.items():
        print(f"  {name}: {clip_and_measure_psnr(image, full):.1f}")
        difference = magnify_difference(image, full, FACTOR)
        gray = difference.mean(2, keepdims=True).repeat(3, 2)
        both = [array[top : top + SIDE, left : left + SIDE] for array in (image, gray)]
        tiles[name] = np.concatenate(both).repeat(ZOOM, 0).repeat(ZOOM, 1)
    return tiles


def main() -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--columns", nargs="+", choices=PLANS, default=list(PLANS))
    parser.add_argument("rows", nargs="+", metavar="CHECKPOINT:SMALL:LARGE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for text in options.rows:
        checkpoint, small, large = text.split(":")
        rows.append(row(checkpoint, Path(small), Path(large), options.columns))
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
