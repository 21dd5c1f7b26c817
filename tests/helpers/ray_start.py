"""Starts Ray on a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

TRAPS = ("numpy", "json", "grpc", "onnxruntime", "PIL", "starlette", "fastapi", "pydantic")


def patiently(start: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function that starts a part of Ray, again if it exceeded Ray's time limit.

    The limit is 30 s for a node and 60 s for the proxies of Ray Serve.
    """
    for _ in range(2):
        try:
            return start(**arguments)
        except Exception as error:  # Ray's own class is this one
            if not any(
                text in str(error) for text in ("timed out during startup", "not available")
            ):
                raise
    return start(**arguments)


def set_traps(folder: Path, caught: Path) -> None:
    """Write modules that record their name in ``caught`` when they are imported, and fail."""
    for name in TRAPS:
        text = (
            f"open({str(caught)!r}, 'a').write({name + chr(10)!r})\nraise ImportError('a trap')\n"
        )
        (folder / f"{name}.py").write_text(text)
