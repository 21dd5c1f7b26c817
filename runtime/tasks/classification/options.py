"""What is asked for of a classifier besides an input and an output."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ....core.errors import NystraError

USUAL_TOP = 5


@dataclass(frozen=True)
class ClassOptions:
    """The flags of ``nystra run`` that a model which classifies takes.

    Attributes:
        top: How many classes of each picture, best first; None is 5.
        labels: What the classes are called: a file as `read_labels` takes it; None takes the
            model's own.
        format: Of the one file of all results, ``csv`` or ``json``; None goes by its suffix, else
            csv.
        overwrite: Replace a file that is there; never the input itself.
        recursive: Take the pictures of subfolders too.
        quiet: Show no progress bar.
    """

    top: int | None = None
    labels: str | os.PathLike[str] | None = None
    format: str | None = None
    overwrite: bool = False
    recursive: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no number of classes."""
        if self.top is not None and self.top < 1:
            raise NystraError(f"--top is {self.top}, expected 1 or more classes")

    @property
    def count(self) -> int:
        """How many classes of each picture."""
        return self.top or USUAL_TOP
