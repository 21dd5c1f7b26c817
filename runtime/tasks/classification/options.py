"""The options of a classification, apart from input and output."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from ....core.option import Options, option
from ....core.option_kinds import File, Switch
from ...options import FORMAT, LABELS, OVERWRITE, TOP


@dataclass(frozen=True)
class ClassOptions(Options):
    """Options of a classification."""

    heading: ClassVar[str] = "classification"
    top: int = option(TOP)
    labels: str | os.PathLike[str] | None = option(LABELS)
    format: str | None = option(
        FORMAT, doc="csv or json", default_text="by the suffix of the output, else csv"
    )
    overwrite: bool = option(OVERWRITE, doc="replace an existing file, never the input")
    recursive: bool = option(Switch("include subfolders"))
    quiet: bool = option(Switch("no progress bar"))


@dataclass(frozen=True)
class AccuracyOptions(Options):
    """Images of known classes."""

    labeled: str | os.PathLike[str] | None = option(
        File(
            None,
            "images with known classes, one subfolder per class: measure the accuracy",
            metavar="FOLDER",
        )
    )
