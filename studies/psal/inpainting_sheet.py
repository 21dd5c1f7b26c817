"""Fill holes in photographs with full attention and with PSAL: figures and a sheet.

With the library and a checkpoint of ``inpainting_train``::

    python -m studies.psal.inpainting_sheet inpaint.safetensors --sheet build/sheet.png \
        --images SET14/*HR.png BSD100/*HR.png

The files are exported by ``nystra-export --attn``, ``psal`` as it is and in the form of the paper's
section 4.4. ``--trained`` adds a generator that was trained with PSAL. Each photograph gets one
square hole, the most textured of a few places drawn from a seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import binary_dilation

from nystra.cli.main import main as nystra
from nystra.core.ports.port import Port
from nystra.models.contextual_attention.network import InpaintingGenerator
from nystra.models.loading import load
from nystra.models.sites import PatchSite
from nystra.runtime import ImageData, Session, read_image, write_image
from nystra.runtime.images.image_data import luma_of
from nystra.runtime.images.sheet import comparison_sheet
from nystra.runtime.metrics.image_quality import psnr, ssim
from nystra.runtime.tasks.restoration.quality import comparable
from nystra.runtime.tasks.restoration.restorer import Restorer, restorer_for

Array = npt.NDArray[Any]

Corner = tuple[int, int]

PAPER = "psal, patch 7"
FORMS = {
    "full": ("full",),
    "psal": ("psal",),
    PAPER: ("psal", "--patch-size", "7", "--full-size"),
}
"""Name of a form -> what follows ``--attn``."""

_SHOWN = 112  # side of a cell of the sheet, in pixels
_TRIALS = 16
_RIM = 32  # pixels between a hole and the border of the image
_RING = 4  # width of the known border that gives the mean color


def place(gray: Array, side: int, random: np.random.Generator) -> tuple[int, int]:
    """Return top and left of the most textured of a few squares: the largest mean gradient."""
    steep = np.hypot(*np.gradient(gray))
    rim = [min(_RIM, (length - side) // 2) for length in gray.shape]
    corners = [
        tuple(
            int(random.integers(edge, length - side - edge + 1))
            for edge, length in zip(rim, gray.shape, strict=True)
        )
        for _ in range(_TRIALS)
    ]
    best = max(corners, key=lambda c: steep[c[0] : c[0] + side, c[1] : c[1] + side].mean())
    return best[0], best[1]


def prepare(paths: list[Path], side: int, folder: Path) -> dict[str, Corner]:
    """Write images with a hole, masks and truths; return where each hole is."""
    random, corners = np.random.default_rng(side), {}
    for path in paths:
        truth = read_image(path).pixels
        gray = truth[:, :, 0] if truth.shape[2] == 1 else luma_of(truth)
        top, left = place(gray, side, random)
        mask = np.zeros((*gray.shape, 1), np.float32)
        mask[top : top + side, left : left + side] = 1.0
        holed = np.where(mask > 0, np.float32(0.5), truth)
        for part, pixels in (("in", holed), ("masks", mask), ("truth", truth)):
            (folder / part).mkdir(parents=True, exist_ok=True)
            target = folder / part / f"{path.parent.parent.name}_{path.stem}.png"
            write_image(target, ImageData(pixels), overwrite=True)
        corners[target.name] = (top, left)
    return corners


def mean_color(image: Array, mask: Array) -> Array:
    """Fill the hole with the mean color of the pixels around it."""
    hole = mask[0, 0] > 0.5
    ring = binary_dilation(hole, iterations=_RING) & ~hole
    return np.where(hole, image[:, :, ring].mean(2)[:, :, None, None], image)


def biharmonic(image: Array, mask: Array) -> Array:
    """Fill the hole as smoothly as its border allows."""
    from skimage.restoration import inpaint_biharmonic

    filled = inpaint_biharmonic(np.moveaxis(image[0], 0, 2), mask[0, 0] > 0.5, channel_axis=2)
    return np.moveaxis(filled, 2, 0)[None].astype(np.float32)


def coarse_only(network: InpaintingGenerator) -> Callable[[Array, Array], Array]:
    """Return the network's first stage alone, pasted into the hole."""

    def fill(image: Array, mask: Array) -> Array:
        sides = [-length % 8 for length in image.shape[2:]]
        pads = ((0, 0), (0, 0), (0, sides[0]), (0, sides[1]))
        whole, hole = (torch.from_numpy(np.pad(tensor, pads, "edge")) for tensor in (image, mask))
        with torch.no_grad():
            guess = network.coarse_generator((2 * whole - 1) * (1 - hole), hole)
        guess = guess[:, :, : image.shape[2], : image.shape[3]].numpy()
        return np.where(mask > 0.5, (guess + 1) / 2, image)

    return fill


def without_attention(checkpoint: Path) -> Callable[[Array, Array], Array]:
    """Return the network with attention replaced by zeros: the largest possible loss."""
    network = load(checkpoint).network
    for module in network.modules():
        if isinstance(module, PatchSite):
            module.implementation = lambda query, key, value, mask, geometry: torch.zeros_like(
                value
            )

    def fill(image: Array, mask: Array) -> Array:
        with torch.no_grad():
            filled: Array = network(torch.from_numpy(image), torch.from_numpy(mask)).numpy()
        return filled

    return fill


def export(checkpoint: Path, folder: Path, forms: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Write a file for each form and return their paths."""
    files = {}
    for name, options in forms.items():
        file = f"{checkpoint.stem} {name}".replace(", ", "_").replace(" ", "_")
        files[name] = folder / f"{file}.onnx"
        if not files[name].exists():
            command = [str(checkpoint), "-o", str(files[name]), "--attn", *options]
            if nystra(["export", *command, "--no-speed", "--quiet"]) != 0:
                raise SystemExit(f"the export with {name} failed")
    return files


def figures(filled: Array, truth: Array, corner: tuple[int, int], side: int) -> dict[str, float]:
    """Return the figures of table 6 over a square hole of images (H, W, C) in 0..1.

    L1 and L2 are means of the absolute and squared differences, TV is that of the filled pixels
    (section 4.4): the mean sum of the absolute differences to the next row and column.
    """
    inside = tuple(slice(first, first + side) for first in corner)
    got, wanted = filled[inside], truth[inside]
    error, outside = np.abs(got - wanted), np.abs(filled - truth)
    outside[inside] = 0.0
    return {
        "L1": float(error.mean()),
        "L2": float((error**2).mean()),
        "PSNR": psnr(got, wanted, channel="rgb"),
        "TV": sum(float(np.abs(np.diff(got, axis=axis)).mean()) for axis in (0, 1)),
        "SSIM": ssim(got, wanted, channel="rgb"),
        "outside L1": float(outside.sum()) / max(1, truth.size - error.size),
    }


def judge(
    fillers: dict[str, Session | Restorer], folder: Path, holes: dict[int, dict[str, Corner]]
) -> dict[int, dict[str, dict[str, float]]]:
    """Return the mean figures of every way of filling on every size of hole, and print them."""
    results: dict[int, dict[str, dict[str, float]]] = {}
    for side, corners in holes.items():
        print(f"holes of {side}x{side}")
        for name, filler in fillers.items():
            fill_one = restorer_for(filler) if isinstance(filler, Session) else filler
            rows = []
            for image, corner in corners.items():
                paths = [folder / str(side) / part / image for part in ("in", "masks", "truth")]
                holed, mask, truth = (read_image(path).pixels for path in paths)
                output, _ = fill_one(holed, auxiliary={"mask": mask})
                both = comparable(output, holed.shape[:2], truth, 1, (paths[0], paths[2]))
                rows.append(figures(*both, corner, side))
            means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            results.setdefault(side, {})[name] = means
            text = ", ".join(f"{key} {value:.4g}" for key, value in means.items())
            print(f"  {name:16} {text}", flush=True)
    return results


def rows_of(
    folder: Path, corners: dict[str, Corner], coarse: Restorer, side: int, count: int
) -> list[dict[str, Array]]:
    """Return the surroundings of some holes, spread evenly over the images, by column title."""
    names = sorted(corners)
    rows = []
    for name in names[:: max(1, len(names) // count)][:count]:
        holed, mask, truth = (
            read_image(folder / part / name).pixels for part in ("in", "masks", "truth")
        )
        cells = {"hole": holed, "coarse": coarse(holed, auxiliary={"mask": mask})[0]}
        for form in FORMS:
            cells[f"refined, {form}"] = read_image(folder / form / name).pixels
        cells["truth"] = truth
        edges = [
            min(max(0, corner + side // 2 - _SHOWN // 2), length - _SHOWN)
            for corner, length in zip(corners[name], truth.shape[:2], strict=True)
        ]
        part = tuple(slice(edge, edge + _SHOWN) for edge in edges)
        shown = {title: np.clip(image[part], 0, 1) for title, image in cells.items()}
        rows.append(
            {
                title: np.repeat(image, 3, 2) if image.shape[2] == 1 else image
                for title, image in shown.items()
            }
        )
    return rows


def fill(files: dict[str, Path], folder: Path, threads: int) -> None:
    """Fill every image of a folder with every file, by ``nystra run``."""
    for name, path in files.items():
        command = [str(path), "-i", str(folder / "in"), "-o", str(folder / name)]
        command += ["--mask", str(folder / "masks"), "--threads", str(threads)]
        if nystra(["run", *command, "--overwrite", "--quiet"]) != 0:
            raise SystemExit(f"nystra run with {name} failed")


def main() -> None:
    """Export, fill, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--trained", type=Path, help="a checkpoint that was trained with psal")
    parser.add_argument("--images", type=Path, nargs="+", required=True)
    parser.add_argument("--sides", type=int, nargs="+", default=[16, 32, 48], help="of the holes")
    parser.add_argument("--output", type=Path, default=Path("build/psal_inpainting"))
    parser.add_argument("--sheet", type=Path, help="three holes of each of the last two sizes")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    files = export(arguments.checkpoint, output, FORMS)
    network = load(arguments.checkpoint).network
    if not isinstance(network, InpaintingGenerator):
        raise SystemExit(f"{arguments.checkpoint} is no inpainting generator")

    def restorer(function: Callable[..., Array]) -> Restorer:
        return Restorer(function, auxiliary=(Port("mask", "mask"),), tiling="internal")

    coarse = restorer(coarse_only(network))
    fillers: dict[str, Session | Restorer] = {
        "mean color": restorer(mean_color),
        "biharmonic": restorer(biharmonic),
        "coarse": coarse,
        "none": restorer(without_attention(arguments.checkpoint)),
    }
    judged = dict(files)
    if arguments.trained:
        own = export(arguments.trained, output, {PAPER: FORMS[PAPER]})
        judged["trained with psal"] = own[PAPER]
    fillers |= {name: Session(path, threads=arguments.threads) for name, path in judged.items()}
    corners = {
        side: prepare(arguments.images, side, output / str(side)) for side in arguments.sides
    }
    results = judge(fillers, output, corners)
    (output / "table.json").write_text(json.dumps(results, indent=1))
    if arguments.sheet:
        rows = []
        for side in arguments.sides[-2:]:
            fill(files, output / str(side), arguments.threads)
            rows += rows_of(output / str(side), corners[side], coarse, side, 3)
        columns = [(title, np.concatenate([row[title] for row in rows])) for title in rows[0]]
        comparison_sheet([columns], arguments.sheet)


if __name__ == "__main__":
    main()
