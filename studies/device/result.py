"""Results on a device: rows of steps in one ``result.json``, merged over stages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1

SHOWN = 300
"""Letters of a reason that are shown in a line."""


@dataclass
class Row:
    """One step of a stage.

    Attributes:
        stage: Its stage.
        step: Its name.
        ok: It did what it is for.
        seconds: It took.
        reason: Why it is not ok, or None.
        data: What it measured, also where it failed or ran out of time.
    """

    stage: str
    step: str
    ok: bool
    seconds: float
    reason: str | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def cause(self) -> str:
        """The reason in one line: its start, and its end if it is an error's text."""
        text = " ".join((self.reason or "").split())
        return text if len(text) <= SHOWN else f"{text[: SHOWN // 3]} ... {text[-SHOWN * 2 // 3 :]}"


def load(file: Path) -> list[Row]:
    """The rows of a file; none if there is no file."""
    if not file.is_file():
        return []
    document = json.loads(file.read_text())
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{file} is no result of this version ({SCHEMA_VERSION})")
    return [Row(**row) for row in document["rows"]]


def merge(rows: Iterable[Row]) -> list[Row]:
    """One row per step: the last run, at the position of the first."""
    merged: dict[tuple[str, str], Row] = {}
    for row in rows:
        merged[row.stage, row.step] = row
    return list(merged.values())


def save(file: Path, rows: Iterable[Row]) -> None:
    """Write rows, as a whole or not at all."""
    document = {"schema_version": SCHEMA_VERSION, "rows": [asdict(row) for row in rows]}
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(document, indent=1, allow_nan=False, default=str) + "\n")
    unfinished.replace(file)
