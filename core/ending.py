"""Signals that end a process, also while a library computes.

Python runs its handler of a signal when the main thread next executes Python code: an engine that
computes in that thread delays it, for ever if the model has a loop without end. So a thread of its
own learns of each signal at once. It stops the engines that can be stopped, and ends the process
when the signal has not been handled after `GRACE` seconds, when an engine still computes then, or
when the signal comes again. Temporary files of the process are removed first.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

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
    """Make all runs end early, where their engines can do that; an error of one is ignored."""
    for stop in list(_running.values()):
        with contextlib.suppress(BaseException):
            stop()


def engines_compute() -> bool:
    """Return whether a run is under way."""
    return bool(_running)


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGTERM``; real-time signals have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


GRACE = 1.0
"""Seconds for engines to stop and for the main thread to handle the signal."""

_AGAIN = 0.2
"""Seconds from which on a signal is a second one: `timeout` and terminals send one twice."""

_REMOVING = 1.0
"""Seconds for temporary files to be removed."""


class EndingSignals:
    """A context manager in which signals end what the process does, and soon the process.

    Only the main thread can handle signals: elsewhere it does nothing.
    """

    def __init__(self, numbers: Sequence[int], handle: Callable[[int], Any], words: str) -> None:
        """Set what happens.

        Args:
            numbers: The signals.
            handle: Called in the main thread with the number; raises what ends the work.
            words: A line for stderr if the process is ended without it.
        """
        self._numbers = list(numbers)
        self._do, self._words = handle, words
        self._handled = self._over = False
        self._sending = threading.Lock()
        self._first: float | None = None
        self._resent = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> EndingSignals:
        if self._numbers and threading.current_thread() is threading.main_thread():
            reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            threading.Thread(
                target=self._watch, args=(reader,), name="nystra-signals", daemon=True
            ).start()
            self._fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            for number in self._numbers:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        with self._sending:  # what is sent again later would meet a former handler
            self._over = True
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._fd, warn_on_full_buffer=False)
            os.close(self._writer)

    def send_again(self, number: int) -> None:
        """Send a signal whose effect was lost again to the main thread."""
        main = threading.main_thread().ident
        with self._sending:
            if self._over or main is None:
                return
            self._resent += 1
            self._handled = False
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, number)  # wakes it, where it sleeps
            else:
                _thread.interrupt_main(number)  # type: ignore[arg-type]  # any number will do

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._handled = True
        self._do(number)

    def _watch(self, reader: int) -> None:
        with open(reader, "rb", buffering=0) as signals:
            while number := signals.read(1):
                if signal.getsignal(number[0]) == self._handle:  # or another part ends in order
                    self._receive(number[0])

    def _receive(self, number: int) -> None:
        now = time.monotonic()
        if self._resent:
            self._resent -= 1
        elif self._first is None:
            self._first = now
        elif now - self._first > _AGAIN:
            self._end(number)
        timer = threading.Timer(GRACE, self._end_if_busy, (number,))
        timer.daemon = True
        timer.start()
        # Not in this thread: one that never returns would delay the next signal for ever.
        threading.Thread(target=stop_engines, name="nystra-stop", daemon=True).start()

    def _end_if_busy(self, number: int) -> None:
        if not self._over and (not self._handled or engines_compute()):
            self._end(number)

    def _end(self, number: int) -> None:
        removing = threading.Thread(target=_remove_temporary_files, daemon=True)
        removing.start()
        removing.join(_REMOVING)
        with contextlib.suppress(OSError):  # the terminal is gone
            os.write(2, f"{os.linesep if os.isatty(2) else ''}{self._words}{os.linesep}".encode())
        os._exit(128 + number)


def _remove_temporary_files() -> None:
    if f"{__package__}.files.temporary" in sys.modules:
        from .files.temporary import remove_own

        remove_own()
