"""What a server does with the bytes of pictures: the same as ``nystra run`` does with files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core.errors import NystraError
from ..runtime.images.images import decode_picture, encode_picture, format_named
from ..runtime.session import Session
from ..runtime.tasks.classification.classifier import Classifier, classifier_for
from ..runtime.tasks.restoration.answer import restored
from ..runtime.tasks.restoration.auxiliary_inputs import ROLES, companion_arrays
from ..runtime.tasks.restoration.picture_job import in_one_line
from ..runtime.tasks.restoration.restorer import Restorer
from ..runtime.tasks.restoration.session_restorer import restorer_for

Files: TypeAlias = Mapping[str, bytes]
"""Role of an input (``image``, ``mask``, ``reference``) -> the content of a picture file."""

Answer: TypeAlias = "bytes | npt.NDArray[np.float64]"
"""The content of a picture file, or the logits (classes)."""

_WRITTEN = {"PNG": "png", "JPEG": "jpg", "TIFF": "tif", "WEBP": "webp"}


@dataclass(frozen=True)
class Wishes:
    """What one request may ask for; None and 0 leave it to the server.

    Attributes:
        tile: Side of the tiles in input pixels.
        overlap: Of the tiles in input pixels.
        format: ``png``, ``jpg``, ``tif`` or ``webp``; None keeps that of the picture, or takes PNG
            where that is read only.
        quality: As in `encode_picture`.
    """

    tile: int = 0
    overlap: int | None = None
    format: str | None = None
    quality: int | None = None

    def asked(self, values: Mapping[str, Any]) -> Wishes:
        """Return these with values of a request, texts or numbers, in their place.

        Raises:
            NystraError: One is unknown, or no whole number where one is expected.
        """
        unknown = sorted(set(values) - set(self.__dataclass_fields__))
        if unknown:
            known = ", ".join(self.__dataclass_fields__)
            raise NystraError(f"unknown parameters {', '.join(unknown)}: expected some of {known}")
        checked: dict[str, Any] = {key: _checked(key, value) for key, value in values.items()}
        return replace(self, **checked)


def _checked(key: str, value: Any) -> str | int:
    if key == "format":
        format_named(str(value))
        return str(value)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(value, bool):
        raise NystraError(f"the parameter {key} is {value!r}, expected a whole number")
    return number


class Restoring:
    """Restores pictures."""

    def __init__(self, session: Session) -> None:
        """Take a session of a model that gives pictures.

        Raises:
            NystraError: As `restorer_for`.
        """
        self._restorer: Restorer = restorer_for(session)

    def __call__(self, files: Files, wishes: Wishes) -> bytes:
        """Return the restored picture as the content of a file.

        Raises:
            NystraError: A picture cannot be used, or the model fails.
        """
        before = decode_picture(files["image"], "the picture")
        beside = {
            role: decode_picture(files[role], f"the {role}") for role in ROLES if role in files
        }
        others, _ = companion_arrays(beside, before.size)
        after, _, _ = restored(
            self._restorer,
            before,
            "the picture",
            tile=wishes.tile,
            overlap=wishes.overlap,
            **others,
        )
        kind = format_named(wishes.format or written_format(files["image"]))
        return encode_picture(after, kind, quality=wishes.quality)


class Classifying:
    """Says what is on pictures."""

    def __init__(self, session: Session) -> None:
        """Take a session of a model that gives logits.

        Raises:
            NystraError: As `classifier_for`.
        """
        self._classifier: Classifier = classifier_for(session)

    def __call__(self, files: Files, wishes: Wishes) -> npt.NDArray[np.float64]:
        """Return the logits (classes) of a picture.

        Raises:
            NystraError: The picture cannot be used, something is asked for that goes with pictures
                only, or the model fails.
        """
        if wishes != Wishes():
            raise NystraError("a model that classifies takes no parameters: leave them out")
        return self._classifier(decode_picture(files["image"], "the picture").pixels)


class Answering:
    """A model file as something that answers requests, one after the other.

    Attributes:
        roles: What it takes.
        gives: ``picture`` or ``logits``.
    """

    def __init__(self, session: Session, wishes: Wishes | None = None) -> None:
        """Take a session.

        Args:
            session: Of a file that takes one picture, with a mask or a reference.
            wishes: What holds for requests that ask for nothing else.

        Raises:
            NystraError: The file takes or gives something else.
        """
        gives = session.facts.outputs[0].role if session.facts.outputs else "nothing"
        self.gives = "logits" if gives == "logits" else "picture"
        self._wishes = wishes or Wishes()
        make = Classifying if self.gives == "logits" else Restoring
        self._answer: Restoring | Classifying = make(session)
        self.roles = tuple(port.role for port in session.facts.inputs)

    def __call__(self, files: Files, asked: Mapping[str, Any] | None = None) -> Answer:
        """Return what the model makes of pictures.

        Args:
            files: One for each of `roles`.
            asked: Fields of `Wishes`, as texts or numbers.

        Raises:
            NystraError: Whatever goes wrong over this request; the next one is none the worse.
        """
        if set(files) != set(self.roles):
            raise NystraError(f"got {sorted(files)}, expected {sorted(self.roles)}")
        wishes = self._wishes.asked(asked or {})
        try:
            return self._answer(files, wishes)
        except Exception as error:  # one bad request, however bad, never stops the others
            raise in_one_line(error, Path("the picture")) from error


def written_format(data: bytes) -> str:
    """Return the format of a picture file, such as ``jpg``; ``png`` where it is read only."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return _WRITTEN.get(image.format or "", "png")
