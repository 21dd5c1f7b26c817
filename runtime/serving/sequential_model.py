"""A model of any task that answers requests, served one request after the other."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from ..images.images import DECODING_BYTES
from ..session import Session
from ..tasks.answer import Answer, Answerer, Files
from ..tasks.task import Task
from .batcher import OnRun
from .limits import Limits
from .service import Service, measured
from .work import Work


class SequentialModel:
    """A model that runs one request at a time; see `Served`."""

    def __init__(
        self, answerer: type[Answerer], session: Session, name: str, limits: Limits, on_run: OnRun
    ) -> None:
        self.name, self.session = name, session
        self._answer = answerer.open(session, name)
        self._most, self._on_run = limits.max_pixels, on_run
        self._turn = threading.Lock()

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs."""
        roles = [port.role for port in self.session.facts.inputs]
        return {"parts": roles, "max_pixels": self._most}

    def cost(self, files: Files, parameters: Any) -> int:
        """Return the bytes of the images and their results, and of their files."""
        sizes = [size for size, _ in measured(files, self._most).values()]
        pixels = sum(height * width for height, width in sizes)
        return DECODING_BYTES * pixels + sum(map(len, files.values()))

    def answer(self, files: Files, parameters: Any, work: Work[Answer]) -> Answer:
        """Return the result, after those of earlier requests."""
        with self._turn:
            begin = time.perf_counter()
            answer = self._answer(files, parameters, work.check, self._most)
            self._on_run(1, time.perf_counter() - begin)
        return answer

    def close(self) -> None:
        """There is no thread to stop."""


def sequential_service(task: Task, answerer: type[Answerer]) -> Service:
    """Return the `Service` of a task that has an answer and no service of its own."""
    return Service(
        route=task.names[0],
        summary=f"Run a model of the task {task.names[0]}",
        parameters=answerer.parameters,
        parts=(*task.takes, *task.may_take),
        gives=answerer.media_types,
        open=partial(SequentialModel, answerer),
    )
