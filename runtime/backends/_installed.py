"""Whether a module is installed, without importing it."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.util import find_spec


def find(module: str) -> ModuleSpec | None:
    """Return where a module would be imported from, or None."""
    try:
        return find_spec(module)
    except (ImportError, ValueError):  # what find_spec makes of a module that is blocked
        return None


def installed(module: str) -> bool:
    """Return whether a module of that name could be imported."""
    return find(module) is not None
