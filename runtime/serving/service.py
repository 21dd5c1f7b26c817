"""What a task offers to those who send pictures: the table of tasks names one of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..images.images import decode_picture, picture_head
from ..images.picture import Picture
from ..session import Session
from .batcher import Ran
from .errors import BadRequestError, ServiceError, TooLargeError
from .limits import Limits
from .work import Work

Parts = Mapping[str, bytes]
"""Picture files as they were sent, by the role of the input they are for; ``image`` first."""


@dataclass(frozen=True)
class Answer:
    """What a request gets.

    Attributes:
        content: The body.
        media_type: What it is.
        pixels: Of the picture that was sent.
        notes: What else is said, by names such as ``tiles``.
    """

    content: bytes
    media_type: str
    pixels: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)


class Served(Protocol):
    """A model that is being served."""

    name: str
    session: Session

    def facts(self) -> dict[str, Any]:
        """Return what a client has to know of it, as JSON can hold it."""

    def cost(self, parts: Parts, asked: Any) -> int:
        """Return the bytes that a request holds while it is under way, off the headers alone.

        Raises:
            NystraError: It is refused already.
        """

    def answer(self, parts: Parts, asked: Any, work: Work[Answer]) -> Answer:
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
        question: A dataclass of the parameters, each with its `told`.
        parts: Roles of the pictures that it takes, the first always.
        gives: Media types of the answers.
        open: Makes a model ready: session, name, limits and what is told of its runs.
    """

    route: str
    summary: str
    question: type[Any]
    parts: tuple[str, ...]
    gives: tuple[str, ...]
    open: Callable[[Session, str, Limits, Ran], Served]


def told(default: Any, help: str) -> Any:
    """Return a dataclass field with a default and a line of help."""
    return field(default=default, metadata={"help": help})


def measured(parts: Parts, most: int) -> dict[str, tuple[tuple[int, int], str]]:
    """Return size and format of each picture, off its header.

    Args:
        parts: The pictures.
        most: Pixels that each may have.

    Raises:
        ServiceError: One is no picture, or has more pixels.
    """
    heads = {}
    for role, data in parts.items():
        heads[role] = size, _ = _reading(picture_head, data, role)
        if size[0] * size[1] > most:
            raise TooLargeError(
                f"the {role} is {size[1]}x{size[0]}, more than the {most} pixels this service "
                "takes: cut it into parts, or start the service with a larger --max-pixels"
            )
    return heads


def decoded(data: bytes, role: str) -> Picture:
    """Return a picture.

    Raises:
        ServiceError: It is none, or damaged.
    """
    picture: Picture = _reading(decode_picture, data, role)
    return picture


def _reading(read: Callable[[bytes, str], Any], data: bytes, role: str) -> Any:
    try:
        return read(data, f"the {role}")
    except ServiceError:
        raise
    except Exception as error:
        raise BadRequestError(str(error)) from error
