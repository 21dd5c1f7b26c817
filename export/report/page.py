"""The page of ``--report``: figures, plans, sites and images of an export.

One HTML file without scripts.
"""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import NystraError
from ...core.files.writing import atomic_write_bytes
from ...core.ports.port import join_sides
from ...runtime.images.image_data import ImageData
from ...runtime.images.images import encode_image
from ...runtime.images.sheet import readable_factor
from ...runtime.metrics.image_quality import psnr
from ...runtime.metrics.measures import PSNR_CEILING
from ...runtime.session import Session
from ...runtime.tasks.restoration.restorer import restorer_for
from .figures import figures_of
from .model_sheet import model_rows
from .sheet import SheetRow

if TYPE_CHECKING:
    from ...core.arrays import Array
    from ..attention.mechanism import Mechanism
    from ..load.images import Pixels
    from .export_result import ExportResult

_SIDE = 320
"""Side of an image at 1:1: three are shown side by side."""

_ZOOMED = 40
_ZOOMED_WIDTH = 232
"""Side of the enlarged part, in pixels of the output and of the page."""


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #d8dee4;
  vertical-align: top; }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; color: #57606a; }
.row { display: flex; gap: 1rem; flex-wrap: wrap; }
.row img { image-rendering: pixelated; display: block; }
.row figure { margin: .5rem 0; }
"""


@dataclass
class Page:
    """A page that is written from top to bottom.

    Attributes:
        title: Title of the page and of the window.
    """

    title: str
    _parts: list[str] = field(default_factory=list)

    def add_heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        """Add text."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add rows of cells under a head."""
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        lines = []
        for row in rows:
            texts = [f"<td>{html.escape(cell)}</td>" for cell in row]
            lines.append(f"<tr>{''.join(texts)}</tr>")
        self._parts.append(f"<table><tr>{cells}</tr>{''.join(lines)}</table>")

    def images(self, row: Sequence[tuple[str, str]], width: int) -> None:
        """Add images side by side, each with its caption.

        Args:
            row: Caption and image (`image_uri`).
            width: Width of each in CSS pixels; smaller images are enlarged without smoothing.
        """
        parts = [
            f'<figure><img src="{uri}" width="{width}" alt="{html.escape(caption)}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
            for caption, uri in row
        ]
        self._parts.append(f'<div class="row">{"".join(parts)}</div>')

    def html(self) -> str:
        """Return the whole page."""
        title = html.escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n"
            f"<body><h1>{title}</h1>\n" + "\n".join(self._parts) + "\n</body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page.

        Raises:
            NystraError: It cannot be written.
        """
        atomic_write_bytes(path, self.html().encode("utf-8", "backslashreplace"))


def image_uri(pixels: Pixels) -> str:
    """Return an image (H, W, 1 or 3) as PNG; values are clipped to 0..1."""
    clipped = np.clip(pixels, 0.0, 1.0).astype(np.float32)
    png = encode_image(ImageData(clipped), "PNG")
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def check_report_folder(folder: Path) -> None:
    """Raise NystraError if no page can be written into a folder, before the export."""
    if folder.exists() and not folder.is_dir():
        raise NystraError(f"`report` {folder} is a file, expected a folder: choose another")


def write_export_page(result: ExportResult, folder: Path) -> Path:
    """Write the page of an export and return its path, ``<stem>.export.html``.

    A page of an earlier export of the same name is replaced, like its model file.

    Raises:
        NystraError: It cannot be written; the model file is there.
    """
    try:
        session = Session(result.model)
        page = Page(f"{result.model.name}: export report")
        _add_figures(page, result)
        _add_plans(page, result.proposal.figures)
        page.add_heading("Images")
        _add_images(page, session, result)
        _add_sites(page, result)
        path = folder / f"{result.model.stem}.export.html"
        page.write(path)
    except NystraError as error:
        raise type(error)(f"{result.model} was written, the report was not: {error}") from error
    return path


def _add_figures(page: Page, result: ExportResult) -> None:
    for text in result.warnings:
        page.paragraph(f"Warning: {text}")
    page.table(("", "value"), figures_of(result))
    size = sum(path.stat().st_size for path in result.files) / 1e6
    names = ", ".join(path.name for path in result.files)
    page.paragraph(f"Files, {size:.2f} MB in all: {names}.")


def _add_plans(page: Page, figures: Mapping[str, Any]) -> None:
    if not figures:
        return
    page.add_heading("Plans")
    trained = figures["attention_seconds_as_trained"]
    page.paragraph(
        f"Time of attention alone, as trained {1e3 * trained:.1f} ms, and PSNR against the network "
        "as trained, on the images of the choice and on those held out."
    )

    def find_seconds(plan: tuple[str, Any]) -> float:
        return float(plan[1]["attention_seconds"])

    plans = sorted(figures["plans"].items(), key=find_seconds)
    rows = [
        (
            name,
            f"{1e3 * plan['attention_seconds']:.1f}",
            f"{trained / plan['attention_seconds']:.2f}x",
            _db(plan["psnr_seen"]),
            _db(plan["psnr_held_out"]),
        )
        for name, plan in plans
    ]
    page.table(("plan", "attention, ms", "as fast", "seen", "held out"), rows)


def _db(psnr: float | None) -> str:
    if psnr is None or psnr >= PSNR_CEILING:
        return "same"
    return f"{psnr:.1f} dB"


def _add_sites(page: Page, result: ExportResult) -> None:
    page.add_heading("Sites")
    sites = result.source.resolved
    page.paragraph(f"The mechanism of each of the {len(sites)} attention sites.")
    page.table(*site_table(sites))


_Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def site_table(sites: Mapping[str, Mechanism]) -> _Table:
    """Return the header and rows of a table of sites; sites with equal columns share a row.

    Args:
        sites: Mechanism of every site.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for path, mechanism in sites.items():
        what = (mechanism.name, _parameters(mechanism), mechanism.reason)
        alike.setdefault(what, []).append(path)
    heads: tuple[str, ...] = ("sites", "number", "mechanism", "parameters", "reason")
    rows: list[tuple[str, ...]] = []
    for columns, paths in alike.items():
        shared = (together(paths), str(len(paths)))
        rows.append((*shared, *columns))
    if not any(reason for *_, reason in rows):
        return heads[:-1], [row[:-1] for row in rows]
    return heads, rows


def together(paths: Sequence[str]) -> str:
    """Return module paths as one text, shortened to ``layers.{0, 1}.attn`` if possible.

    Args:
        paths: Different ones.
    """
    parts = [path.split(".") for path in paths]
    if len({len(of_path) for of_path in parts}) > 1:
        return ", ".join(paths)
    parts_at = zip(*parts, strict=True)
    values = [list(dict.fromkeys(names)) for names in parts_at]
    if math.prod(map(len, values)) != len(paths):
        return ", ".join(paths)
    texts = [names[0] if len(names) == 1 else f"{{{', '.join(names)}}}" for names in values]
    return ".".join(texts)


def _parameters(mechanism: Mechanism) -> str:
    texts = {
        name: join_sides(value) if isinstance(value, tuple) else str(value)
        for name, value in mechanism.values().items()
    }
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def _add_images(page: Page, session: Session, result: ExportResult) -> None:
    facts = session.facts
    if facts.image is None or facts.output_image is None or facts.output_image.role != "picture":
        page.paragraph("The file does not map images to images, so none are shown.")
        return
    restorer = restorer_for(session)
    rows = model_rows(session, restorer, result.source, max_side=_SIDE)
    factor = readable_factor([row.difference for row in rows])
    page.paragraph(
        f"Photographs at 1:1; below each the {_ZOOMED}x{_ZOOMED} pixels that change most, "
        f"enlarged. The difference is the largest of R, G and B, {factor:g} times amplified."
    )
    for row in rows:
        _add_row(page, row, restorer.scale, factor)


def _add_row(
    page: Page,
    row: SheetRow,
    scale: int,
    factor: float,
) -> None:
    full = row.baseline_image[1]
    figure = f"{min(psnr(row.exported, full), PSNR_CEILING):.1f} dB"
    cells = [
        (f"{row.scene.name}: {row.baseline_image[0]}", full),
        (f"exported, {figure}", row.exported),
        (f"difference x {factor:g}", row.difference * factor),
    ]
    images = [(text, image_uri(cell)) for text, cell in cells]
    page.images(images, full.shape[1])
    top, left = find_largest_change(row.difference[:, :, 0], scale)
    place = (slice(top, top + _ZOOMED), slice(left, left + _ZOOMED))
    part = _ZOOMED // scale
    input_part = row.source[top // scale :, left // scale :]
    source = input_part[:part, :part]
    crops = [("input", source)]
    for text, cell in cells:
        name = text.split(",")[0]
        crops.append((name, cell[place]))
    zoomed = [(text, image_uri(cell)) for text, cell in crops]
    page.images(zoomed, _ZOOMED_WIDTH)


def find_largest_change(difference: Array, scale: int) -> tuple[int, int]:
    """Return top and left of the part with the largest sum of differences, at input pixels."""
    totals = difference.cumsum(0).cumsum(1)
    sums = np.pad(totals, ((1, 0), (1, 0)))
    height, width = (min(_ZOOMED, side) for side in difference.shape)
    right = sums[height:, width:] - sums[:-height, width:]
    parts = right - sums[height:, :-width]
    parts = parts + sums[:-height, :-width]
    parts = parts[::scale, ::scale]
    top, left = np.unravel_index(int(parts.argmax()), parts.shape)
    return int(top) * scale, int(left) * scale
