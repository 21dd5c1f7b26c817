"""Whether a module is installed, without importing it."""

from __future__ import annotations

from importlib.util import find_spec


def installed(module: str) -> bool:
    """Return whether a module of that name could be imported."""
    try:
        return find_spec(module) is not None
    except ValueError:  # what find_spec makes of a module that is blocked
        return False
