"""Model files behind Ray Serve: the service of ``nystra serve`` in a varying number of replicas."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.errors import BackendUnavailableError, NystraError
from ..core.installation import install_command
from ..runtime.pool.ray import isolate_workers
from ..runtime.serving.application import open_application
from ..runtime.serving.limits import Limits
from ..runtime.session_spec import SessionSpec


def ray_serve(
    models: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    replicas: tuple[int, int] = (1, 8),
    busy: float = 4.0,
    threads: int = 1,
    gpus: float = 0.0,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
    name: str = "nystra",
    **options: Any,
) -> Any:
    """Return an application for ``ray.serve.run``.

    A replica is a process with the HTTP interface of ``nystra serve``; tiles of concurrent requests
    share runs of the model. The model files have the same paths on all machines.

    If the program is not connected to Ray, this calls ``ray.init`` with an empty ``working_dir``,
    so that no worker imports a module from the current folder.

    Args:
        models: One model file or several.
        replicas: Minimum and maximum number of replicas.
        busy: Concurrent requests per replica above which another replica is started.
        threads: Threads, and CPUs that Ray reserves, per replica.
        gpus: GPUs per replica.
        limits: Limits of requests in a replica.
        token: The bearer token of requests, or None.
        hosts: Accepted host names if no token is set; IP addresses are always accepted.
        name: Name of the deployment.
        **options: ``backend``, ``library``, ..., as `SessionSpec` takes them.

    Raises:
        NystraError: A file is missing, the numbers contradict each other, or Ray was started so
            that its workers import from the current folder.
        BackendUnavailableError: Ray Serve or a requirement of the service is not installed.
    """
    paths = [models] if isinstance(models, str | os.PathLike) else list(models)
    files = [Path(path).absolute() for path in paths]
    missing = [str(file) for file in files if not file.is_file()]
    if missing or not files:
        raise NystraError(f"no model file at {', '.join(missing) or 'all'}: give one")
    minimum, maximum = replicas
    if not 0 <= minimum <= maximum or maximum < 1 or busy <= 0 or threads < 1:
        raise NystraError(
            f"got {minimum} to {maximum} replicas of {threads} threads, {busy:g} requests per "
            "replica; expected 0 or more replicas, a maximum not below the minimum, and 1 or "
            "more threads and requests"
        )
    serve = _ray_serve()
    bounds = limits or Limits()
    specs = [SessionSpec(file, threads=threads, **options) for file in files]

    def build() -> Any:
        return open_application(specs, bounds, token=token, hosts=hosts).app

    deployment = serve.deployment(
        serve.ingress(build)(),
        name=name,
        max_ongoing_requests=bounds.workers + bounds.queue,
        autoscaling_config={
            "min_replicas": minimum,
            "max_replicas": maximum,
            "target_ongoing_requests": busy,
        },
        ray_actor_options={"num_cpus": threads, "num_gpus": gpus},
        graceful_shutdown_timeout_s=bounds.patience,
    )
    _connect(import_module("ray"))
    return deployment.bind()


def _connect(ray: Any) -> None:
    """Connect to Ray so that replicas import nothing from the current folder.

    Replicas, proxies and the controller of Ray Serve search the folders that the program passed to
    Ray when it connected; no later call removes one.

    Raises:
        NystraError: The program has connected, and the current folder is among them.
    """
    if not ray.is_initialized():
        with isolate_workers() as runtime_env:
            ray.init(namespace="serve", runtime_env=runtime_env)  # as serve.run does
    elif "working_dir" not in ray.get_runtime_context().runtime_env:
        raise NystraError(
            "Ray was started so that its workers import modules from the current folder: call "
            "ray_serve before ray.init, or give that runtime_env={'working_dir': "
            "AN_EMPTY_FOLDER}; see docs/serving.md"
        )


def _ray_serve() -> Any:
    try:
        for name in ("fastapi", "prometheus_client", "python_multipart"):
            import_module(name)
        return import_module("ray.serve")
    except ImportError as error:
        raise BackendUnavailableError(
            f"Ray Serve is not installed ({error}): {install_command('ray-serve')}, on every "
            "machine of the cluster"
        ) from error
