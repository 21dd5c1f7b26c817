"""Workers of a cluster: a call goes to a free worker, and to another one if it dies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...core.errors import NystraError
from .worker import Failed, Setup, Worker

Call: TypeAlias = tuple[str, tuple[Any, ...]]
"""A method of `Worker` and its arguments."""

MOST_TRIES = 3
"""Deaths of workers during one call after which the call has failed."""

_CONCURRENT_CALLS = 2
"""Calls per worker: files of one are read or written while the model runs for the other."""

_PATIENCE = 300.0
"""Seconds until the first worker has loaded the model; a cluster may have to start machines."""


@dataclass
class _PendingCall:
    """A call under way."""

    place: int
    method: Call
    tries: int = 0
    reference: Any = None


@dataclass
class _StartedWorker:
    """A worker: its name (``where``) once it has loaded the model, and its calls."""

    actor: Any
    opening: Any
    where: str | None = None
    calls: list[_PendingCall] = field(default_factory=list)

    def can_take(self, *, alone: bool) -> bool:
        """Return whether the worker can take a call, which may need a worker of its own."""
        if self.where is None or any(call.tries > 1 for call in self.calls):
            return False
        return len(self.calls) < (1 if alone else _CONCURRENT_CALLS)


@dataclass(frozen=True)
class CallResult:
    """The result of a call.

    Attributes:
        place: Index of the call, from 0.
        value: What the worker returned.
        where: Name of the worker.
        tries: Number of workers that tried it.
    """

    place: int
    value: Any
    where: str
    tries: int


class WorkerPool:
    """Workers on a cluster.

    Attributes:
        size: The requested number of workers.
        lost: The number that died.
    """

    def __init__(self, ray: Any, setup: Setup, size: int, *, gpu: bool = False) -> None:
        """Request workers; the cluster starts them as resources become free.

        Args:
            ray: The module, connected.
            setup: The settings of each.
            size: The number of workers.
            gpu: Each needs a GPU.
        """
        self.size, self.lost = size, 0
        self._ray, self._gpu = ray, gpu
        self._setup, self._threads = ray.put(setup), setup.session.threads
        self._workers: list[_StartedWorker] = []
        self._refused: list[str] = []
        self._deaths_at_start = 0
        self._last_reply = time.monotonic()
        for _ in range(size):
            self._start_worker()

    def run(self, calls: Iterable[Call], *, ordered: bool = False) -> Iterator[CallResult]:
        """Yield the result of each call, as it completes or in order.

        Calls whose worker died go to other workers, one call per worker, so that it shows which
        call is to blame; after `MOST_TRIES` deaths its value is `Failed`. At most three calls per
        worker are in progress or wait for earlier ones.

        Raises:
            NystraError: No worker is left, or none could be started.
        """
        source = enumerate(calls)
        again: deque[_PendingCall] = deque()
        held: dict[int, CallResult] = {}
        first = 0  # of those that have not been yielded, where order counts
        begun = 0
        drained = False
        while True:
            while (worker := self._idle_worker(alone=bool(again))) is not None:
                if again:
                    self._submit(worker, again.popleft())
                    continue
                if drained or (ordered and begun - first >= 3 * self.size):
                    break
                place, call = next(source, (-1, ("", ())))
                if place < 0:
                    drained = True
                    break
                begun += 1
                self._submit(worker, _PendingCall(place, call))
            if drained and not again and not any(worker.calls for worker in self._workers):
                yield from (held.pop(place) for place in sorted(held))
                return
            for result in self._completed(again):
                held[result.place] = result
            if not ordered:
                yield from (held.pop(place) for place in sorted(held))
            while ordered and first in held:
                yield held.pop(first)
                first += 1

    def shutdown(self) -> None:
        """End all workers."""
        while self._workers:
            self._ray.kill(self._workers.pop().actor)

    def _start_worker(self) -> None:
        kind = self._ray.remote(Worker)
        needs = {"num_cpus": self._threads, "num_gpus": 1 if self._gpu else 0}
        how = {**needs, "max_concurrency": _CONCURRENT_CALLS, "scheduling_strategy": "SPREAD"}
        actor = kind.options(**how).remote(self._setup)
        self._workers.append(_StartedWorker(actor, actor.open.remote()))

    def _idle_worker(self, *, alone: bool) -> _StartedWorker | None:
        """Return the worker with the fewest calls, if it can take another one."""
        ready = [worker for worker in self._workers if worker.can_take(alone=alone)]
        return min(ready, key=lambda worker: len(worker.calls), default=None)

    def _submit(self, worker: _StartedWorker, call: _PendingCall) -> None:
        name, arguments = call.method
        call.tries += 1
        call.reference = getattr(worker.actor, name).remote(*arguments)
        worker.calls.append(call)

    def _completed(self, again: deque[_PendingCall]) -> Iterator[CallResult]:
        """Wait for a worker to reply or to die; yield what is done."""
        awaited: dict[Any, tuple[_StartedWorker, _PendingCall | None]] = {}
        for worker in self._workers:
            awaited |= {call.reference: (worker, call) for call in worker.calls}
            if worker.where is None:
                awaited[worker.opening] = worker, None
        if not awaited:
            raise NystraError(self._why_no_worker())
        done, _ = self._ray.wait(list(awaited), num_returns=1, timeout=1.0)
        alive = any(worker.where for worker in self._workers)
        if done or alive:
            self._last_reply = time.monotonic()
        elif time.monotonic() - self._last_reply > _PATIENCE:
            raise NystraError(self._why_no_worker())
        for reference in done:
            worker, call = awaited[reference]
            try:
                value = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                value = Failed(" ".join(str(error.cause or error).split())[:300])
            except self._ray.exceptions.RayError:
                yield from self._replace_dead(worker, again)
                continue
            if call is not None:
                worker.calls.remove(call)
                yield CallResult(call.place, value, worker.where or "", call.tries)
            elif isinstance(value, Failed):
                self._refused.append(value.error)
                self._workers.remove(worker)
                self._ray.kill(worker.actor)
            else:
                worker.where = value

    def _replace_dead(
        self, worker: _StartedWorker, again: deque[_PendingCall]
    ) -> Iterator[CallResult]:
        """Take a dead worker's calls back and start another worker."""
        self.lost += 1
        self._workers.remove(worker)
        self._ray.kill(worker.actor)
        for call in worker.calls:
            if call.tries < MOST_TRIES:
                again.append(call)
                continue
            text = f"{call.tries} workers died during this call, the last one on {worker.where}"
            yield CallResult(call.place, Failed(text), worker.where or "", call.tries)
        if worker.where is None:
            self._deaths_at_start += 1
        if self._deaths_at_start < MOST_TRIES * self.size:
            self._start_worker()

    def _why_no_worker(self) -> str:
        """Return a message that says why there is no worker."""
        if self._refused:
            return f"no worker could load the model. {self._refused[-1]}"
        if self._deaths_at_start:
            return (
                "the workers die while loading the model: their machines may lack memory. Use "
                "fewer `workers`"
            )
        needs = f"{self._threads} CPUs{' and a GPU' if self._gpu else ''}"
        return (
            f"no worker could start in {_PATIENCE:.0f} s: each needs {needs}, and the cluster "
            f"has {self._ray.available_resources()}. Wait until resources are free, or use fewer "
            "`threads`"
        )
