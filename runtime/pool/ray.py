"""A pool on a Ray cluster: its connection, or a clear error within ten seconds, and its workers.

A call goes to a free worker, and to another one if that dies.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.installation import not_installed
from ..options import LOCAL, ClusterOptions
from ..workers.child import Child, ChildError
from ..workers.loop import Send, answer_requests
from .calls import Call, CallResult, Failed

PATIENCE = 10.0
"""Seconds after which a cluster that does not answer is given up."""

_LOCAL_STORE = 200 << 20
_PROBE = f"{__package__}.ray"
"""The process that asks an address whether Ray answers there: it can be ended, Ray waits long."""
_NOT_INSTALLED = 3
"""Exit code of a child process in which a module is missing."""


@contextmanager
def connect(options: ClusterOptions) -> Iterator[Any]:
    """Yield the module ``ray``, connected; the connection ends with the block.

    Raises:
        BackendUnavailableError: Ray is not installed, or the cluster does not answer.
    """
    if options.address != LOCAL:
        _check_answers(options)
    try:
        ray = import_module("ray")
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(
            f"{not_installed('Ray', 'ray')}, on every machine of the cluster"
        ) from error
    where: dict[str, Any] = {"address": options.address}
    if options.address == LOCAL:
        workers = options.workers or max((os.cpu_count() or 1) // options.threads, 1)
        cpus = workers * options.threads  # Ray starts a process for each before one is asked for
        where |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": _LOCAL_STORE}
        failure = "Ray could not be started on this machine"
        advice = "It has to start in 30 s: try again when the machine is less busy, or use `jobs`"
    else:
        failure = f"this machine cannot join the Ray cluster at {options.address}"
        advice = (
            f"Add it to the cluster: ray start --address={options.address}; see docs/serving.md"
        )
    try:
        with isolate_workers() as runtime_env:
            where |= {"runtime_env": runtime_env, "configure_logging": True}
            ray.init(**where, logging_level="ERROR", log_to_driver=False)
    except Exception as error:  # RuntimeError, ConnectionError, ValueError and more of Ray's own
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise BackendUnavailableError(f"{failure}: {reason}. {advice}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def isolate_workers() -> Iterator[dict[str, Any]]:
    """Yield the ``runtime_env`` of workers that import nothing from the current folder.

    Ray puts the current folder of the program that connects first on the path of all its workers,
    on every machine, so that a ``numpy.py`` next to downloaded images would run. It does not if the
    workers have a working directory of their own, such as this empty one, which Ray copies in
    ``ray.init``.
    """
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")  # of `ray job submit`
    with scratch_folder() as empty:
        yield {"working_dir": str(empty)}


def _check_answers(options: ClusterOptions) -> None:
    """Raise `BackendUnavailableError` unless Ray answers at an address."""
    end = time.monotonic() + PATIENCE
    advice = (
        "start one with `ray start --head` and use the address that it prints, or `address` "
        "local; see docs/serving.md"
    )
    try:
        with socket.create_connection(options.place, PATIENCE):
            pass
    except OSError as error:
        raise BackendUnavailableError(
            f"no Ray cluster answers at {options.address} ({error.strerror or error}): {advice}"
        ) from error
    environment = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    remaining = max(end - time.monotonic(), 1.0)
    try:
        with Child(_PROBE, remaining, environment=environment, grace=0.0) as probe:
            probe.ask("connect", {"address": options.address})
    except ChildError as error:
        if error.exit_code == _NOT_INSTALLED:
            return  # the import that follows says what to install
        if error.death is not None:
            raise BackendUnavailableError(
                f"the service at {options.address} did not answer as a Ray cluster in "
                f"{PATIENCE:.0f} s: {advice}"
            ) from error
        if "uthentication" in str(error):
            raise BackendUnavailableError(
                f"the Ray cluster at {options.address} requires a token: on every machine set "
                "RAY_AUTH_MODE=token, and put the token of its head into ~/.ray/auth_token or "
                "RAY_AUTH_TOKEN"
            ) from error
        raise BackendUnavailableError(
            f"the service at {options.address} is not a Ray cluster of a compatible version: "
            f"{advice}"
        ) from error


def _answer(request: Mapping[str, Any], _send: Send) -> dict[str, Any]:
    """Answer ``{"do": "connect", "address": "HOST:PORT"}`` with ``{}`` if Ray is there."""
    import_module("ray._raylet").GcsClient(address=request["address"])
    return {}


MAX_TRIES = 3
"""Deaths of workers during one call after which the call has failed."""

_CONCURRENT_CALLS = 2
"""Calls per worker: files of one are read or written while the model runs for the other."""

_PATIENCE = 300.0
"""Seconds until the first worker has loaded the model; a cluster may have to start machines."""


@dataclass
class _PendingCall:
    """A call under way."""

    place: int
    call: Call
    tries: int = 0


@dataclass
class _StartedWorker:
    """A worker: its name (``where``) once it has loaded the model, and its calls by reference."""

    actor: Any
    opening: Any
    where: str | None = None
    calls: dict[Any, _PendingCall] = field(default_factory=dict)

    def can_take(self, *, alone: bool) -> bool:
        """Return whether the worker can take a call, which may need a worker of its own."""
        if self.where is None or any(call.tries > 1 for call in self.calls.values()):
            return False
        return len(self.calls) < (1 if alone else _CONCURRENT_CALLS)


class Cluster:
    """Workers on a cluster; see `Pool`.

    Attributes:
        size: The requested number of workers.
        lost: The number that died.
    """

    def __init__(
        self, ray: Any, kind: type, setup: Any, size: int, *, threads: int, gpu: bool = False
    ) -> None:
        """Request workers; the cluster starts them as resources become free.

        Args:
            ray: The module, connected.
            kind: Class of the workers. Its method ``open`` loads what a worker needs, and returns
                its name or `Failed`.
            setup: What the class takes.
            size: The number of workers.
            threads: The CPUs that each needs.
            gpu: Each needs a GPU.
        """
        self.size, self.lost = size, 0
        self._ray, self._kind, self._setup = ray, ray.remote(kind), ray.put(setup)
        self._threads, self._gpu = threads, gpu
        self._workers: list[_StartedWorker] = []
        self._refused: list[str] = []
        self._deaths_at_start = 0
        self._last_reply = time.monotonic()
        for _ in range(size):
            self._start_worker()

    def run(
        self, calls: Iterable[Call], *, ordered: bool = False
    ) -> Generator[CallResult, None, None]:
        """Yield the result of each call, as it completes or in order.

        Calls whose worker died go to other workers, one call per worker, so that it shows which
        call is to blame; after `MAX_TRIES` deaths its value is `Failed`. At most three calls per
        worker are in progress or wait for earlier ones.

        Raises:
            NystraError: No worker is left, or none could be started.
        """
        source = (_PendingCall(place, call) for place, call in enumerate(calls))
        again: deque[_PendingCall] = deque()
        finished: dict[int, CallResult] = {}
        begun = yielded = 0
        drained = False
        while True:
            while (worker := self._idle_worker(alone=bool(again))) is not None:
                if again:
                    call = again.popleft()
                elif drained or (ordered and begun - yielded >= 3 * self.size):
                    break
                elif (new := next(source, None)) is None:
                    drained = True
                    break
                else:
                    call, begun = new, begun + 1
                self._submit(worker, call)
            if drained and not again and not any(worker.calls for worker in self._workers):
                return
            finished |= {result.place: result for result in self._wait_for_replies(again)}
            while finished and (not ordered or yielded in finished):
                yield finished.pop(yielded if ordered else min(finished))
                yielded += 1

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._ray.kill(self._workers.pop().actor)

    def _start_worker(self) -> None:
        needs = {"num_cpus": self._threads, "num_gpus": 1 if self._gpu else 0}
        how = {**needs, "max_concurrency": _CONCURRENT_CALLS, "scheduling_strategy": "SPREAD"}
        actor = self._kind.options(**how).remote(self._setup)
        self._workers.append(_StartedWorker(actor, actor.open.remote()))

    def _idle_worker(self, *, alone: bool) -> _StartedWorker | None:
        """Return the worker with the fewest calls, if it can take another one."""
        ready = [worker for worker in self._workers if worker.can_take(alone=alone)]
        return min(ready, key=lambda worker: len(worker.calls), default=None)

    def _submit(self, worker: _StartedWorker, call: _PendingCall) -> None:
        method, arguments = call.call
        call.tries += 1
        worker.calls[getattr(worker.actor, method).remote(*arguments)] = call

    def _wait_for_replies(self, again: deque[_PendingCall]) -> Iterator[CallResult]:
        """Wait for a worker to reply or to die; yield what is done."""
        awaited: dict[Any, _StartedWorker] = {}
        for worker in self._workers:
            awaited |= dict.fromkeys(worker.calls, worker)
            if worker.where is None:
                awaited[worker.opening] = worker
        if not awaited:
            raise NystraError(self._why_no_worker())
        done, _ = self._ray.wait(list(awaited), num_returns=1, timeout=1.0)
        alive = any(worker.where for worker in self._workers)
        if done or alive:
            self._last_reply = time.monotonic()
        elif time.monotonic() - self._last_reply > _PATIENCE:
            raise NystraError(self._why_no_worker())
        for reference in done:
            worker = awaited[reference]
            try:
                value = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                value = Failed(" ".join(str(error.cause or error).split())[:300])
            except self._ray.exceptions.RayError:
                yield from self._replace_dead(worker, again)
                continue
            if reference in worker.calls:
                call = worker.calls.pop(reference)
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
        for call in worker.calls.values():
            if call.tries < MAX_TRIES:
                again.append(call)
                continue
            text = f"{call.tries} workers died during this call, the last one on {worker.where}"
            yield CallResult(call.place, Failed(text), worker.where or "", call.tries)
        if worker.where is None:
            self._deaths_at_start += 1
        if self._deaths_at_start < MAX_TRIES * self.size:
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


if __name__ == "__main__":
    sys.exit(answer_requests(_answer))
