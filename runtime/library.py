"""Chooses the operator library of a session, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.errors import NystraError


@dataclass(frozen=True)
class LibraryChoice:
    """A library to try.

    Attributes:
        path: The library, or None for none.
        reason: One sentence without a full stop that says why.
        required: The user named this one: failing to load it is an error.
        missing: The default library is needed, but not installed.
        refused: That library was tried, but does not support the model.
    """

    path: Path | None
    reason: str
    required: bool = False
    missing: bool = False
    refused: bool = False


def choose_library(
    library: str | Path | None,
    *,
    needed: bool,
    name: str = "nystra_onnxruntime",
    what: str = "operator library",
) -> LibraryChoice:
    """Choose the operator library for a model.

    Args:
        library: ``auto``, None or ``none``, or a path.
        needed: The model has nystra operators.
        name: The default library.
        what: It in words.

    Raises:
        NystraError: The path given is not a file.
    """
    if library is None or library == "none":
        return LibraryChoice(None, f"the {what} is disabled (library none)")
    if library != "auto":
        path = Path(library)
        if not path.is_file():
            raise NystraError(
                f"no {what} at {path}: expected auto, none or the path of a built "
                f"lib{name}; see docs/engines.md"
            )
        return LibraryChoice(path.resolve(), f"the {what} {path} was requested", True)
    if not needed:
        return LibraryChoice(None, "the model has no nystra operators, so no library is needed")
    try:
        from ..plugins.library import library_path

        path = Path(library_path(name))
    except (ImportError, FileNotFoundError, NystraError) as error:
        text = str(error).strip().rstrip(".")
        reason = f"the {what} is not built ({text})"
        return LibraryChoice(None, reason, missing=True)
    return LibraryChoice(path, f"the {what} {path} is loaded")
