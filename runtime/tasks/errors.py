"""The message of an image or a video that failed."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import NystraError


def in_one_line(
    error: Exception,
    here: Path,
    done: str = "restored",
    advice: str = "use smaller tiles (`tile` 128)",
) -> NystraError:
    """Return any error about an image or a video as an error of one line.

    Args:
        error: What was raised.
        here: The image or video.
        done: The action that failed.
        advice: What to do if the memory does not suffice.
    """
    if isinstance(error, NystraError):
        return error
    if isinstance(error, MemoryError):
        return NystraError(f"not enough memory for {here}: {advice}")
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
    return NystraError(f"{here} cannot be {done}: {reason or type(error).__name__}")
