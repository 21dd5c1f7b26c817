"""The options of ``--attn auto``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_BUDGET = 50.0
"""dB against the network as trained"""


@dataclass(frozen=True)
class AutoOptions:
    """Choose the fastest plan within the budget of ``min_psnr``, instead of a given plan.

    Attributes:
        costs: File of the costs: read if it exists, otherwise written; None: no file.
        keep_full: Sites that stay as trained.
        report: Called with the `AutoResult` and draws it; None draws nothing.
    """

    costs: Path | None = None
    keep_full: tuple[str, ...] = ()
    report: Callable[[Any], None] | None = None
