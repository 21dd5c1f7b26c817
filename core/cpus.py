"""How many CPUs this process may use."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """Return how many CPUs this process may use: all of the machine's if no limit is known."""
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
