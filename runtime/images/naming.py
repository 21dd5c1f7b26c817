"""The names of written images."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import NystraError
from .images import SUFFIXES, format_named

STREAM = Path("-")
"""The name of the standard input or output."""


@dataclass(frozen=True)
class Naming:
    """The names of outputs.

    Attributes:
        format: Suffix of their format without the dot, such as ``png``; None keeps that of the
            input, or uses ``png`` if that can only be read.
        suffix: Appended to the stem of an image in a folder, such as ``_x2``.
    """

    format: str | None = None
    suffix: str = ""

    def __post_init__(self) -> None:
        """Refuse a format that is not written, and a suffix that is no part of a name."""
        if self.format is not None:
            format_named(self.format)
        if "/" in self.suffix or os.sep in self.suffix or "\0" in self.suffix:
            raise NystraError(f"`suffix` is {self.suffix!r}, expected a part of a file name")

    def name(self, source: Path) -> str:
        """Return the name of an image's output in a folder."""
        stem = "stdin" if source == STREAM else source.stem
        keeps = source.suffix.lower() in SUFFIXES
        ending = f".{self.format}" if self.format else source.suffix if keeps else ".png"
        return f"{stem}{self.suffix}{ending}"
