"""Pools of this machine: threads that share one worker, and child processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any

from ...core.errors import NystraError
from ..workers.child import Child, ChildError
from .calls import Call, CallResult, Failed

_ANSWER_SECONDS = 7 * 24 * 3600.0
"""Seconds: an image may take long."""

_GRACE_SECONDS = 3.0
"""Seconds for the children to remove unfinished files."""


class Threads:
    """Threads of this process; see `Pool`."""

    def __init__(
        self, call: Callable[[Call], Any], threads: int, stop: Callable[[], None] = lambda: None
    ) -> None:
        """Set what the threads do.

        Args:
            call: Does one call and returns its value.
            threads: The most calls at the same time.
            stop: Makes the calls under way end early; they end by themselves without it.
        """
        self._call, self._stop = call, stop
        self._threads = ThreadPoolExecutor(threads, "nystra-pool")

    def run(
        self, calls: Iterable[Call], *, ordered: bool = False
    ) -> Generator[CallResult, None, None]:
        """Yield the results; all calls are taken at once."""
        places = {self._threads.submit(self._call, call): place for place, call in enumerate(calls)}
        for future in places if ordered else as_completed(places):
            yield CallResult(places[future], future.result())

    def close(self) -> None:
        """Wait for the calls under way, which are told to stop."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stop()
        self._threads.shutdown()


class Processes(Threads):
    """Child processes, one for each thread; the call of one that dies has failed."""

    def __init__(self, module: str, setup: Mapping[str, Any], size: int) -> None:
        """Start no child yet.

        Args:
            module: Run by each child; answers ``{"do": "open", **setup}`` by loading a model, and
                ``{"do": method, "arguments": [...]}`` by ``{"value": ...}``.
            setup: See there.
            size: Number of children.
        """
        super().__init__(self._ask, size, self._interrupt)
        self._new, self._setup = partial(Child, module, _ANSWER_SECONDS), setup
        self._own = threading.local()
        self._children: set[Child] = set()
        self._ended = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the children, even busy ones, and then the threads."""
        late = threading.Timer(_GRACE_SECONDS, self._interrupt, kwargs={"force": True})
        late.start()
        super().close()
        late.cancel()
        for child in tuple(self._children):
            self._drop(child)

    def _ask(self, call: Call) -> Any:
        """Do a call in the child of this thread.

        Raises:
            NystraError: The child cannot load the model.
        """
        child: Child = getattr(self._own, "child", None) or self._start()
        self._own.child = child
        method, arguments = call
        try:
            return child.ask(method, {"arguments": arguments})["value"]
        except ChildError as error:
            self._own.child = None
            self._drop(child)
            return Failed(str(error))

    def _start(self) -> Child:
        child = self._new()
        with self._lock:
            self._children.add(child)
            if self._ended:
                child.interrupt()
        try:
            child.ask("open", self._setup)
        except ChildError as error:
            self._drop(child)
            raise NystraError(
                f"a worker process cannot load the model: {error}. Use fewer `jobs`"
            ) from error
        return child

    def _interrupt(self, *, force: bool = False) -> None:
        with self._lock:
            self._ended = True
            for child in self._children:
                child.interrupt(force=force)

    def _drop(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.close()
