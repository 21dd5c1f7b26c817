"""The file of all results: CSV, a row for each class of each image, or JSON."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from ....core.files.reading import open_regular
from ....core.files.writing import check_can_make, check_new_file
from ....core.json_text import parse_json, stable_json
from ...images.images import STREAM
from .result import ClassResult

FORMATS = ("csv", "json")
COLUMNS = ("input", "rank", "class", "label", "probability", "logit", "error")

_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a formula in a spreadsheet, also in full width."""

_COLUMNS = ("input", "status", "classes", "error")


def check_listing(target: Path, source: Path, format: str | None, *, overwrite: bool) -> str:
    """Return the format of an output after checking that it may be written.

    Args:
        target: The file, or `STREAM`.
        source: The image or folder that is classified.
        format: ``csv`` or ``json``; None goes by the file's suffix.
        overwrite: Replace an existing file.

    Raises:
        NystraError: An unknown format or one that contradicts the suffix, a folder, a file that
            may not be replaced, or a folder that cannot be written.
    """
    if format is not None and format not in FORMATS:
        raise NystraError(f"`format` is {format!r}, expected {' or '.join(FORMATS)}")
    if target == STREAM:
        return format or "csv"
    suffix = target.suffix.lower()[1:]
    if suffix not in FORMATS:
        raise NystraError(
            f"the output {target} is not a list of classes: give a .csv or .json file"
        )
    if format not in (None, suffix):
        raise NystraError(f"the output {target} and `format` {format} contradict each other")
    check_new_file(target, "a .csv or .json file", source, overwrite=overwrite)
    check_can_make(target.parent)
    return suffix


def format_listing(results: Sequence[ClassResult], format: str) -> bytes:
    """Return the content of the file in UTF-8; files that are not images are left out.

    Args:
        results: As `classify_images` returns them.
        format: ``csv`` or ``json``.
    """
    images = [result for result in results if result.status != "skipped"]
    if format == "json":
        rows = []
        for result in images:
            entry = result.as_dict()
            rows.append({key: entry[key] for key in _COLUMNS})
        return stable_json({"schema_version": 1, "images": rows})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in images:
        writer.writerows(_rows(result))
    return text.getvalue().encode("utf-8", "backslashreplace")


def _rows(result: ClassResult) -> list[tuple[Any, ...]]:
    name = _cell(result.input)
    if result.error is not None:
        return [(name, "", "", "", "", "", _cell(result.error))]
    return [
        (
            name,
            rank,
            entry.number,
            _cell(entry.label or ""),
            f"{entry.probability:.6g}",
            f"{entry.logit:.6g}",
            "",
        )
        for rank, entry in enumerate(result.classes, 1)
    ]


def _cell(text: str) -> str:
    """Return a text that is safe in a terminal and in a spreadsheet.

    Control characters are escaped; a text that a spreadsheet would read as a formula gets an
    apostrophe in front, with which it is read as text.
    """
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return f"'{text}" if text.lstrip()[:1] in _FORMULAS else text


_MOST_BYTES = 16 << 20


def read_labels(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read labels: one per line in the order of the classes, or a JSON list (``.json``).

    Raises:
        NystraError: The file is missing, too large, not UTF-8, or has an empty label or no label.
    """
    with open_regular(path, "the labels") as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise NystraError(f"the labels {path} have more than {_MOST_BYTES >> 20} MiB")
    labels = _read_listing(path, data) if Path(path).suffix == ".json" else _lines(path, data)
    if not labels or not all(isinstance(label, str) and label for label in labels):
        raise NystraError(
            f"the labels {path} have no label, or an empty one: expected one per line, or a JSON "
            "list of strings"
        )
    return tuple(labels)


def check_labels(labels: tuple[str, ...], classes: int, where: str) -> None:
    """Raise NystraError unless there is a label for each class, or none at all.

    Args:
        labels: In the order of the classes.
        classes: Number of classes of the model.
        where: Where the labels come from, for the message.
    """
    if labels and len(labels) != classes:
        raise NystraError(
            f"{where} has {len(labels)} labels, the model has {classes} classes: give the labels "
            "of its training, one per line"
        )


def _lines(path: str | os.PathLike[str], data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NystraError(f"the labels {path} are not UTF-8 text: {error}") from error
    return [line.strip() for line in text.rstrip().split("\n")]


def _read_listing(path: str | os.PathLike[str], data: bytes) -> list[str]:
    value = parse_json(data, f"the labels {path}")
    if not isinstance(value, list):
        raise NystraError(f"the labels {path} are not a JSON list of strings")
    return value
