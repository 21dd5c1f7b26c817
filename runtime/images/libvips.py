"""The library that decodes and encodes images, imported at its first use."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def libvips() -> Any:
    """Return pyvips with one thread for each operation and no memory of earlier operations.

    An operation runs inside a caller's thread; a result that is kept would keep its image.
    """
    import pyvips

    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)
    pyvips.logger.setLevel("CRITICAL")  # what matters is an error of the operation
    return pyvips
