"""Words of messages."""

from __future__ import annotations

from collections.abc import Sequence


def pluralize(count: int, noun: str) -> str:
    """Return ``1 site``, ``2 sites``: a number with a noun whose plural ends in s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_named(names: Sequence[str], limit: int = 4) -> str:
    """Return ``a, b, c, d and 3 more``: the first of some names."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs more than once, or None."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def milliseconds(seconds: float) -> str:
    """Return ``0.52 ms``, ``8.3 ms``, ``163 ms``: seconds with two or three digits."""
    value = 1e3 * seconds
    digits = (value < 10) + (value < 1)
    return f"{value:.{digits}f} ms"
