"""The memory that a run takes."""

from __future__ import annotations

from collections.abc import Callable

from nystra.runtime.machine.memory import PeakMemory, release_free_memory


def peak_above(run: Callable[[], object]) -> int:
    """Return by how many bytes a run raises the memory of this process, at its peak.

    Raises:
        SystemExit: The system does not tell the memory of a process.
    """
    release_free_memory()  # what loading left would hide a part of the run
    memory = PeakMemory()
    run()
    if memory.above is None:
        raise SystemExit("this system does not tell the memory of a process")
    return memory.above
