"""The license of weights: what a checkpoint states, and what it restricts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...core.plain_text import is_plain_line

UNKNOWN = "unknown"
_NO_COMMERCE = re.compile(r"\bnc\b|non-?\s?commercial|research[ -]only|academic", re.IGNORECASE)


def read_license(stored: Mapping[str, Any]) -> str:
    """Return the license in the metadata of a checkpoint; `UNKNOWN` if it is not one plain line."""
    text = " ".join(str(stored.get("license", UNKNOWN)).split())
    return text if is_plain_line(text) else UNKNOWN


def license_warnings(license: str, stored: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the warnings of a load and an export.

    Args:
        license: The license of the loaded network.
        stored: The metadata of its checkpoint.
    """
    stated = stored.get("license", UNKNOWN)
    if license == UNKNOWN != stated:
        return (f"the license that the checkpoint states is not one plain line: {stated!r:.80}",)
    if not _NO_COMMERCE.search(license):
        return ()
    return (f"the license of the weights, {license}, forbids commercial use",)
