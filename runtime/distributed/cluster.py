"""A connection to Ray, or a clear error within ten seconds."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ...core.errors import BackendUnavailableError
from ...core.files.scratch import scratch_folder
from ...core.installation import not_installed
from ..options import LOCAL, ClusterOptions
from ..workers.child import Child, ChildError
from ..workers.loop import Send, answer_requests

PATIENCE = 10.0
"""Seconds after which a cluster that does not answer is given up."""

_LOCAL_STORE = 200 << 20
_PROBE = f"{__package__}.cluster"
"""The process that asks an address whether Ray answers there: it can be ended, Ray waits long."""
_NOT_INSTALLED = 3
"""Exit code of a child process in which a module is missing."""


@contextmanager
def connected(options: ClusterOptions) -> Iterator[Any]:
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
        with isolated_workers() as runtime_env:
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
def isolated_workers() -> Iterator[dict[str, Any]]:
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
    left = max(end - time.monotonic(), 1.0)
    try:
        with Child(_PROBE, left, environment=environment, grace=0.0) as probe:
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


if __name__ == "__main__":
    sys.exit(answer_requests(_answer))
