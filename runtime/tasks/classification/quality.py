"""The accuracy of a classifier: images in subfolders, one per class."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....core.errors import NystraError
from ...images.images import read_image
from ...metrics.guarded_figure import GuardedFigure
from ...session import Session
from ..quality import Network, Quality
from ..restoration.run import list_images
from .classifier import Classifier, classifier_for
from .options import AccuracyOptions


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a classifier.

    Attributes:
        top1: Top-1 accuracy, in 0..1.
        top5: Top-5 accuracy, in 0..1.
        images: Number of labeled images.
        classes: Names of the subfolders, sorted.
        matched_by: How subfolders were matched with classes: ``label``, ``number`` or ``order``.
    """

    top1: float
    top5: float
    images: int
    classes: tuple[str, ...]
    matched_by: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {"classes": list(self.classes)}


@dataclass(frozen=True)
class AccuracyReport:
    """The accuracy of a file, and of the network that it was exported from.

    Attributes:
        runs: ``file``, and ``network`` if that was measured too.
    """

    runs: Mapping[str, Accuracy]
    warnings: tuple[str, ...] = ()

    def figures(self) -> dict[str, float]:
        """Return the figures for a baseline."""
        return {"accuracy_top1": self.runs["file"].top1, "accuracy_top5": self.runs["file"].top5}

    def settings(self) -> dict[str, Any]:
        """Return how it was measured."""
        return {"classes": list(self.runs["file"].classes), "images": self.runs["file"].images}

    def as_dict(self) -> dict[str, Any]:
        """Return everything in JSON form."""
        return {name: accuracy.as_dict() for name, accuracy in self.runs.items()}

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table, its head first."""
        return [
            ("labeled images", "top-1", "top-5"),
            *((name, f"{run.top1:.2%}", f"{run.top5:.2%}") for name, run in self.runs.items()),
        ]

    def notes(self) -> list[str]:
        """Return the number of images, and how their classes were determined."""
        file = self.runs["file"]
        return [
            f"{file.images} images in {len(file.classes)} folders, matched by {file.matched_by}"
        ]


def measure_accuracy(
    classify: Classifier,
    folder: str | os.PathLike[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Accuracy:
    """Measure the accuracy of a classifier; of equal logits the smaller class ranks first.

    Args:
        classify: The classifier.
        folder: A subfolder of images per class; see `class_numbers` for the names.
        progress: Called with (images done, images in total).

    Raises:
        NystraError: The folder or its subfolders are missing, a subfolder matches no class, or an
            image cannot be read or classified.
    """
    labeled = _find_labeled(Path(folder))
    labels = classify.preprocessing.labels
    numbers, matched_by = class_numbers(tuple(labeled), labels, classify.classes)
    total = sum(map(len, labeled.values()))
    places = []
    for number, images in zip(numbers, labeled.values(), strict=True):
        for path in images:
            try:
                logits = classify(read_image(path).pixels)
            except NystraError as error:
                raise NystraError(f"{path} cannot be classified: {error}") from error
            if number >= len(logits):
                raise NystraError(
                    f"the folder of {path} stands for class {number}, the model has {len(logits)}"
                )
            ranked = np.argsort(-logits, kind="stable")
            places.append(int(np.flatnonzero(ranked == number)[0]))
            progress(len(places), total)
    ranks = np.array(places)
    shares = float(np.mean(ranks < 1)), float(np.mean(ranks < 5))
    return Accuracy(*shares, total, tuple(labeled), matched_by)


def class_numbers(
    names: Sequence[str], labels: Sequence[str], classes: int | None
) -> tuple[list[int], str]:
    """Return the class of each subfolder, and how it was determined.

    By label if every name is the label of one class; by number if every name is a whole number;
    otherwise by sorted order, as in torchvision's ImageFolder, if there are as many subfolders as
    classes.

    Args:
        names: Names of the subfolders, sorted.
        labels: Labels of the classes, or empty.
        classes: Number of classes, or None if unknown.

    Raises:
        NystraError: None of these applies.
    """
    counts = Counter(labels)
    if all(counts[name] == 1 for name in names):
        return [labels.index(name) for name in names], "label"
    if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
        return [int(name) for name in names], "number"
    if classes in (None, len(names)):
        return list(range(len(names))), "order"
    raise NystraError(
        f"the names of {len(names)} subfolders ({', '.join(names[:3])}, ...) do not match the "
        f"{classes} classes: name each by its label (`labels`) or its number, or have one for "
        "every class"
    )


def _find_labeled(folder: Path) -> dict[str, list[Path]]:
    """Return the images of each subfolder, by its name."""
    if not folder.is_dir():
        raise NystraError(f"no folder at {folder}, expected one with a subfolder per class")
    folders = sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not folders:
        raise NystraError(
            f"the folder {folder} holds no subfolders, expected one for each class, with images"
        )
    return {path.name: list_images(path, recursive=True)[0] for path in folders}


def _measure(
    session: Session,
    options: AccuracyOptions,
    progress: Callable[[str], None] = lambda text: None,
    network: Network | None = None,
) -> AccuracyReport:
    """Measure a file, and the network that it was exported from if that is given."""
    if options.labeled is None:
        raise NystraError("nothing to measure: give `labeled`")
    classifiers = {"file": classifier_for(session)}
    if network is not None:
        classifiers["network"] = replace(classifiers["file"], function=network())
    runs = {}
    for name, classifier in classifiers.items():

        def report(done: int, total: int, name: str = name) -> None:
            progress(f"{name}: labeled image {done} of {total}")

        runs[name] = measure_accuracy(classifier, options.labeled, report)
    return AccuracyReport(runs)


QUALITY = Quality(
    name="accuracy",
    items={
        f"accuracy_{name}": GuardedFigure(
            f"{title} accuracy on labeled images", "", "drop", 0.005, "`labeled`"
        )
        for name, title in (("top1", "top-1"), ("top5", "top-5"))
    },
    settings={"classes": list, "images": int},
    options=AccuracyOptions,
    measure=_measure,
)
