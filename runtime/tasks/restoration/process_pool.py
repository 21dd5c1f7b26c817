"""The pictures of a folder, shared by child processes that each have the model loaded.

A thread here asks one child at a time (`picture_worker`) for the next picture; a child that dies
over one is said to have failed on it, and another takes its place.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ....core.errors import NystraError
from ...session import Session
from ...tiling.tile_memory import available_memory
from ...workers.child import Child, ChildError
from .options import RunOptions
from .result import PictureResult

_WORKER = "nystra.runtime.tasks.restoration.picture_worker"
_ANSWER_SECONDS = 7 * 24 * 3600.0
"""A picture may take long."""

_GRACE_SECONDS = 3.0
"""For a child to remove what it has half-written."""

Pair = tuple[Path, Path]
Done = tuple[int, PictureResult]


def in_processes(
    session: Session, pairs: Sequence[Pair], options: RunOptions, jobs: int
) -> Generator[Done, None, None]:
    """Restore pictures in child processes, and yield place and result of each as it is done.

    Args:
        session: Of the model that every child loads.
        pairs: Inputs and outputs.
        options: What is asked for; each child gets its share of the memory.
        jobs: How many children.

    Raises:
        NystraError: A child cannot load the model.
    """
    pool = _ProcessPool(session, pairs, options, jobs)
    try:
        yield from pool.results()
    finally:
        pool.end()


class _ProcessPool:
    """The children, and the threads that ask them."""

    def __init__(
        self, session: Session, pairs: Sequence[Pair], options: RunOptions, jobs: int
    ) -> None:
        self._load = _request(session, options, jobs)
        self._pairs = pairs
        self._waiting = deque(_by_output(pairs))
        self._done: SimpleQueue[Done | ChildError] = SimpleQueue()
        self._children: set[Child] = set()
        self._ended = False
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(jobs)]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[Done]:
        """Yield place and result of each picture."""
        for _ in self._pairs:
            done = self._done.get()
            if isinstance(done, ChildError):
                raise NystraError(
                    f"a process of its own cannot load the model: {done}. Take fewer `jobs`"
                )
            yield done

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

    def _ask(self) -> None:
        """Have pictures restored until there are none left."""
        child: Child | None = None
        try:
            while (places := self._next()) is not None:
                if child is None:
                    child = self._start()
                if not self._restore(child, places):
                    self._close(child)
                    child = None
        except ChildError as error:
            self._done.put(error)
        finally:
            if child is not None:
                self._close(child)

    def _next(self) -> list[int] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _restore(self, child: Child, places: list[int]) -> bool:
        """Have pictures of one output restored; return whether the child lives."""
        pairs = [[str(path) for path in self._pairs[place]] for place in places]
        try:
            results = child.ask("restore", {"pairs": pairs})["results"]
        except ChildError as error:
            for place in places:
                here = self._pairs[place][0]
                text = f"{here} cannot be restored: {error}"
                self._done.put((place, PictureResult(str(here), "failed", error=text)))
            return False
        for place, result in zip(places, results, strict=True):
            self._done.put((place, PictureResult.from_dict(result)))
        return True

    def _start(self) -> Child:
        child = Child(_WORKER, _ANSWER_SECONDS)
        with self._lock:
            self._children.add(child)
            if self._ended:
                child.interrupt()
        try:
            child.ask("load", self._load)
        except ChildError:
            self._close(child)
            raise
        return child

    def _close(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.close()


def _request(session: Session, options: RunOptions, jobs: int) -> dict[str, Any]:
    """Return what a child has to know: the model, and its share of threads and memory."""
    memory = options.max_memory or available_memory()
    shared = replace(options, max_memory=memory // jobs, quiet=True, jobs=None)
    threads = session.spec.threads or max((os.cpu_count() or 1) // jobs, 1)
    return {
        "session": replace(session.spec, threads=threads).as_dict(),
        "options": asdict(shared),
    }


def _by_output(pairs: Sequence[Pair]) -> list[list[int]]:
    """Return the places of the pairs, those of one output together, for one child after another."""
    places: dict[Path, list[int]] = {}
    for place, (_, there) in enumerate(pairs):
        places.setdefault(there, []).append(place)
    return list(places.values())
