"""Model files as an application that answers: what `nystra serve` and Ray Serve put behind HTTP."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..machine.memory import available_memory
from ..session_spec import SessionSpec
from .limits import Limits
from .opening import Models, open_models
from .request_queue import RequestQueue

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(frozen=True)
class Application:
    """An application with what runs behind it.

    Attributes:
        app: Answers requests.
        models: What is served.
        queue: Does the work.
    """

    app: FastAPI
    models: Models
    queue: RequestQueue

    def close(self, patience: float) -> None:
        """Finish the waiting requests within this number of seconds, and end all threads."""
        self.queue.close(patience)
        self.models.close()


def open_application(
    specs: Sequence[SessionSpec],
    limits: Limits,
    *,
    token: str | None = None,
    version: str = "0",
    hosts: Collection[str] = (),
) -> Application:
    """Load model files and return what answers.

    Args:
        specs: Of the models.
        limits: What requests may take.
        token: What requests have to carry as ``Authorization: Bearer``, or None.
        version: Of nystra.
        hosts: Names that requests may be addressed to besides addresses, where there is no token.

    Raises:
        NystraError: A model cannot be served.
        BackendUnavailableError: A backend, or a library that a model needs, is missing.
    """
    from .http.app import create_app
    from .http.metrics import Metrics

    metrics = Metrics([spec.model.stem for spec in specs])
    models = open_models(specs, limits, metrics.ran)
    memory = available_memory() // 2 if limits.max_memory is None else limits.max_memory
    queue = RequestQueue(limits.workers, limits.queue, memory)
    metrics.watch(queue)
    app = create_app(models, queue, limits, metrics, token=token, version=version, hosts=hosts)
    return Application(app, models, queue)
