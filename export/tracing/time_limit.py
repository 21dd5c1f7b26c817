"""A limit to the processor time of steps that may take long: traces, conversions, searches.

PyTorch compares free sizes symbolically, and loops of a network become thousands of nodes.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ...core.errors import TraceError
from ...core.ports.port import Port
from .examples import describe_fixed_shape

SECONDS = 60.0
"""The limit where none is set."""

_WAIT = 0.5


class OutOfTime(BaseException):
    """Ends a trace; no Exception, since tracers catch those of the code that they trace."""


@dataclass
class _Limit:
    """A limit, and the steps that reached it with some inputs: they are not tried again."""

    seconds: float = SECONDS
    reached: set[tuple[str, str]] = field(default_factory=set)


_LIMIT: ContextVar[_Limit | None] = ContextVar("limit of a step", default=None)


class _Stopwatch:
    """The processor time of a step of this thread, without that of steps within it."""

    def __init__(self) -> None:
        self._used = _clock_of_this_thread()
        self._begun = self._used()
        self._paused: float | None = None

    def seconds(self) -> float:
        """Return it; other threads may ask."""
        paused = self._paused
        return (self._used() if paused is None else paused) - self._begun

    def pause(self) -> None:
        """Count no time until `go_on`."""
        self._paused = self._used()

    def go_on(self) -> None:
        """Count time again."""
        if self._paused is not None:
            self._begun += self._used() - self._paused
            self._paused = None


_STOPWATCH: ContextVar[_Stopwatch | None] = ContextVar("time of the step", default=None)

TRACE, BRANCHES, CONVERSION, SEARCH = (
    "tracing the network",
    "comparing what its code decides by sizes",
    "converting its trace to ONNX",
    "the search for its attention",
)
"""The steps that are limited, for messages."""

_OF_LOOPS = (
    "; a loop over tokens, as of a scan, is traced step by step: compute its steps at once "
    "(docs/own.md)"
)


@contextmanager
def limit_traces(seconds: float) -> Iterator[None]:
    """Limit the processor time of each step within a block, in seconds: traces, searches and so on.

    What reached the limit is refused at once when it is tried again.
    """
    before = _LIMIT.set(_Limit(seconds))
    try:
        yield
    finally:
        _LIMIT.reset(before)


@contextmanager
def within_limit(inputs: Sequence[Port], step: str = TRACE) -> Iterator[None]:
    """Run a step for a network with these inputs within a block; it may be within another step.

    Args:
        inputs: They are in the advice.
        step: One of `TRACE`, `BRANCHES`, `CONVERSION` and `SEARCH`.

    Raises:
        TraceError: The block took more than the processor time that is allowed.
    """
    limit = _LIMIT.get() or _Limit()
    key = step, str(inputs)
    if key in limit.reached:
        raise _error(limit.seconds, inputs, step)
    try:
        with _interrupt_after(limit.seconds):
            yield
    except OutOfTime:
        limit.reached.add(key)
        raise _error(limit.seconds, inputs, step) from None


def _error(seconds: float, inputs: Sequence[Port], step: str) -> TraceError:
    free = {name for port in inputs for name in port.free_axes().values()}
    advice = "raise `trace_limit`"
    if free:
        advice = (
            f"give `static` {describe_fixed_shape(inputs)} for one size, fix some of the free axes "
            f"({', '.join(sorted(free))}) in the ports of the network, or raise `trace_limit`"
        )
    loops = "" if step in (BRANCHES, SEARCH) else _OF_LOOPS
    return TraceError(f"{step} was stopped after {seconds:g} s of processor time: {advice}{loops}")


@contextmanager
def _interrupt_after(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in this thread once it has used some seconds of processor time."""
    stopwatch, outer = _Stopwatch(), _STOPWATCH.get()
    thread, over = threading.get_ident(), threading.Event()

    def watch() -> None:
        while not over.wait(_WAIT):
            if stopwatch.seconds() > seconds:
                _raise_in(thread, OutOfTime)  # again if some code caught it

    watcher = threading.Thread(target=watch, daemon=True)
    token = _STOPWATCH.set(stopwatch)
    if outer is not None:
        outer.pause()
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        _raise_in(thread, None)  # one that has not arrived yet
        _STOPWATCH.reset(token)
        if outer is not None:
            outer.go_on()


def _clock_of_this_thread() -> Callable[[], float]:
    """Return a clock of this thread's processor time that other threads can read."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS, Windows
        return time.process_time
    number = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(number)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in another thread between two statements; None withdraws it."""
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
