"""A connection to Ray, or a clear word that there is none, within ten seconds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ...core.errors import BackendUnavailableError
from .options import LOCAL, ClusterOptions

PATIENCE = 10.0
"""Seconds in which a cluster has to answer."""

_LOCAL_STORE = 200 << 20
_ASK = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


@contextmanager
def connected(options: ClusterOptions) -> Iterator[Any]:
    """Yield the module ``ray``, connected; the connection ends with the block.

    Raises:
        BackendUnavailableError: Ray is not installed, or the cluster does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if options.address != LOCAL:
        _check_answers(options)
    try:
        ray = import_module("ray")
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(
            "Ray is not installed: pip install 'nystra[ray]', on every machine of the cluster"
        ) from error
    where: dict[str, Any] = {"address": options.address}
    if options.address == LOCAL:
        workers = options.workers or max((os.cpu_count() or 1) // options.threads, 1)
        cpus = workers * options.threads  # Ray starts a process for each before one is asked for
        where |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": _LOCAL_STORE}
        failure = "no Ray starts on this machine"
        advice = "It gives itself 30 s: try again when the machine has less to do, or `jobs`"
    else:
        failure = f"this machine cannot join the Ray cluster at {options.address}"
        advice = f"It has to be part of it: ray start --address={options.address}"
    try:
        ray.init(**where, logging_level="ERROR", log_to_driver=False, configure_logging=True)
    except Exception as error:  # RuntimeError, ConnectionError, ValueError and more of Ray's own
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise BackendUnavailableError(f"{failure}: {reason}. {advice}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(options: ClusterOptions) -> None:
    """Raise `BackendUnavailableError` unless Ray answers at an address; Ray itself would wait long.

    The question is asked by a process of its own, which can be ended.
    """
    end = time.monotonic() + PATIENCE
    advice = "start one with `ray start --head` and give the address it prints, or `address` local"
    try:
        with socket.create_connection(options.place, PATIENCE):
            pass
    except OSError as error:
        raise BackendUnavailableError(
            f"no Ray cluster answers at {options.address} ({error.strerror or error}): {advice}"
        ) from error
    ask = [sys.executable, "-c", _ASK, options.address]
    try:
        subprocess.run(
            ask, capture_output=True, check=True, timeout=max(end - time.monotonic(), 1.0)
        )
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailableError(
            f"what listens at {options.address} did not answer as a Ray cluster in "
            f"{PATIENCE:.0f} s: {advice}"
        ) from error
    except subprocess.CalledProcessError as error:
        if b"No module named" in error.stderr:
            return  # the import that follows says what to install
        if b"uthentication" in error.stderr:
            raise BackendUnavailableError(
                f"the Ray cluster at {options.address} wants a token: set RAY_AUTH_MODE=token, and "
                "give the one of its head in ~/.ray/auth_token or RAY_AUTH_TOKEN, on every machine"
            ) from error
        raise BackendUnavailableError(
            f"what listens at {options.address} is no Ray cluster that this Ray understands: "
            f"{advice}"
        ) from error
