"""Handling a request: the content of files in, the content of one file out.

``nystra serve``, Triton and Ray Serve use it; the implementation belongs to the model's task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.option import Options
from ..images.image_data import ImageData
from ..images.images import DECODING_BYTES, decode_image
from ..session import Session
from .result import UnreadableFileError

Files: TypeAlias = Mapping[str, bytes]
"""Role or name of an input -> content of its file."""

Size: TypeAlias = tuple[int, int]
"""Height and width of an image."""

Parameters = TypeVar("Parameters", bound=Options)


@dataclass(frozen=True)
class Answer:
    """The result of a request.

    Attributes:
        content: Content of a file.
        media_type: Its media type.
        pixels: Pixels of the image in the request.
        notes: Further details, by names such as ``tiles``.
        tensors: The same as arrays, by the name of an `AnswerTensor`, for clients of tensors; a
            file is an array of one ``bytes``.
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
        name: Name of the array.
        dtype: Its numpy name, or ``bytes`` for the content of a file.
        shape: Lengths of its axes; -1 is any.
        labeled: The last axis has the classes.
    """

    name: str
    dtype: str = "bytes"
    shape: tuple[int, ...] = (1,)
    labeled: bool = False


class Handler(ABC):
    """An open model that handles requests: the base of each task's.

    Attributes:
        route: Last part of its path in HTTP: ``/v1/<route>``.
        summary: What it does, in a few words.
        parts: Roles of the files that it may take; the first is required.
        parameters: The record of the parameters of a request.
        media_types: Media types of the answers.
    """

    route: ClassVar[str]
    summary: ClassVar[str]
    parts: ClassVar[tuple[str, ...]] = ("image",)
    parameters: ClassVar[type[Options]]
    media_types: ClassVar[tuple[str, ...]]

    @classmethod
    @abstractmethod
    def open(cls, session: Session, name: str) -> Handler:
        """Open with a session and the name of the model for clients.

        Raises:
            NystraError: The file has other inputs or outputs.
        """

    @property
    @abstractmethod
    def tensors(self) -> tuple[AnswerTensor, ...]:
        """The arrays for clients of tensors."""

    @property
    @abstractmethod
    def function(self) -> Callable[..., Array]:
        """The model: (B, C, h, w), and other inputs by name -> (B, ...)."""

    @abstractmethod
    def with_function(self, function: Callable[..., Array], images: int) -> Handler:
        """Return it with another function in place of `function`, such as one that shares runs.

        Args:
            function: Called as `function`.
            images: How many images one call may have.
        """

    @abstractmethod
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
            parameters: Parameters of the type ``parameters``.
            check: Called between the steps; raises if the request was cancelled.
            max_pixels: The most pixels of an image; None is the limit of `decode_image`.

        Raises:
            UnreadableFileError: A file cannot be read.
            UnusableOutputError: The output of the model is invalid.
            NystraError: The request is wrong in another way, or the model fails.
        """

    def limit(self, tile: int) -> Handler:
        """Return it for a service, where several requests are handled at the same time.

        Args:
            tile: The largest side of a tile, in pixels.
        """
        return self

    @property
    def pixels_per_run(self) -> int | None:
        """The most pixels of all images in one run that requests share; None is any number."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs, in JSON form."""
        return {"parts": list(self.parts)}

    def cost(self, files: Files, sizes: Mapping[str, Size], parameters: Any) -> int:
        """Return the bytes that a request needs besides those of its files.

        Args:
            files: As in `__call__`.
            sizes: Height and width of each, from its header.
            parameters: As in `__call__`.

        Raises:
            NystraError: The request is refused.
        """
        return DECODING_BYTES * sum(height * width for height, width in sizes.values())

    def images(self, files: Files) -> Files:
        """Return those of the files that are images."""
        return files

    def try_out(self) -> None:  # noqa: B027
        """Run once on an image, where one can be made up.

        Raises:
            NystraError: The model fails.
        """


def file_tensor(content: bytes) -> Array:
    """Return the content of a file as an array of one ``bytes``."""
    return np.array([content], np.object_)


def decode_role(files: Files, role: str = "image", max_pixels: int | None = None) -> ImageData:
    """Return the image of one role, of at most ``max_pixels``.

    Raises:
        UnreadableFileError: It is not an image, or damaged.
        NystraError: There is none of the role.
    """
    if role not in files:
        raise NystraError(f"got {sorted(files)}, expected the {role} too")
    try:
        return decode_image(files[role], f"the {role}", max_pixels=max_pixels)
    except Exception as error:  # any error of a decoder is a fault of the file
        raise UnreadableFileError(str(error)) from error


def read_parameters(defaults: Parameters, values: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a request, from texts or numbers, with defaults for the others.

    Raises:
        NystraError: One is unknown, or not of its type.
    """
    kinds = defaults.list_options()
    unknown = sorted(set(values) - set(kinds))
    if unknown:
        raise NystraError(
            f"unknown parameters {', '.join(unknown)}: expected one or more of {', '.join(kinds)}"
        )
    read = {name: kinds[name].take(name, value) for name, value in values.items()}
    changed: Parameters = replace(defaults, **read)  # type: ignore[type-var]
    return changed
