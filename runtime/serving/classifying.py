"""``/v1/classify``: a picture in, its likeliest classes out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core.errors import NystraError
from ...core.json_text import stable_json
from ..session import Session
from ..tasks.classification.classifier import classifier_for
from ..tasks.classification.options import USUAL_TOP
from ..tasks.classification.run import ranked
from .batch_limit import images_a_run
from .batcher import Batcher, Ran
from .limits import Limits
from .service import Answer, Parts, Service, decoded, measured, told
from .work import Work


@dataclass(frozen=True)
class ClassQuestion:
    """What is asked for besides the picture."""

    top: int = told(USUAL_TOP, "how many classes, best first")


class ClassifyingModel:
    """A model that says what is on a picture; see `Served`."""

    def __init__(self, session: Session, name: str, limits: Limits, ran: Ran) -> None:
        """Look at what the model takes."""
        self.name, self.session = name, session
        self._most = limits.max_pixels
        self._classifier = classifier_for(session)
        self._images = images_a_run(session, limits.batch)
        self._batcher = Batcher(self._classifier.function, images=self._images, ran=ran)

    def facts(self) -> dict[str, Any]:
        """Return what a client has to know of it."""
        return {
            "classes": self._classifier.classes,
            "labels": list(self._classifier.preprocessing.labels),
            "parts": ["image"],
            "batch": self._images,
            "max_pixels": self._most,
        }

    def cost(self, parts: Parts, asked: ClassQuestion) -> int:
        """Return the bytes of a picture in float32, twice, and of its file."""
        if asked.top < 1:
            raise NystraError(f"top is {asked.top}, expected 1 or more classes")
        if set(parts) != {"image"}:
            raise NystraError(f"got the pictures {', '.join(parts)}, expected an image alone")
        (size, _), *_ = measured(parts, self._most).values()
        return 4 * 2 * 3 * size[0] * size[1] + len(parts["image"])

    def answer(self, parts: Parts, asked: ClassQuestion, work: Work[Answer]) -> Answer:
        """Return the classes as JSON, as `nystra run` lists them."""
        picture = decoded(parts["image"], "image")
        work.check()
        classify = replace(self._classifier, function=partial(self._batcher, work))
        logits = classify(picture.pixels)
        classes = ranked(logits, classify.preprocessing.labels, asked.top)
        document = {"schema_version": 1, "model": self.name, "classes": classes}
        pixels = picture.size[0] * picture.size[1]
        return Answer(stable_json(document), "application/json", pixels)

    def close(self) -> None:
        """End the thread that runs the model."""
        self._batcher.close()


SERVICE = Service(
    route="classify",
    summary="Say what is on a picture",
    question=ClassQuestion,
    parts=("image",),
    gives=("application/json",),
    open=ClassifyingModel,
)
