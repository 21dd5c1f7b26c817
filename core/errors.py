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
    """An export that could not be carried through."""

    exit_code = 1


class TraceError(ExportError):
    """A network that PyTorch cannot follow: it is of its code, not of the export."""

    exit_code = 2


class ValidationError(NystraError):
    """A model file that does not do what its source does."""

    exit_code = 1


class BackendUnavailableError(NystraError):
    """A backend that is not installed on this machine."""

    exit_code = 3
