"""One image to its classes: for `nystra run`, and for requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.json_text import stable_json
from ....core.option import Options, option
from ...options import TOP
from ...session import Session
from ..answer import Answer, AnswerTensor, Files, decode_role
from .classifier import Classifier, classifier_for
from .result import RankedClass

PROBABILITIES = "probabilities"
"""Name of the array that is the softmax of the logits."""


@dataclass(frozen=True)
class ClassParameters(Options):
    """The parameters of a request."""

    top: int = option(TOP)


@dataclass(frozen=True)
class ClassificationAnswerer:
    """A model that classifies images; see `Answerer`.

    Attributes:
        classifier: The model.
        name: Its name for clients.
        output: Name of its output.
    """

    parameters: ClassVar[type[Options]] = ClassParameters
    media_types: ClassVar[tuple[str, ...]] = ("application/json",)
    classifier: Classifier
    name: str
    output: str

    @classmethod
    def open(cls, session: Session, name: str) -> ClassificationAnswerer:
        """Return the answerer of an open session; see `classifier_for`."""
        return cls(classifier_for(session), name, session.facts.outputs[0].name)

    @property
    def tensors(self) -> tuple[AnswerTensor, ...]:
        """Logits and probabilities."""
        shape = (self.classifier.classes or -1,)
        return tuple(
            AnswerTensor(name, "float32", shape, labeled=True)
            for name in (self.output, PROBABILITIES)
        )

    def __call__(
        self,
        files: Files,
        parameters: ClassParameters,
        check: Callable[[], None] = lambda: None,
        max_pixels: int | None = None,
    ) -> Answer:
        """Return the classes as JSON, as `nystra run` lists them."""
        if set(files) != {"image"}:
            raise NystraError(f"got {sorted(files)}, expected an image alone")
        image = decode_role(files, max_pixels=max_pixels)
        check()
        logits = self.classifier(image.pixels)
        classes = ranked(logits, self.classifier.preprocessing.labels, parameters.top)
        document: dict[str, Any] = {"schema_version": 1, "model": self.name}
        document["classes"] = [each.as_dict() for each in classes]
        arrays = {self.output: logits, PROBABILITIES: softmax(logits)}
        return Answer(
            stable_json(document),
            "application/json",
            image.size[0] * image.size[1],
            tensors={name: array.astype(np.float32) for name, array in arrays.items()},
        )


def softmax(logits: Array) -> Array:
    """Return the probabilities (classes) of logits (classes)."""
    powers: Array = np.exp(logits - logits.max())
    shares: Array = powers / powers.sum()
    return shares


def ranked(logits: Array, labels: Sequence[str], top: int) -> list[RankedClass]:
    """Return the classes of the largest logits, best first; of equal ones the smaller number.

    Args:
        logits: (classes).
        labels: Names of the classes; empty if unknown.
        top: Number of classes to return.
    """
    shares = softmax(logits)
    return [
        RankedClass(
            int(place),
            labels[place] if labels else None,
            float(shares[place]),
            float(logits[place]),
        )
        for place in np.argsort(-logits, kind="stable")[:top]
    ]
