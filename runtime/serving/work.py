"""One request in the queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from .errors import ServiceError, TimedOutError

T = TypeVar("T")


class Work(Generic[T]):
    """The work for one request, which can be cancelled.

    Attributes:
        cost: Bytes that it needs while in progress.
        future: Gets the answer, or a `ServiceError` or another error.
        seconds: From its beginning to its end, once it has ended.
        waited: Seconds in the queue, once it has begun.
    """

    def __init__(self, do: Callable[[Work[T]], T], cost: int = 0) -> None:
        """Set the function, which should call `check` wherever it may stop."""
        self.cost = cost
        self.future: Future[T] = Future()
        self.waited = self.seconds = 0.0
        self._do = do
        self._refusal: ServiceError | None = None
        self._created = time.perf_counter()

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._refusal is not None

    def cancel(self, reason: ServiceError) -> None:
        """Stop it at its next call of `check`; no effect if it has ended."""
        self._refusal = self._refusal or reason

    def check(self) -> None:
        """Raise the `ServiceError` it was cancelled with, if it was."""
        if self._refusal is not None:
            raise self._refusal

    def run(self) -> None:
        """Run it in this thread; errors go into the future."""
        begin = time.perf_counter()
        self.waited = begin - self._created
        try:
            self.check()
            answer = self._do(self)
        except BaseException as error:
            self.seconds = time.perf_counter() - begin
            self.future.set_exception(error)
        else:
            self.seconds = time.perf_counter() - begin
            self.future.set_result(answer)


def out_of_time(seconds: float) -> TimedOutError:
    """Return the error of a request that timed out."""
    return TimedOutError(
        f"the request took more than {seconds:g} s: send a smaller image, or raise `timeout`"
    )
