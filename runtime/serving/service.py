"""The service of a task over HTTP: the table of tasks names one of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.option import Options
from ..images.images import image_head
from ..session import Session
from ..tasks.answer import Answer, Files, UnreadableFileError, UnusableOutputError
from .batcher import OnRun
from .errors import BadRequestError, ModelFailedError, TooLargeError
from .limits import Limits
from .work import Work


class Served(Protocol):
    """A served model."""

    name: str
    session: Session

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs, in JSON form."""

    def cost(self, files: Files, parameters: Any) -> int:
        """Return the bytes that a request needs, from the headers of its images.

        Raises:
            NystraError: The request is refused.
        """

    def answer(self, files: Files, parameters: Any, work: Work[Answer]) -> Answer:
        """Return the answer; calls ``work.check`` between the steps.

        Raises:
            NystraError: It is refused, or the model fails.
        """

    def close(self) -> None:
        """Stop the threads of the model."""


@dataclass(frozen=True)
class Service:
    """The common part of all models of a task.

    Attributes:
        route: Last part of its path: ``/v1/<route>``.
        summary: What it does, in a few words.
        parameters: As in `Answerer`.
        parts: Roles of the images that it takes; the first is required.
        gives: Media types of the responses.
        open: Opens a model: takes session, name, limits, and a function to call after each run.
    """

    route: str
    summary: str
    parameters: type[Options]
    parts: tuple[str, ...]
    gives: tuple[str, ...]
    open: Callable[[Session, str, Limits, OnRun], Served]


def measured(files: Files, most: int) -> dict[str, tuple[tuple[int, int], str]]:
    """Return size and format of each image, from its header.

    Args:
        files: The images.
        most: The most pixels of each.

    Raises:
        ServiceError: One is not an image, or has more pixels.
    """
    heads = {}
    for role, data in files.items():
        try:
            heads[role] = size, _ = image_head(data, f"the {role}")
        except Exception as error:  # any error of a decoder is a fault of the file
            raise BadRequestError(str(error)) from error
        if size[0] * size[1] > most:
            raise TooLargeError(
                f"the {role} is {size[1]}x{size[0]}, more than the {most} pixels that this "
                "service accepts: cut it into parts, or start the service with a larger "
                "`max_pixels`"
            )
    return heads


def answer_request(model: Served, files: Files, parameters: Any, work: Work[Answer]) -> Answer:
    """Return a model's answer; errors get the HTTP status that a client needs.

    Raises:
        ServiceError: A file cannot be read (400), or the output of the model is invalid (500).
        NystraError: Anything else is wrong with the request.
    """
    try:
        return model.answer(files, parameters, work)
    except UnreadableFileError as error:
        raise BadRequestError(str(error)) from error
    except UnusableOutputError as error:
        raise ModelFailedError(str(error)) from error
