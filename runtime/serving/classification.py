"""``/v1/classify``: an image in, its most likely classes out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...core.errors import NystraError
from ..images.images import DECODING_BYTES
from ..session import Session
from ..tasks.answer import Answer, Files
from ..tasks.classification.answer import ClassificationAnswerer, ClassParameters
from .batch_limit import images_per_run
from .batcher import Batcher, OnRun
from .limits import Limits
from .service import Service, measured
from .work import Work


class ClassificationModel:
    """A model that classifies images; see `Served`."""

    def __init__(self, session: Session, name: str, limits: Limits, on_run: OnRun) -> None:
        self.name, self.session = name, session
        self._most = limits.max_pixels
        self._answer = ClassificationAnswerer.open(session, name)
        self._images = images_per_run(session, limits.batch)
        function = self._answer.classifier.function
        self._batcher = Batcher(function, images=self._images, on_run=on_run)

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs."""
        classifier = self._answer.classifier
        return {
            "classes": classifier.classes,
            "labels": list(classifier.preprocessing.labels),
            "parts": ["image"],
            "batch": self._images,
            "max_pixels": self._most,
        }

    def cost(self, files: Files, parameters: ClassParameters) -> int:
        """Return the bytes for the image's file and for decoding it."""
        if set(files) != {"image"}:
            raise NystraError(f"got the images {', '.join(files)}, expected an image alone")
        (size, _), *_ = measured(files, self._most).values()
        return DECODING_BYTES * size[0] * size[1] + len(files["image"])

    def answer(self, files: Files, parameters: ClassParameters, work: Work[Answer]) -> Answer:
        """Return the classes as JSON; images of several requests share a run."""
        classifier = replace(self._answer.classifier, function=partial(self._batcher, work))
        answer = replace(self._answer, classifier=classifier)
        return answer(files, parameters, work.check, self._most)

    def close(self) -> None:
        """End the thread that runs the model."""
        self._batcher.close()


SERVICE = Service(
    route="classify",
    summary="Classify an image",
    parameters=ClassParameters,
    parts=("image",),
    gives=ClassificationAnswerer.media_types,
    open=ClassificationModel,
)
