"""What is asked for of a classifier besides an input and an output."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from ....core.option import Options, option
from ....core.option_kinds import File, Switch
from ...options import FORMAT, LABELS, OVERWRITE, TOP


@dataclass(frozen=True)
class ClassOptions(Options):
    """How pictures are classified."""

    heading: ClassVar[str] = "classes (of a model that classifies)"
    top: int = option(TOP)
    labels: str | os.PathLike[str] | None = option(LABELS)
    format: str | None = option(
        FORMAT, doc="csv or json, of the one file of all results", usual="by its suffix, else csv"
    )
    overwrite: bool = option(OVERWRITE, doc="replace a file that is there; never the input itself")
    recursive: bool = option(Switch("take the pictures of subfolders too"))
    quiet: bool = option(Switch("show no progress bar"))


@dataclass(frozen=True)
class AccuracyOptions(Options):
    """Pictures of known classes."""

    labelled: str | os.PathLike[str] | None = option(
        File(
            None,
            "pictures with known classes, one sub-folder a class: how often a classifier is right",
            metavar="FOLDER",
        )
    )
