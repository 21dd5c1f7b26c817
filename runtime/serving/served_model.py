"""A model that a service runs: its handler, and the thread in which requests share runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata
from ...core.ports.port import IMAGE_AXES, image_size
from ..images.images import image_head
from ..session import Session
from ..session_spec import SessionSpec
from ..tasks.handler import Answer, Files, Handler, Size
from ..tasks.registry import find_handler
from ..tasks.restoration.probing import is_batched
from ..tasks.result import UnreadableFileError, UnusableOutputError
from .batcher import Batcher, OnRun
from .errors import BadRequestError, ModelFailedError, TooLargeError, UnknownModelError
from .limits import Limits
from .request_queue import Work

_TRIAL_SIDE = 64
"""Side of the images that are run as a batch and one by one, in pixels."""


class ServedModel:
    """A model of any task.

    Attributes:
        name: Its name for clients.
        session: Its session.
        handler: What answers requests.
    """

    def __init__(
        self, handler: type[Handler], session: Session, name: str, limits: Limits, on_run: OnRun
    ) -> None:
        """Open a model and try it.

        Args:
            handler: Of the model's task.
            session: The model.
            name: Its name for clients.
            limits: Limits of requests.
            on_run: As in `Batcher`.

        Raises:
            NystraError: The model has other inputs or outputs, or fails.
        """
        self.name, self.session = name, session
        self._max_pixels = limits.max_pixels
        self.handler = handler.open(session, name).limit(limits.tile)
        self._images = images_per_run(session, limits.batch)
        if self._images > 1 and not _is_batched(session, self.handler):
            self._images = 1  # requests must not change each other's answers
        pixels = self.handler.pixels_per_run
        self._batcher = Batcher(
            self.handler.function, images=self._images, pixels=pixels, on_run=on_run
        )
        try:
            self._share_handler(Work(lambda _: None)).try_out()
        except Exception as error:  # raised again, with what was tried
            self.close()
            raise NystraError(f"a trial run of {session.path} failed: {error}") from error

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs, in JSON form."""
        return {**self.handler.facts(), "batch": self._images, "max_pixels": self._max_pixels}

    def cost(self, files: Files, parameters: Any) -> int:
        """Return the bytes that a request needs, from the headers of its images.

        Raises:
            NystraError: The request is refused.
        """
        sizes = image_sizes(self.handler.images(files), self._max_pixels)
        return self.handler.cost(files, sizes, parameters) + sum(map(len, files.values()))

    def answer(self, files: Files, parameters: Any, work: Work[Answer]) -> Answer:
        """Return the answer; calls ``work.check`` between the steps.

        Raises:
            ServiceError: A file cannot be read (400), or the output of the model is invalid (500).
            NystraError: Anything else is wrong with the request.
        """
        try:
            return self._share_handler(work)(files, parameters, work.check, self._max_pixels)
        except UnreadableFileError as error:
            raise BadRequestError(str(error)) from error
        except UnusableOutputError as error:
            raise ModelFailedError(str(error)) from error

    @property
    def alive(self) -> bool:
        """Whether the thread that runs the model lives."""
        return self._batcher.alive

    def close(self) -> None:
        """End the thread that runs the model."""
        self._batcher.close()

    def _share_handler(self, work: Work[Any]) -> Handler:
        return self.handler.with_function(partial(self._batcher, work), self._images)


def image_sizes(files: Files, max_pixels: int) -> dict[str, Size]:
    """Return the size of each image, from its header.

    Args:
        files: The images.
        max_pixels: Limit of the pixels of each.

    Raises:
        ServiceError: One is not an image, or has more pixels.
    """
    sizes = {}
    for role, data in files.items():
        try:
            sizes[role] = height, width = image_head(data, f"the {role}")[0]
        except Exception as error:  # any error of a decoder is a fault of the file
            raise BadRequestError(str(error)) from error
        if height * width > max_pixels:
            raise TooLargeError(
                f"the {role} is {width}x{height}, more than the {max_pixels} pixels that this "
                "service accepts: cut it into parts, or start the service with a larger "
                "`max_pixels`"
            )
    return sizes


def images_per_run(session: Session, limit: int) -> int:
    """Return how many images of different requests may share a run.

    One if the attention depends on the whole batch (``init batch``): a response must not depend on
    other requests.

    Args:
        session: The model.
        limit: The limit if the batch of the file is free.

    Raises:
        NystraError: The plan in its metadata cannot be read.
    """
    port = session.facts.image
    if port is None or "batch" not in port.axes:
        return 1
    if _asks_for_batch(ModelMetadata.read(session.metadata).attention_plan()):
        return 1
    return port.lengths.get("batch", limit)


def _is_batched(session: Session, handler: Handler) -> bool:
    """Return whether two different images in a run give what each gives alone.

    A file may have a free batch although its result for an image depends on the others.
    """
    image, *others = session.facts.inputs
    restorer = getattr(handler, "restorer", None)
    channels = image.channels if restorer is None else restorer.input_channels
    if others or channels is None or image.axes != IMAGE_AXES:
        return True
    minimum = session.facts.size_minimum if restorer is None else restorer.size_minimum
    side = -(-max(_TRIAL_SIDE, minimum) // image.multiple) * image.multiple
    sides = image.sides or image_size(side, side)
    return is_batched(handler.function, (2, channels, sides["height"], sides["width"]))


def _asks_for_batch(plan: Any) -> bool:
    if not isinstance(plan, dict):
        return False
    return plan.get("init") == "batch" or any(map(_asks_for_batch, plan.values()))


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
        models = self.routes[route]
        if name is None:
            return models[0]
        named = next((model for model in models if model.name == name), None)
        if named is None:
            names = ", ".join(model.name for model in models)
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
    except BaseException:  # raised again once the models are closed
        with suppress(Exception):
            models.close()
        raise
    return models
