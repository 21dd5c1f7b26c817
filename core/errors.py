"""The errors of nystra, whose messages say what was got, what was expected and what to do.

Each class has the exit code of a command that ends with it.
"""

from __future__ import annotations

import re

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class NystraError(Exception):
    """Bad input or usage; the base of all errors that nystra raises deliberately."""

    exit_code = 2


class CheckpointError(NystraError):
    """A checkpoint that cannot be read, or that does not fit its architecture."""


class UnsupportedModelError(NystraError):
    """A model whose architecture, options or operators nystra does not support."""


class ExportError(NystraError):
    """An export that failed."""

    exit_code = 1


class TraceError(ExportError):
    """PyTorch cannot trace the network: the cause is its code, not the export."""

    exit_code = 2


class ValidationError(NystraError):
    """A model file whose outputs differ from those of its source."""

    exit_code = 1


class BackendUnavailableError(NystraError):
    """A backend that is not installed on this machine."""

    exit_code = 3


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ended, which says nothing about what a network takes."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)  # PyTorch's text


def foreign_text(error: BaseException) -> str:
    """Return the message of another library's error without colors; the name of a silent one."""
    return _TERMINAL.sub("", str(error)).strip() or type(error).__name__


def foreign_reason(error: BaseException, longest: int = 300) -> str:
    """Return the message of another library's error as a part of a sentence."""
    return " ".join(foreign_text(error).split())[:longest].rstrip(".")
