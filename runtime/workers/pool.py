"""Child processes of one module that share requests.

A thread here asks one child at a time for the next answer; a child that dies over a request is
said to have failed on it, and another takes its place.
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
    """The children, and the threads that ask them."""

    def __init__(
        self, module: str, load: Request, what: str, requests: Sequence[Request], size: int
    ) -> None:
        """Start that number of threads, each of which starts a child process.

        Args:
            module: Of the children, as `Child` takes it.
            load: What every child is asked first, as ``load``.
            what: Of the requests.
            requests: To be answered, each by one child.
            size: How many children.
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
        """Yield index and answer, or error, of each request as it is done.

        Raises:
            ChildError: A child could not load.
            Exception: Whatever else kept a request from a child.
        """
        for _ in self._requests:
            index, answer = self._answers.get()
            if index < 0 and isinstance(answer, Exception):
                raise answer
            yield index, answer

    def end(self) -> None:
        """End the children, whatever they do, and the threads."""
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
        """Have requests answered until there are none left."""
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
        except Exception as error:  # whatever it is, who waits for answers must hear of it
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
