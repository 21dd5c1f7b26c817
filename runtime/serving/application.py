"""Model files behind HTTP: the application of `nystra serve` and Ray Serve, and the former."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.ending import stop_engines
from ..machine.memory import available_memory
from ..session_spec import SessionSpec
from .limits import Address, Limits
from .request_queue import RequestQueue
from .served_model import Models, open_models

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(frozen=True)
class Application:
    """An application and its parts.

    Attributes:
        app: The ASGI application.
        models: The served models.
        queue: The request queue.
    """

    app: FastAPI
    models: Models
    queue: RequestQueue

    def close(self, patience: float) -> None:
        """Finish the waiting requests within this number of seconds, and end all threads."""
        if not self.queue.close(patience):
            stop_engines()
        self.models.close()


def open_application(
    specs: Sequence[SessionSpec],
    limits: Limits,
    *,
    token: str | None = None,
    hosts: Collection[str] = (),
    log: bool = False,
) -> Application:
    """Load model files and return the application.

    Args:
        specs: Specs of the models.
        limits: Limits of requests.
        token: The bearer token that requests need, or None.
        hosts: Accepted host names if there is no token, in addition to IP addresses.
        log: Print a line on stderr for each request.

    Raises:
        NystraError: A model cannot be served.
        BackendUnavailableError: A backend, or a library that a model needs, is missing.
    """
    from .http.app import create_app
    from .http.metrics import Metrics

    metrics = Metrics([spec.model.stem for spec in specs])
    models = open_models(specs, limits, metrics.ran)
    memory = available_memory() // 2 if limits.max_memory is None else limits.max_memory
    queue = RequestQueue(limits.workers, limits.queue, memory)
    metrics.watch(queue)
    app = create_app(models, queue, limits, metrics, token=token, hosts=hosts, log=log)
    return Application(app, models, queue)


def serve(
    specs: Sequence[SessionSpec],
    limits: Limits,
    address: Address,
    token: str | None = None,
    ready: Callable[[str, Models], None] = lambda url, models: None,
) -> None:
    """Serve models until SIGINT or SIGTERM.

    Args:
        specs: The models.
        limits: Limits of requests.
        address: Where it listens.
        token: The bearer token that requests need, or None.
        ready: Called with the URL and the models when requests are accepted.

    Raises:
        NystraError: The port is in use, or a model cannot be served.
        BackendUnavailableError: A backend, or a library that a model needs, is missing.
    """
    from .http.server import address_of, listen, run_app

    with listen(address.host, address.port) as listener:
        names = (address.host, *address.hosts)
        application = open_application(
            specs, limits, token=token, hosts=names, log=address.access_log
        )
        patience = limits.patience
        try:
            ready(address_of(listener), application.models)
            patience -= run_app(application.app, listener, limits)
        finally:
            application.close(max(patience, 0.0))
