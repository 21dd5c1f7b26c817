"""Requests to models that classify images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.json_text import stable_json
from ....core.option import Options, option
from ...options import TOP
from ...session import Session
from ..handler import Answer, AnswerTensor, Files, Handler, decode_role
from .classifier import Classifier, classifier_for
from .result import rank_classes, softmax

PROBABILITIES = "probabilities"
"""Name of the array that is the softmax of the logits."""


_TRIAL = (224, 224)


@dataclass(frozen=True)
class ClassParameters(Options):
    """The parameters of a request."""

    top: int = option(TOP)


@dataclass(frozen=True)
class ClassificationHandler(Handler):
    """A model that classifies images; see `Handler`.

    Attributes:
        classifier: The model.
        name: Its name for clients.
        output: Name of its output.
    """

    route: ClassVar[str] = "classify"
    summary: ClassVar[str] = "Classify an image"
    parameters: ClassVar[type[Options]] = ClassParameters
    media_types: ClassVar[tuple[str, ...]] = ("application/json",)
    classifier: Classifier
    name: str
    output: str

    @classmethod
    def open(cls, session: Session, name: str) -> ClassificationHandler:
        """Return the handler of an open session; see `classifier_for`."""
        return cls(classifier_for(session), name, session.facts.outputs[0].name)

    @property
    def function(self) -> Callable[..., Array]:
        """The model."""
        return self.classifier.function

    def with_function(self, function: Callable[..., Array], images: int) -> ClassificationHandler:
        """Return it with another function."""
        return replace(self, classifier=replace(self.classifier, function=function))

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs."""
        labels = list(self.classifier.preprocessing.labels)
        return {"classes": self.classifier.classes, "labels": labels} | super().facts()

    def try_out(self) -> None:
        """Classify a gray image."""
        self.classifier(np.full((*(self.classifier.sides or _TRIAL), 3), 0.5, np.float32))

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
        classes = rank_classes(logits, self.classifier.preprocessing.labels, parameters.top)
        document: dict[str, Any] = {"schema_version": 1, "model": self.name}
        document["classes"] = [each.as_dict() for each in classes]
        arrays = {self.output: logits, PROBABILITIES: softmax(logits)}
        return Answer(
            stable_json(document),
            "application/json",
            image.size[0] * image.size[1],
            tensors={name: array.astype(np.float32) for name, array in arrays.items()},
        )
