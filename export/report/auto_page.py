"""The page of ``--report``: the choice, the curve, the sites, and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...core.files.writing import make_folder
from ...core.json_text import PSNR_CAP
from ...runtime.images.sheet import readable_factor
from ...runtime.metrics.measures import decibels
from ..attention.site import neutral, swap
from ..auto.figures import pareto_figure, sites_figure
from ..auto.knapsack import Selection, seconds
from ..auto.result import AutoResult
from ..auto.verification import Verified
from ..load.images import Pixels
from ..pytorch.network_session import NetworkSession
from .images import figure_uri, image_uri
from .page import Page

_IMAGES = 4
_WIDTH = 256


def page_path(folder: Path, checkpoint: Path) -> Path:
    """Return the page of a checkpoint."""
    return folder / f"{checkpoint.stem}.auto.html"


def write_report(result: AutoResult, folder: Path) -> None:
    """Write the page into a folder, which is created if missing.

    Raises:
        NystraError: It cannot be written.
    """
    name = result.loaded.checkpoint.path.stem
    page = Page(f"{name}: the fastest plan that reaches {result.budget:g} dB")
    add_choice(page, result)
    make_folder(folder)
    page.write(page_path(folder, result.loaded.checkpoint.path))


def add_choice(page: Page, result: AutoResult) -> None:
    """Add the sections on a chosen plan to a page."""
    page.paragraph(result.summary())
    for text in result.warnings():
        page.paragraph(text)
    if result.idle:
        return
    page.heading("Time against PSNR")
    page.figure(
        figure_uri(pareto_figure(result)),
        "Time of attention alone, measured per site; the speed of the whole file is in the "
        "report of the export. PSNR of whole plans, on the images used for the choice or on "
        "those held out, whichever is worse. The line is the sum of the changes of single "
        "sites, as in the first choice.",
    )
    plans = {"chosen": (result.choice, result.verified), **result.uniform}
    ranked = sorted(plans.items(), key=lambda entry: seconds(entry[1][0]))
    rows = [_plan_row(result, text, *plan) for text, plan in ranked]
    page.table(("plan", "attention, ms", "attention alone", "seen", "held out"), rows)
    page.heading("Sites")
    page.figure(
        figure_uri(sites_figure(result)),
        "PSNR of the output if only that site is replaced; the chosen mechanism is framed. "
        "Empty: not faster than as trained, or not applicable to the site.",
    )
    page.table(
        ("site", "chosen", "why"),
        [(path, str(mechanism), mechanism.reason) for path, mechanism in result.plan.items()],
    )
    page.heading("Images")
    _add_images(page, result)


def _plan_row(
    result: AutoResult, text: str, choice: Selection, verified: Verified
) -> tuple[str, str, str, str, str]:
    ratio = seconds(result.trained) / seconds(choice)
    psnr = [f"{decibels(squares):.1f} dB" for squares in (verified.seen, verified.held_out)]
    return (text, f"{1e3 * seconds(choice):.1f}", f"{ratio:.2f}x as fast", psnr[0], psnr[1])


def _add_images(page: Page, result: AutoResult) -> None:
    """Add the images that change most, at least one of them held out."""
    network, images = result.loaded.network, result.images
    exact = NetworkSession(swap(network, neutral(network), "operator"))
    planned = NetworkSession(swap(network, result.plan, "operator"))
    pairs = {
        name: (exact(*feeds.values()), planned(*feeds.values()))
        for name, feeds in images.samples.items()
    }
    low, high = result.loaded.facts.outputs[0].range or (0.0, 1.0)
    shown = {
        name: tuple(np.clip(_shown(output, low, high), 0.0, 1.0) for output in pair)
        for name, pair in pairs.items()
    }
    changes = {name: float(np.mean((a - b) ** 2)) for name, (a, b) in shown.items()}
    ranked = sorted(changes, key=lambda name: -changes[name])
    held = next(name for name in ranked if name in images.held_out)
    chosen = list(dict.fromkeys([held, *ranked]))[:_IMAGES]
    differences = {name: np.abs(shown[name][0] - shown[name][1]) for name in chosen}
    factor = readable_factor(list(differences.values()))
    page.paragraph(
        "The images that change most, beginning with one held out: as trained, with the plan, "
        f"and the difference, {factor:g} times amplified."
    )
    for name in chosen:
        full, plan = shown[name]
        where = f"{name}, held out" if name in images.held_out else name
        row = [
            (f"{where}: as trained", image_uri(full)),
            (f"the plan, {min(decibels(changes[name]), PSNR_CAP):.1f} dB", image_uri(plan)),
            (f"difference x {factor:g}", image_uri(differences[name] * factor)),
        ]
        page.images(row, _WIDTH)


def _shown(output: Pixels, low: float, high: float) -> Pixels:
    """Return the first image of an output (or its first frame) as (H, W, 1 or 3) in 0..1."""
    image = output.reshape(-1, *output.shape[-3:])[0].transpose(1, 2, 0)
    channels = 3 if image.shape[2] >= 3 else 1
    shown: Pixels = (image[:, :, :channels] - low) / (high - low)
    return shown
