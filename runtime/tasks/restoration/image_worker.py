"""A child process of `process_pool`: loads one model and restores images on request.

``{"do": "load", "session": as `SessionSpec.as_dict`, "options": {...}}`` -> ``{}``;
``{"do": "restore", "pair": [input, output]}`` -> ``{"result": {...}}``, as `ImageResult.as_dict`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ....core.ending import EndingSignals
from ....core.errors import NystraError
from ...session import Session
from ...session_spec import SessionSpec
from ...workers.loop import Send, answer_requests
from .image_job import ImageJob
from .options import RunOptions
from .restorer import restorer_for
from .sequential import attempt


class _ImageWorker:
    def __init__(self) -> None:
        self._job: ImageJob | None = None

    def answer(self, request: Mapping[str, Any], _send: Send) -> dict[str, Any]:
        if request["do"] == "load":
            options = RunOptions(**request["options"])
            session = Session.open(SessionSpec.from_dict(request["session"]))
            self._job = ImageJob(restorer_for(session), options)
            return {}
        if self._job is None:
            raise NystraError("a worker process got images before it loaded a model")
        result = attempt(self._job, (Path(request["pair"][0]), Path(request["pair"][1])))
        return {"result": result.as_dict()}


def _stop(_number: int) -> NoReturn:
    """End, and remove unfinished files."""
    raise SystemExit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent says when to end
    with EndingSignals([signal.SIGTERM], _stop, "ended by SIGTERM"):
        sys.exit(answer_requests(_ImageWorker().answer))
