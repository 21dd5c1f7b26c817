"""Answering a request: the content of files in, the content of one file out.

What ``nystra serve``, Triton and Ray Serve hand to a model; the task of the model says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.option import Options
from ..images.image_data import ImageData
from ..images.images import decode_image
from ..session import Session

Files: TypeAlias = Mapping[str, bytes]
"""Role or name of an input -> content of its file."""

Parameters = TypeVar("Parameters", bound=Options)


class UnreadableFileError(NystraError):
    """A file of a request is none that is read here."""


class UnusableOutputError(NystraError):
    """The model gave something that cannot be right, whatever it was given."""


@dataclass(frozen=True)
class Answer:
    """What a request gets.

    Attributes:
        content: Of a file.
        media_type: What that is.
        pixels: Of the image that was sent.
        notes: Further details, by names such as ``tiles``.
        tensors: The same as arrays by the name of an `AnswerTensor`, for clients of tensors; a file
            is an array of one ``bytes``.
    """

    content: bytes
    media_type: str
    pixels: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class AnswerTensor:
    """One of the arrays of an `Answer`.

    Attributes:
        name: Of the array.
        dtype: Its numpy name, or ``bytes`` for the content of a file.
        shape: Lengths of its axes; -1 is any.
        labelled: Its last axis are the classes.
    """

    name: str
    dtype: str = "bytes"
    shape: tuple[int, ...] = (1,)
    labelled: bool = False


class Answerer(Protocol):
    """An open model that answers requests.

    Attributes:
        parameters: The record of what a request may ask for.
        media_types: Of the answers.
    """

    parameters: ClassVar[type[Options]]
    media_types: ClassVar[tuple[str, ...]]

    @classmethod
    def open(cls, session: Session, name: str) -> Answerer:
        """Take an open session and the name that clients know the model by.

        Raises:
            NystraError: The file takes or gives something else.
        """

    @property
    def tensors(self) -> tuple[AnswerTensor, ...]:
        """What clients of tensors get."""

    def __call__(
        self,
        files: Files,
        parameters: Any,
        check: Callable[[], None] = lambda: None,
        max_pixels: int | None = None,
    ) -> Answer:
        """Return the answer to a request.

        Args:
            files: One for each input.
            parameters: Of the type ``parameters``.
            check: Called between the steps; raises where nobody waits for the answer any more.
            max_pixels: That an image may have; None is what `decode_image` reads.

        Raises:
            UnreadableFileError: A file cannot be read.
            UnusableOutputError: The model gave nonsense.
            NystraError: Anything else that is wrong with the request, or the model fails.
        """


def file_tensor(content: bytes) -> Array:
    """Return the content of a file as an array of one ``bytes``."""
    return np.array([content], np.object_)


def decode_role(files: Files, role: str = "image", max_pixels: int | None = None) -> ImageData:
    """Return the image of one role, of at most ``max_pixels``.

    Raises:
        UnreadableFileError: It is none, or damaged.
        NystraError: There is none of the role.
    """
    if role not in files:
        raise NystraError(f"got {sorted(files)}, expected the {role} too")
    try:
        return decode_image(files[role], f"the {role}", max_pixels=max_pixels)
    except Exception as error:  # whatever a decoder raises, the file is to blame
        raise UnreadableFileError(str(error)) from error


def read_parameters(defaults: Parameters, values: Mapping[str, Any]) -> Parameters:
    """Return parameters with values of a request, texts or numbers, in place of the defaults.

    Raises:
        NystraError: One is unknown, or not of its type.
    """
    kinds = defaults.declared()
    unknown = sorted(set(values) - set(kinds))
    if unknown:
        raise NystraError(
            f"unknown parameters {', '.join(unknown)}: expected one or more of {', '.join(kinds)}"
        )
    read = {name: kinds[name].take(name, value) for name, value in values.items()}
    changed: Parameters = replace(defaults, **read)  # type: ignore[type-var]
    return changed
