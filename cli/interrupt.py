"""Makes sure that Ctrl-C ends a command.

Python raises KeyboardInterrupt wherever the program is. In a callback that lets no exception out
(that of a weak reference while modules are imported, or of a library in C), it is dropped and the
command would run to its end; such an interrupt is raised again here. If code turns it into another
error (an import that failed), the command still ends as interrupted. Whatever this module does not
need is imported later.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Protocol


class Command(Protocol):
    """A command-line program."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run with these arguments, or those of the process; return the exit code."""


INTERRUPTED = 130
"""The exit code."""

_PAUSE = 0.01
"""Seconds after which a dropped interrupt is raised again, when the code that dropped it has
ended."""

_awaited = False
_came = False


class _Interrupt(KeyboardInterrupt):
    """An interrupt on its way to the command; code that drops the exception deletes it."""

    def __del__(self) -> None:
        """Raise the interrupt again, unless the command ends."""
        if _awaited:
            again = threading.Timer(_PAUSE, _interrupt_again)
            again.daemon = True
            again.start()


def interruptible(command: Command) -> Command:
    """Return a command that ends with one line and exit code 130 when it is interrupted."""

    @wraps(command)
    def run(argv: Sequence[str] | None = None) -> int:
        try:
            with _interrupts(), failing_by_interrupt():
                return command(argv)
        except KeyboardInterrupt as stop:
            from .console import echo_error

            echo_error(f"interrupted. {stop}" if str(stop) else "interrupted")
            return INTERRUPTED

    return run


@contextmanager
def failing_by_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for an error in the block that an interrupt caused."""
    try:
        yield
    except Exception as error:
        if _came:
            raise KeyboardInterrupt from error
        raise


@contextmanager
def _interrupts() -> Iterator[None]:
    """Handle interrupts in the block, unless another program handles the signal."""
    global _awaited, _came
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    _awaited, _came = True, False
    try:
        yield
    finally:
        _awaited = _came = False
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    global _came
    _came = True
    raise _Interrupt


def _interrupt_again() -> None:
    if not _awaited:
        return
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)  # wakes it, where it sleeps
    else:
        _thread.interrupt_main()
