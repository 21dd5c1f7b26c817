"""Starting Ray where the machine has other work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def patiently(start: Callable[..., Any], **given: Any) -> Any:
    """Call what starts a node of Ray, again where that was not up in the 30 s that Ray gives it."""
    for _ in range(2):
        try:
            return start(**given)
        except Exception as error:  # Ray's own class is this one
            if "timed out during startup" not in str(error):
                raise
    return start(**given)
