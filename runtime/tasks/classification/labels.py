"""The labels of a model's classes."""

from __future__ import annotations

import os
from pathlib import Path

from ....core.errors import NystraError
from ....core.files.reading import open_regular
from ....core.strict_json import parse_json

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
    labels = _listed(path, data) if Path(path).suffix == ".json" else _lines(path, data)
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


def _listed(path: str | os.PathLike[str], data: bytes) -> list[str]:
    value = parse_json(data, f"the labels {path}")
    if not isinstance(value, list):
        raise NystraError(f"the labels {path} are not a JSON list of strings")
    return value
