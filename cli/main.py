"""The commands ``nystra-export`` and ``nystra``, which an interrupt ends from their first line on.

What they do is `dispatch`, imported once interrupts are taken.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .interrupt import interruptible


@interruptible
def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nystra`` with these arguments; return the exit code."""
    from .dispatch import run_nystra

    return run_nystra(sys.argv[1:] if argv is None else argv)


@interruptible
def export_main(argv: Sequence[str] | None = None) -> int:
    """Run ``nystra-export`` with these arguments; return the exit code."""
    from .dispatch import run_export

    return run_export(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
