"""The library that decodes and encodes images, imported at its first use."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core.errors import NystraError

_LEAST = (8, 16)
_ADVICE = "pip install 'pyvips[binary]'"


@cache
def libvips() -> Any:
    """Return pyvips with one thread for each operation and no memory of earlier operations.

    An operation runs inside a caller's thread; a result that is kept would keep its image.

    Raises:
        NystraError: There is no libvips, or an old one.
    """
    try:
        import pyvips
    except OSError as error:  # of the system's linker
        raise NystraError(f"pyvips finds no libvips ({error}): {_ADVICE}") from error
    if not pyvips.at_least_libvips(*_LEAST):
        found, least = pyvips.version(0), ".".join(map(str, _LEAST))
        raise NystraError(
            f"pyvips uses libvips {found}.{pyvips.version(1)}, expected {least} or newer: {_ADVICE}"
        )
    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)
    pyvips.logger.setLevel("CRITICAL")  # what matters is an error of the operation
    return pyvips
