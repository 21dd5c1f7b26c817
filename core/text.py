"""Words of messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return ``1 site``, ``2 sites``: a number with a noun whose plural ends in s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def milliseconds(seconds: float) -> str:
    """Return ``0.52 ms``, ``8.3 ms``, ``163 ms``: seconds with two or three digits."""
    value = 1e3 * seconds
    return f"{value:.{2 if value < 1 else 1 if value < 10 else 0}f} ms"
