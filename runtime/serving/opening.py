"""Model files, made ready to be served."""

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
    """The models that are served, by the route they are found under.

    Attributes:
        served: All of them, in the order they were given.
        services: Route -> what it offers, of the routes that a model is found under.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.served: list[Served] = []
        self.services: dict[str, Service] = {}
        self._routes: dict[str, list[Served]] = {}

    def add(self, service: Service, model: Served) -> None:
        """Add a model."""
        self.served.append(model)
        self.services[service.route] = service
        self._routes.setdefault(service.route, []).append(model)

    def find(self, route: str, name: str | None) -> Served:
        """Return the model of a name; without one the first of the route.

        Raises:
            UnknownModelError: There is none; says which there are.
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
        """Return the route that a model is found under."""
        return next(route for route, models in self._routes.items() if model in models)

    def close(self) -> None:
        """End what runs the models."""
        for model in self.served:
            model.close()


def open_models(
    specs: Sequence[SessionSpec],
    limits: Limits,
    ran: Mapping[str, OnRun] = MappingProxyType({}),
) -> Models:
    """Load model files.

    Args:
        specs: What to open; the stems of the files are the names they are served under.
        limits: What requests may take.
        ran: By name, what is called after each run of a model.

    Raises:
        NystraError: A file cannot be loaded or run, or is of a task that is not served, or two
            have one name.
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
    """Return what a model's task offers.

    Raises:
        NystraError: The task is unknown, or offers nothing to those who send images.
    """
    task, answerer = find_task(session), find_answerer(session)
    return sequential_service(task, answerer) if task.service is None else task.service()
