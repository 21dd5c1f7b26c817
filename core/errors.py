"""The errors of nystra: what was got, what was expected, what to do next.

Each class carries the exit code the commands end with when it reaches them.
"""

from __future__ import annotations


class NystraError(Exception):
    """Bad input or usage. The base of every error nystra raises on purpose."""

    exit_code = 2


class CheckpointError(NystraError):
    """A checkpoint that cannot be read, or that does not fit its architecture."""


class UnsupportedModelError(NystraError):
    """A model whose architecture, options or operators nystra does not know."""


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
