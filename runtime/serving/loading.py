"""Loading model files for the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from ...core.errors import NystraError
from ..session import Session
from ..session_spec import SessionSpec
from ..tasks.registry import find_handler
from .batcher import OnRun
from .errors import UnknownModelError
from .limits import Limits
from .served_model import ServedModel


class Models:
    """The served models, by route.

    Attributes:
        served: All of them, in the order they were given.
        routes: The models of each route that has one.
    """

    def __init__(self) -> None:
        self.served: list[ServedModel] = []
        self.routes: dict[str, list[ServedModel]] = {}

    def add(self, model: ServedModel) -> None:
        """Add a model."""
        self.served.append(model)
        self.routes.setdefault(model.handler.route, []).append(model)

    def find(self, route: str, name: str | None) -> ServedModel:
        """Return the model of a name; without a name the first of the route.

        Raises:
            UnknownModelError: There is none; the message lists the names.
        """
        there = self.routes[route]
        if name is None:
            return there[0]
        named = next((model for model in there if model.name == name), None)
        if named is None:
            names = ", ".join(model.name for model in there)
            raise UnknownModelError(f"no model {name!r} is served at /v1/{route}, expected {names}")
        return named

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
            on_run = ran.get(name, lambda images, seconds: None)
            models.add(ServedModel(find_handler(session), session, name, limits, on_run))
    except BaseException:
        with suppress(Exception):
            models.close()
        raise
    return models
