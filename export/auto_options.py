"""What a caller of ``--attn auto`` chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_BUDGET = 50.0
"""dB against the network as trained"""


@dataclass(frozen=True)
class AutoOptions:
    """Take the fastest plan within the budget of ``min_psnr``, in place of a plan.

    Attributes:
        costs: File of the costs: read where it exists, else written; None keeps none.
        keep_full: Sites that stay as trained.
        report: Called with the `AutoResult` and draws it; None draws nothing.
    """

    costs: Path | None = None
    keep_full: tuple[str, ...] = ()
    report: Callable[[Any], None] | None = None
