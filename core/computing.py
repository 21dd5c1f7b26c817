"""The engines that compute at present, so that a command that ends can stop them."""

from __future__ import annotations

from collections.abc import Callable

_running: dict[Computing, Callable[[], None]] = {}


class Computing:
    """A context manager around one run of an engine."""

    __slots__ = ("_stop",)

    def __init__(self, stop: Callable[[], None]) -> None:
        """Set the function that makes the run end early, called from another thread."""
        self._stop = stop

    def __enter__(self) -> None:
        _running[self] = self._stop

    def __exit__(self, *_: object) -> None:
        del _running[self]


def stop_engines() -> None:
    """Make all runs end early, where their engines can do that."""
    for stop in list(_running.values()):
        stop()


def engines_compute() -> bool:
    """Return whether a run is under way."""
    return bool(_running)
