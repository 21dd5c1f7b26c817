"""Child processes of one module that share requests.

Each thread sends one request at a time to its child; if a child dies during a request, that request
has failed, and a new child replaces it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from .child import Child, ChildError

_ANSWER_SECONDS = 7 * 24 * 3600.0
"""Seconds: a request may take long."""

_GRACE_SECONDS = 3.0
"""Seconds for a child process to remove unfinished files."""

Request = Mapping[str, Any]
Answered = tuple[int, "dict[str, Any] | ChildError"]


class ChildPool:
    """The children, and the threads that send them requests."""

    def __init__(
        self, module: str, load: Request, what: str, requests: Sequence[Request], size: int
    ) -> None:
        """Start that number of threads, each of which starts a child process.

        Args:
            module: The module of the children, as in `Child`.
            load: The first request to every child, a ``load``.
            what: The ``do`` of the requests.
            requests: The requests, each answered by one child.
            size: Number of children.
        """
        self._module, self._load, self._what, self._requests = module, load, what, requests
        self._waiting = deque(range(len(requests)))
        self._answers: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._children: set[Child] = set()
        self._ended = False
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def answers(self) -> Iterator[Answered]:
        """Yield index and answer, or error, of each request when it is done.

        Raises:
            ChildError: A child could not load.
            Exception: Any other error in sending a request to a child.
        """
        for _ in self._requests:
            index, answer = self._answers.get()
            if index < 0 and isinstance(answer, Exception):
                raise answer
            yield index, answer

    def end(self) -> None:
        """End the children, even busy ones, and the threads."""
        with self._lock:
            self._ended = True
            self._waiting.clear()
            for child in self._children:
                child.interrupt()
        deadline = time.monotonic() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        with self._lock:
            for child in self._children:
                child.interrupt(force=True)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Process requests until none are left."""
        child: Child | None = None
        try:
            while (index := self._next()) is not None:
                if child is None:
                    child = self._start()
                try:
                    self._answers.put((index, child.ask(self._what, self._requests[index])))
                except ChildError as error:
                    self._answers.put((index, error))
                    self._close(child)
                    child = None
        except Exception as error:  # any error has to reach the caller that waits for answers
            self._answers.put((-1, error))
        finally:
            if child is not None:
                self._close(child)

    def _next(self) -> int | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _start(self) -> Child:
        child = Child(self._module, _ANSWER_SECONDS)
        with self._lock:
            self._children.add(child)
            if self._ended:
                child.interrupt()
        try:
            child.ask("load", self._load)
        except Exception:
            self._close(child)
            raise
        return child

    def _close(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.close()
