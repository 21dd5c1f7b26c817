"""The commands ``nystra-export`` and ``nystra``, which an interrupt ends from their first line on.

What they do is `dispatch`, imported once interrupts are taken.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..core.ending import engines_compute
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


def nystra() -> NoReturn:
    """Be the program ``nystra``."""
    _open_standard_streams()
    sys.exit(main(then=_end_at_once))


def nystra_export() -> NoReturn:
    """Be the program ``nystra-export``."""
    _open_standard_streams()
    sys.exit(export_main(then=_end_at_once))


def _open_standard_streams() -> None:
    """Open what the starting program closed, or the next files that are opened take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _end_at_once(code: int) -> None:
    """End the process where a regular end takes long, or for ever.

    After a signal, since PyTorch takes seconds to be unloaded; also if an engine still computes for
    a service that has ended.
    """
    if code > 128 or engines_compute():
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    nystra()
