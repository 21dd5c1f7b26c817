"""Sizes of pictures on the command line."""

from __future__ import annotations

from ...core.errors import NystraError
from ...core.ports.port import picture_size


def parse_sizes(flag: str, text: str) -> list[dict[str, int]]:
    """Read ``128x128,64x96``, height x width, that ``flag`` was given.

    Raises:
        NystraError: It is not of that form.
    """
    return [parse_size(flag, part) for part in text.split(",")]


def parse_size(flag: str, text: str) -> dict[str, int]:
    """Read ``64x96``, height x width, that ``flag`` was given.

    Raises:
        NystraError: It is not of that form.
    """
    try:
        height, width = (int(number) for number in text.split("x"))
    except ValueError:
        height = width = 0
    if height < 1 or width < 1:
        raise NystraError(f"{flag} {text!r} is not of the form 128x128, height x width")
    return picture_size(height, width)
