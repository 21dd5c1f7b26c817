"""The images of a folder, shared by child processes that each have the model loaded.

A thread per child sends it one image at a time. If a child dies during an image, the image has
failed, and a new child replaces it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

from ....core.errors import NystraError
from ...machine.memory import available_memory
from ...session import Session
from ...workers.child import Child, ChildError
from .options import RunOptions
from .result import Done, ImageResult, Pair

_WORKER = "nystra.runtime.tasks.restoration.image_worker"

_ANSWER_SECONDS = 7 * 24 * 3600.0
"""Seconds: an image may take long."""

_GRACE_SECONDS = 3.0
"""Seconds for the children to remove unfinished files."""


def in_processes(
    session: Session, pairs: Sequence[Pair], options: RunOptions, jobs: int
) -> Generator[Done, None, None]:
    """Restore images in child processes, and yield index and result of each when it is done.

    Args:
        session: The session of the model that every child loads.
        pairs: Inputs and outputs.
        options: The options; each child gets its share of the memory.
        jobs: Number of children.

    Raises:
        NystraError: A child cannot load the model.
    """
    children = _Children(_load_request(session, options, jobs))
    pool = ThreadPoolExecutor(jobs, "nystra-child")
    try:
        places = {pool.submit(children.restore, pair): place for place, pair in enumerate(pairs)}
        for future in as_completed(places):
            yield places[future], future.result()
    finally:
        children.end(pool)


class _Children:
    """The child processes, one for each thread that calls `restore`."""

    def __init__(self, load: dict[str, Any]) -> None:
        self._load = load
        self._own = threading.local()
        self._running: set[Child] = set()
        self._ended = False
        self._lock = threading.Lock()

    def restore(self, pair: Pair) -> ImageResult:
        """Restore an image in the child of this thread."""
        child: Child = getattr(self._own, "child", None) or self._start()
        try:
            answer = child.ask("restore", {"pair": [str(path) for path in pair]})
        except ChildError as error:
            self._own.child = None
            self._close(child)
            text = f"{pair[0]} cannot be restored: {error}"
            return ImageResult(str(pair[0]), "failed", error=text)
        self._own.child = child
        return ImageResult.from_dict(answer["result"])

    def end(self, pool: ThreadPoolExecutor) -> None:
        """End the children, even busy ones, and then the threads."""
        pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._ended = True
            for child in self._running:
                child.interrupt()
        late = threading.Timer(_GRACE_SECONDS, self._kill)
        late.start()
        pool.shutdown()
        late.cancel()
        for child in tuple(self._running):
            self._close(child)

    def _kill(self) -> None:
        with self._lock:
            for child in self._running:
                child.interrupt(force=True)

    def _start(self) -> Child:
        child = Child(_WORKER, _ANSWER_SECONDS)
        with self._lock:
            self._running.add(child)
            if self._ended:
                child.interrupt()
        try:
            child.ask("load", self._load)
        except ChildError as error:
            self._close(child)
            raise NystraError(
                f"a worker process cannot load the model: {error}. Use fewer `jobs`"
            ) from error
        return child

    def _close(self, child: Child) -> None:
        with self._lock:
            self._running.discard(child)
        child.close()


def _load_request(session: Session, options: RunOptions, jobs: int) -> dict[str, Any]:
    """Return the request that loads the model in a child, with its share of threads and memory."""
    memory = options.max_memory or available_memory()
    shared = replace(options, max_memory=memory // jobs, quiet=True, jobs=None)
    threads = session.spec.threads or max((os.cpu_count() or 1) // jobs, 1)
    return {
        "session": replace(session.spec, threads=threads).as_dict(),
        "options": shared.as_dict(),
    }
