"""What is said of one input of a run, for ``--json`` and for who calls from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def result(here: Path, **values: Any) -> dict[str, Any]:
    """Return what every task says of an input, and the values of this one."""
    common: dict[str, Any] = {
        "input": str(here),
        "status": "done",
        "output": None,
        "error": None,
        "reason": None,
        "warnings": [],
        "input_size": None,
        "seconds": None,
    }
    return common | values


def picture_result(here: Path, **values: Any) -> dict[str, Any]:
    """Return `result` with what is said of a picture or a video that is made of the input."""
    own = {"output_size": None, "model_seconds": None, "tiles": None}
    return result(here, **own | values)
