"""What a task offers to those who send images: the table of tasks names one of these."""

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
    """A model that is being served."""

    name: str
    session: Session

    def facts(self) -> dict[str, Any]:
        """Return what a client has to know of it, as JSON can hold it."""

    def cost(self, files: Files, parameters: Any) -> int:
        """Return the bytes that a request holds while it is under way, off the headers alone.

        Raises:
            NystraError: It is refused already.
        """

    def answer(self, files: Files, parameters: Any, work: Work[Answer]) -> Answer:
        """Return the answer; calls ``work.check`` between the steps.

        Raises:
            NystraError: It is refused, or the model fails.
        """

    def close(self) -> None:
        """End what runs the model."""


@dataclass(frozen=True)
class Service:
    """What is the same for all models of a task.

    Attributes:
        route: Under which it is found: ``/v1/<route>``.
        summary: What it does, in a few words.
        parameters: As of an `Answerer`.
        parts: Roles of the images that it takes, the first always.
        gives: Media types of the answers.
        open: Makes a model ready: session, name, limits and what is called after each run.
    """

    route: str
    summary: str
    parameters: type[Options]
    parts: tuple[str, ...]
    gives: tuple[str, ...]
    open: Callable[[Session, str, Limits, OnRun], Served]


def measured(files: Files, most: int) -> dict[str, tuple[tuple[int, int], str]]:
    """Return size and format of each image, off its header.

    Args:
        files: The images.
        most: Pixels that each may have.

    Raises:
        ServiceError: One is not an image, or has more pixels.
    """
    heads = {}
    for role, data in files.items():
        try:
            heads[role] = size, _ = image_head(data, f"the {role}")
        except Exception as error:  # whatever a decoder raises, the file is to blame
            raise BadRequestError(str(error)) from error
        if size[0] * size[1] > most:
            raise TooLargeError(
                f"the {role} is {size[1]}x{size[0]}, more than the {most} pixels that this "
                "service accepts: cut it into parts, or start the service with a larger "
                "`max_pixels`"
            )
    return heads


def answer_request(model: Served, files: Files, parameters: Any, work: Work[Answer]) -> Answer:
    """Return a model's answer; what is wrong with it has the status that a client needs.

    Raises:
        ServiceError: A file cannot be read (400), or the model gave nonsense (500).
        NystraError: Anything else is wrong with the request.
    """
    try:
        return model.answer(files, parameters, work)
    except UnreadableFileError as error:
        raise BadRequestError(str(error)) from error
    except UnusableOutputError as error:
        raise ModelFailedError(str(error)) from error
