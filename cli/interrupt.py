"""Makes sure that Ctrl-C, and the other signals that end a program, end a command.

The signal raises KeyboardInterrupt wherever the program is, so that what was begun is removed or
saved; `core.ending` ends what does not react. In a callback that lets no exception out (that of a
weak reference while modules are imported, or of a library in C), the exception is dropped and the
command would run to its end; such a signal is sent again here. If code turns it into another error
(an import that failed), the command still ends as interrupted. Whatever this module does not need
is imported later.
"""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Protocol

from ..core.ending import EndingSignals


class Command(Protocol):
    """A command-line program."""

    def __call__(
        self, argv: Sequence[str] | None = None, then: Callable[[int], object] | None = None
    ) -> int:
        """Run with these arguments, or those of the process; return the exit code.

        Args:
            argv: The arguments.
            then: Called with the exit code while signals are still taken: may end the process.
        """


_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_WORDS = "interrupted"

_PAUSE = 0.01
"""Seconds after which a dropped interrupt is raised again, when the code that dropped it has
ended."""

_ending: EndingSignals | None = None
_came: int | None = None
_raised: weakref.ref[_Interrupt] | None = None
_over = True
"""The command has ended, so that there is nothing to interrupt."""


class _Interrupt(KeyboardInterrupt):
    """An interrupt on its way to the command; code that drops the exception deletes it."""

    def __init__(self) -> None:
        """Remember it, but not in a variable that its traceback keeps."""
        global _raised
        _raised = weakref.ref(self)

    def __del__(self) -> None:
        """Send the signal again, unless the command ends."""
        if _ending is not None and _came is not None and not _over:
            again = threading.Timer(_PAUSE, _ending.send_again, (_came,))
            again.daemon = True
            again.start()


def interruptible(command: Callable[[Sequence[str] | None], int]) -> Command:
    """Return a command that a signal ends, with one line and 128 + its number as exit code."""

    @wraps(command)
    def run(argv: Sequence[str] | None = None, then: Callable[[int], object] | None = None) -> int:
        with _interrupts():
            code = _code(command, argv)
            if then is not None:
                then(code)
            return code

    return run


def _code(command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None) -> int:
    global _over
    try:
        with reraise_interrupt():
            code = command(argv)
            _over = True
            return code
    except KeyboardInterrupt as stop:
        _over = True
        from .console import echo_error

        with suppress(OSError):  # the terminal is gone
            echo_error(f"{_WORDS}. {stop}" if str(stop) else _WORDS)
        return 128 + (_came or signal.SIGINT)


@contextmanager
def reraise_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for an error in the block that an interrupt caused."""
    try:
        yield
    except Exception as error:  # an interrupt that a library turned into an error of its own
        if _came is not None:
            raise KeyboardInterrupt from error
        raise


@contextmanager
def _interrupts() -> Iterator[None]:
    """Handle interrupts in the block, unless another program handles the signals."""
    global _ending, _came, _over
    defaults = (signal.default_int_handler, signal.SIG_DFL)
    signals = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    numbers = [number for number in signals if signal.getsignal(number) in defaults]
    with EndingSignals(numbers, _interrupt, _WORDS) as _ending:
        _came, _over = None, False
        try:
            yield
        finally:
            _ending = _came = None


def _interrupt(number: int) -> None:
    """Raise what ends the command, unless that is on its way, or the command has ended."""
    global _came
    if _over or (_raised is not None and _raised() is not None):
        return
    _came = number
    raise _Interrupt
