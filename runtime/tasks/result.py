"""The result of one input of a run, and the errors of inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...core.errors import NystraError


class UnreadableFileError(NystraError):
    """A file of a request cannot be read."""


class UnusableOutputError(NystraError):
    """The output of the model cannot be correct for any input."""

    exit_code = 1


@dataclass(frozen=True)
class Result:
    """The result of one input; a task adds fields of its own.

    Attributes:
        input: Path of the file, or another name.
        status: ``done``, ``failed`` or ``skipped``.
        output: Path of the output; None if nothing was written.
        error: Why it failed, or None.
        exit_code: The exit code of a command that ends with the error; 0 without one.
        reason: Why it was skipped, or None.
        warnings: Warnings about the input or the output.
        input_size: Its width and height in pixels.
        seconds: Time of reading, running and writing it.
        things: What a run counts, in the plural.
    """

    things: ClassVar[str] = "images"
    input: str
    status: str = "done"
    output: str | None = None
    error: str | None = None
    exit_code: int = 0
    reason: str | None = None
    warnings: list[str] = field(default_factory=list)
    input_size: tuple[int, int] | None = None
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def in_one_line(
    error: Exception,
    source: Path,
    done: str = "restored",
    advice: str = "use smaller tiles (`tile` 128)",
) -> NystraError:
    """Return any error about an image or a video as an error of one line.

    Args:
        error: What was raised.
        source: The image or video.
        done: The action that failed.
        advice: What to do if the memory does not suffice.
    """
    if isinstance(error, NystraError):
        return error
    if isinstance(error, MemoryError):
        return NystraError(f"not enough memory for {source}: {advice}")
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
    return NystraError(f"{source} cannot be {done}: {reason or type(error).__name__}")
