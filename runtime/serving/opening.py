"""Opening model files for the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from ...core.errors import NystraError
from ..session import Session
from ..session_spec import SessionSpec
from ..tasks.registry import find_answerer, find_task
from .batcher import OnRun
from .errors import UnknownModelError
from .limits import Limits
from .sequential_model import sequential_service
from .service import Served, Service


class Models:
    """The served models, by route.

    Attributes:
        served: All of them, in the order they were given.
        services: Route -> its `Service`, for routes that have a model.
    """

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.services: dict[str, Service] = {}
        self._routes: dict[str, list[Served]] = {}

    def add(self, service: Service, model: Served) -> None:
        """Add a model."""
        self.served.append(model)
        self.services[service.route] = service
        self._routes.setdefault(service.route, []).append(model)

    def find(self, route: str, name: str | None) -> Served:
        """Return the model of a name; without a name the first of the route.

        Raises:
            UnknownModelError: There is none; the message lists the names.
        """
        there = self._routes[route]
        if name is None:
            return there[0]
        named = next((model for model in there if model.name == name), None)
        if named is None:
            names = ", ".join(model.name for model in there)
            raise UnknownModelError(f"no model {name!r} is served at /v1/{route}, expected {names}")
        return named

    def route_of(self, model: Served) -> str:
        """Return the route of a model."""
        return next(route for route, models in self._routes.items() if model in models)

    def close(self) -> None:
        """Stop the threads of the models."""
        for model in self.served:
            model.close()


def open_models(
    specs: Sequence[SessionSpec],
    limits: Limits,
    ran: Mapping[str, OnRun] = MappingProxyType({}),
) -> Models:
    """Load model files.

    Args:
        specs: The models to open; the stems of the files are their names.
        limits: Limits of requests.
        ran: By name, a function that is called after each run of the model.

    Raises:
        NystraError: A file cannot be loaded or run, or has a task that cannot be served, or two
            have the same name.
        BackendUnavailableError: A backend, or a library that a model needs, is missing.
    """
    names = [spec.model.stem for spec in specs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise NystraError(
            f"two models have the name {min(twice)}, which comes from the file name: rename one "
            "file"
        )
    models = Models()
    try:
        for spec in specs:
            session, name = Session.open(spec), spec.model.stem
            service = service_of(session)
            on_run = ran.get(name, lambda images, seconds: None)
            models.add(service, service.open(session, name, limits, on_run))
    except BaseException:
        with suppress(Exception):
            models.close()
        raise
    return models


def service_of(session: Session) -> Service:
    """Return the `Service` of a model's task.

    Raises:
        NystraError: The task is unknown, or cannot be served.
    """
    task, answerer = find_task(session), find_answerer(session)
    return sequential_service(task, answerer) if task.service is None else task.service()
