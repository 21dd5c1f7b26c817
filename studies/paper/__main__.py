"""The tables and figures of PnP-Nystra (Kidambi and Nair, 2025) on our networks.

The page is studies/measurements/paper.md.

Each command prints a table or draws a figure; images are not shipped::

    python -m studies.paper windows                       # times, tables II to V
    python -m studies.paper networks --case swinir        # times of whole networks
    python -m studies.paper noisy Set5/HR --out noisy     # inputs of a denoiser, sigma 25
    python -m studies.paper blurred Set5/HR --out blurred # motion of up to 15 pixels
    python -m studies.paper reduced BSD100/HR --out X8    # bicubic, an eighth of the sides
    python -m studies.paper errors ON                     # table VI
    python -m studies.paper spectrum ON --out 1.png       # figure 1
    python -m studies.paper maps ON --out 4.png           # figure 4
    python -m studies.paper scaling --out 5.png           # figure 5
    python -m studies.paper memory                        # memory against tokens, table I

ON is ``--on MODEL FOLDER``, once for each network: a checkpoint or shipped name, and a folder of
PNG files as its inputs (small ones for super-resolution, noisy ones for denoising). Table VII and
the accuracies are tables of ``studies.quality``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from nystra.models import LoadedModel, load
from studies.paper.matrices import Pixels, error_rows, images, spectrum
from studies.paper.times import (
    CASES,
    NETWORK_PLANS,
    PLANS,
    WINDOWS,
    memory_rows,
    network_rows,
    scaling_rows,
    window_rows,
)
from studies.quality.tables import cluster, nystra, nystromformer, published
from studies.training.data import reduce_bicubic
from studies.training.deblurring import with_motion
from studies.training.denoising import with_noise

Networks = Mapping[str, tuple[LoadedModel, list[Pixels]]]

COMPARED = (nystra(16), published(16), nystra(32), nystromformer(16), cluster(16))
"""The plans of table VI."""

SIDES = (8, 16, 24, 32, 48, 64, 96, 128)


def table(rows: Sequence[Mapping[str, Any]], shown: Mapping[str, Callable[[Any], str]]) -> str:
    """Return columns of rows as a Markdown table, without columns that are empty in all rows."""
    names = [name for name in shown if any(name in row for row in rows)]
    body = [[shown[name](row[name]) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [names, ["---"] * len(names), *body])


def times_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of times as Markdown."""
    merged = [
        {**row, "full / plan (least to most)": (row["ratio"], row["least"], row["most"])}
        for row in rows
    ]
    shown: dict[str, Callable[[Any], str]] = dict.fromkeys(
        ("network", "window", "tokens", "plan"), str
    )
    shown["ms"] = lambda ms: f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"
    shown["full / plan (least to most)"] = lambda three: "{:.2f}x ({:.2f} to {:.2f})".format(*three)
    return table(merged, shown)


def errors_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of matrix errors as Markdown, with the mean of each network's sites."""
    figures = [name for name in rows[0] if name not in ("model", "site", "tokens")]
    lines: list[Mapping[str, Any]] = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        lines += own
        means = {name: float(np.mean([row[name] for row in own])) for name in figures}
        lines.append({"model": model, "site": "**mean**", "tokens": "", **means})
    shown: dict[str, Callable[[Any], str]] = dict.fromkeys(("model", "site", "tokens"), str)
    shown |= dict.fromkeys(figures, lambda value: f"{value:.2e}")
    return table(lines, shown)


def reduced(values: Pixels, factor: int, seed: tuple[int, ...]) -> Pixels:
    """Return an image (H, W, 3), 0..255, without the rows and columns that do not divide, small."""
    height, width = (length // factor * factor for length in values.shape[:2])
    return reduce_bicubic(values[:height, :width].astype(np.uint8), factor)


def write_inputs(options: argparse.Namespace) -> None:
    """Write the images of a folder with noise, blurred by motion (seeded by place), or small."""
    options.out.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(options.folder.glob("*.png"))):
        with Image.open(path) as image:
            clean = np.asarray(image.convert("RGB"), np.float32)
        changed = options.change(clean, options.strength, (number,))
        Image.fromarray(changed.astype(np.uint8)).save(options.out / path.name)


def draw_spectrum(networks: Networks, out: Path, most: int) -> None:
    """Write figure 1, and print when a curve falls below a tenth and a hundredth."""
    from studies.paper.figures import save, spectrum_figure

    curves = {}
    for name, (model, inputs) in networks.items():
        curves[name] = spectrum(model, inputs, most)
        if model.hyper.get("position_bias", True):
            curves[f"{name}, without its bias"] = spectrum(model, inputs, most, bias=False)
    for name, values in curves.items():
        below = [int((values >= least).sum()) for least in (0.1, 0.01)]
        print(
            f"{name}: {below[0]} singular values of at least 0.1, {below[1]} of 0.01; "
            f"the 16th is {values[15]:.4f}"
        )
    save(spectrum_figure(curves), out)


def _networks(options: argparse.Namespace) -> Networks:
    return {
        Path(name).stem: (load(name), images(Path(folder), options.side))
        for name, folder in options.on
    }


def _errors(options: argparse.Namespace) -> None:
    networks = _networks(options)
    rows = [
        row
        for name, (model, inputs) in networks.items()
        for row in error_rows(name, model, inputs, COMPARED)
    ]
    print(errors_table(rows))


def _maps(options: argparse.Namespace) -> None:
    from studies.paper.figures import maps_figure, save

    rows = {name: (model, inputs[0]) for name, (model, inputs) in _networks(options).items()}
    save(maps_figure(rows, PLANS), options.out)


def _scaling(options: argparse.Namespace) -> None:
    from studies.paper.figures import save, scaling_figure

    rows = scaling_rows(options.rounds, options.sides)
    print(times_table(rows))
    save(scaling_figure(rows), options.out)


def _memory(options: argparse.Namespace) -> None:
    rows = memory_rows(options.sides)
    print(table(rows, dict.fromkeys(rows[0], str)))


def _networks_timed(options: argparse.Namespace) -> None:
    print(times_table(network_rows(options.rounds, CASES[options.case], options.plans)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], None], *, on: bool = False, out: bool = False
    ) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name)
        subparser.set_defaults(run=run)
        if on:
            subparser.add_argument(
                "--on", action="append", required=True, nargs=2, metavar=("MODEL", "FOLDER")
            )
            subparser.add_argument("--side", type=int, default=128, help="pixels of an image (128)")
        else:
            subparser.add_argument("--rounds", type=int, default=5)
        if out:
            subparser.add_argument("--out", type=Path, required=True)
        return subparser

    command("errors", _errors, on=True)
    command("maps", _maps, on=True, out=True)
    drawn = command(
        "spectrum", lambda o: draw_spectrum(_networks(o), o.out, o.most), on=True, out=True
    )
    drawn.add_argument("--most", type=int, default=1, help="windows of a head and image (1)")
    windows = command("windows", lambda o: print(times_table(window_rows(o.rounds, o.windows))))
    windows.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    timed = command("networks", _networks_timed)
    timed.add_argument("--case", choices=CASES, required=True)
    timed.add_argument("--plans", nargs="+", choices=NETWORK_PLANS, default=NETWORK_PLANS)
    scaling = command("scaling", _scaling, out=True)
    scaling.add_argument("--sides", type=int, nargs="+", default=SIDES)
    memory = commands.add_parser("memory")
    memory.set_defaults(run=_memory)
    memory.add_argument("--sides", type=int, nargs="+", default=(8, 16, 32, 64))
    changes = (("noisy", with_noise, 25.0), ("blurred", with_motion, 15), ("reduced", reduced, 8))
    for name, change, strength in changes:
        inputs = commands.add_parser(name)
        inputs.set_defaults(run=write_inputs, change=change, strength=strength)
        inputs.add_argument("folder", type=Path)
        inputs.add_argument("--out", type=Path, required=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    options.run(options)


if __name__ == "__main__":
    main()
