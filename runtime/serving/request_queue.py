"""The request queue, with limits of waiting requests, requests in progress and memory.

Requests are handled in the order of their arrival. One that does not fit next to those in progress
waits until it does, and so do those after it: none is postponed forever.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ..machine.memory import release_free_memory
from .errors import BusyError, ServiceError, StoppingError, TimedOutError, TooLargeError

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
        if not self.future.set_running_or_notify_cancel():
            return
        begin = time.perf_counter()
        self.waited = begin - self._created
        try:
            self.check()
            answer = self._do(self)
        except BaseException as error:  # noqa: BLE001 - raised for who waits for the answer
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


_NEW = 0.2
"""Weight of the latest request in the moving average of times."""

_MUCH = 64 << 20
"""Bytes of finished requests after which an idle service returns freed memory to the system; the C
library would keep it."""


class RequestQueue:
    """Threads that do the work of requests.

    Attributes:
        workers: The most requests in progress.
        queue: The most waiting requests.
        memory: The most bytes of requests in progress.
    """

    def __init__(self, workers: int = 4, queue: int = 64, memory: int = 1 << 30) -> None:
        self.workers, self.queue, self.memory = workers, queue, memory
        self._waiting: deque[Work[Any]] = deque()
        self._under_way: set[Work[Any]] = set()
        self._bytes_used = self._freed = 0
        self._mean = 0.0
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"nystra-request-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        with self._changed:
            return sum(not work.cancelled for work in self._waiting)

    @property
    def under_way(self) -> int:
        """The number of requests in progress."""
        return len(self._under_way)

    @property
    def bytes_used(self) -> int:
        """The bytes of the requests in progress."""
        return self._bytes_used

    @property
    def closed(self) -> bool:
        """Whether it refuses new requests."""
        return self._closed

    @property
    def alive(self) -> bool:
        """Whether all threads can do work."""
        return all(thread.is_alive() for thread in self._threads)

    def submit(self, work: Work[Any]) -> None:
        """Put a request at the end of the queue.

        Raises:
            TooLargeError: It would need more memory than the limit of all requests.
            BusyError: The queue is full; with the time after which to retry.
            StoppingError: The service is stopping.
        """
        if work.cost > self.memory:
            raise TooLargeError(
                f"this request needs {work.cost >> 20} MiB for the image and its result, and "
                f"the limit of the service is {self.memory >> 20} MiB: send a smaller image, "
                "or raise `max_memory`; see docs/serving.md"
            )
        with self._changed:
            if self._closed:
                raise StoppingError("the service is stopping: send the request to another instance")
            self._drop_cancelled()
            idle = self.workers - len(self._under_way)
            if len(self._waiting) >= self.queue + max(idle, 0):
                raise BusyError(
                    f"{len(self._waiting)} requests are waiting already: try again later",
                    retry_after=self._patience(),
                )
            self._waiting.append(work)
            self._changed.notify_all()

    def close(self, patience: float = 30.0) -> bool:
        """Refuse new requests, finish the others, and end the threads.

        Args:
            patience: Seconds after which the remaining requests are cancelled.

        Returns:
            Whether all of them finished.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        done = not any(thread.is_alive() for thread in self._threads)
        with self._changed:
            for work in (*self._waiting, *self._under_way):
                work.cancel(StoppingError("the service stopped before this request was done"))
            self._changed.notify_all()  # threads that wait for memory answer what waits
        return done

    def _work(self) -> None:
        while (work := self._next()) is not None:
            work.run()
            with self._changed:
                self._under_way.discard(work)
                self._bytes_used -= work.cost
                self._mean += (_NEW if self._mean else 1.0) * (work.seconds - self._mean)
                self._freed += work.cost
                release = self._freed >= _MUCH and not (self._under_way or self._waiting)
                if release:
                    self._freed = 0
                self._changed.notify_all()
            del work  # and with it the image
            if release:
                release_free_memory()

    def _next(self) -> Work[Any] | None:
        with self._changed:
            while True:
                self._drop_cancelled()
                if self._waiting:
                    if self._bytes_used + self._waiting[0].cost <= self.memory:
                        work = self._waiting.popleft()
                        self._under_way.add(work)
                        self._bytes_used += work.cost
                        return work
                elif self._closed:
                    return None
                self._changed.wait()

    def _drop_cancelled(self) -> None:
        for work in [work for work in self._waiting if work.cancelled]:
            self._waiting.remove(work)
            work.run()  # it ends at once, with the reason

    def _patience(self) -> int:
        """Return the seconds after which a place in the queue is likely to be free."""
        return max(1, math.ceil(self._mean * (len(self._waiting) / self.workers)))
