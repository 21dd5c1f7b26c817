"""A page of headings, text, tables and images, all in one HTML file without scripts."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core.files.writing import atomic_write_bytes

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #d8dee4;
  vertical-align: top; }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; color: #57606a; }
img.figure { max-width: 100%; }
.row { display: flex; gap: 1rem; flex-wrap: wrap; }
.row img { image-rendering: pixelated; display: block; }
.row figure { margin: .5rem 0; }
pre { background: #f6f8fa; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; }
"""


@dataclass
class Page:
    """A page that is written from top to bottom.

    Attributes:
        title: Title of the page and of the window.
    """

    title: str
    _parts: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        """Add text."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def code(self, text: str) -> None:
        """Add lines of a program, unchanged."""
        self._parts.append(f"<pre>{html.escape(text.strip())}</pre>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add rows of cells under a head."""
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        lines = [
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows
        ]
        self._parts.append(f"<table><tr>{cells}</tr>{''.join(lines)}</table>")

    def figure(self, uri: str, caption: str) -> None:
        """Add a figure (`images.figure_uri`) with its caption."""
        words = html.escape(caption)
        self._parts.append(
            f'<figure><img class="figure" src="{uri}" alt="{words}">'
            f"<figcaption>{words}</figcaption></figure>"
        )

    def images(self, row: Sequence[tuple[str, str]], width: int) -> None:
        """Add images side by side, each with its caption.

        Args:
            row: Caption and image (`images.image_uri`).
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
