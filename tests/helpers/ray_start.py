"""Starting Ray where the machine has other work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TOO_SLOW = ("timed out during startup", "HTTP proxies not available")


def patiently(start: Callable[..., Any], **given: Any) -> Any:
    """Call what starts something of Ray, again where it was not up in the time that Ray gives it.

    That is 30 s for a node and 60 s for the proxies of Ray Serve.
    """
    for _ in range(2):
        try:
            return start(**given)
        except Exception as error:  # Ray's own class is this one
            if not any(
                text in str(error) for text in ("timed out during startup", "not available")
            ):
                raise
    return start(**given)
