"""Restrictions of a license of weights."""

from __future__ import annotations

import re

_NO_COMMERCE = re.compile(r"\bnc\b|non-?\s?commercial|research[ -]only|academic", re.IGNORECASE)


def license_warnings(license: str) -> tuple[str, ...]:
    """Return the warning of a load and an export if commercial use is forbidden."""
    if not _NO_COMMERCE.search(license):
        return ()
    return (f"the license of the weights, {license}, forbids commercial use",)
