"""A worker in another process: a child of this one, or on a machine of a cluster."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ....core.ending import EndingSignals
from ....core.errors import NystraError
from ....core.files.reading import file_sha256
from ...machine.memory import available_memory, resident_memory
from ...pool.calls import Failed
from ...session import Session
from ...session_spec import SessionSpec
from ...workers.loop import Send, answer_requests
from .image_job import ImageJob
from .options import RunOptions
from .restorer import restorer_for
from .worker import ImageWorker


@dataclass(frozen=True)
class Setup:
    """The settings of a worker.

    Attributes:
        session: How the model is run; its file has the same path on every machine.
        options: Options of the run.
        sha256: Of that file, so that no machine runs another one; None is not compared.
        kernels: The operator library is in use; bodies round differently. None is not compared.
    """

    session: SessionSpec
    options: RunOptions
    sha256: str | None = None
    kernels: bool | None = None


class RemoteWorker(ImageWorker):
    """An `ImageWorker` that is opened after it is made."""

    def __init__(self, setup: Setup) -> None:
        """Store the settings; nothing is loaded yet."""
        self._setup = setup

    def open(self) -> str | Failed:
        """Load the model; return the name of this worker."""
        where = f"{socket.gethostname()}, process {os.getpid()}"
        try:
            self.load()
        except Exception as error:  # noqa: BLE001 - whatever a machine lacks, the others go on
            return Failed(f"{where}: {str(error) or type(error).__name__}")
        return where

    def load(self) -> None:
        """Load the model.

        Raises:
            NystraError: It cannot be loaded, or would run differently than where the run began.
        """
        setup, model = self._setup, self._setup.session.model
        if setup.sha256 is not None and setup.sha256 != file_sha256(model, "the model"):
            raise NystraError(
                f"{model} is a different file on this machine: copy the same file to every machine"
            )
        session = Session.open(setup.session)
        if setup.kernels not in (None, session.library is not None):
            raise NystraError(
                f"{session.library_reason}, unlike on the machine that started the run, so "
                "results would differ. Install the same nystra on every machine, or use "
                "`library` none"
            )
        restorer, options = restorer_for(session), setup.options
        if options.max_memory is None:
            options = replace(options, max_memory=_share(setup.session.threads or 1))
        super().__init__(ImageJob(restorer, options))


def _share(threads: int) -> int:
    """Return the bytes this process may use: its share of the machine, by threads and CPUs."""
    part = min(threads / (os.cpu_count() or 1), 1.0)
    return (resident_memory() or 0) + int(available_memory() * part)


class _Child:
    """Answers the requests of `Processes`."""

    def __call__(self, request: Mapping[str, Any], _send: Send) -> dict[str, Any]:
        if request["do"] == "open":
            spec, options = SessionSpec.from_dict(request["session"]), request["options"]
            self._worker = RemoteWorker(Setup(spec, RunOptions(**options)))
            self._worker.load()
            return {}
        result = self._worker.call((request["do"], request["arguments"]))
        return {"value": result.as_dict()}


def _stop(_number: int) -> NoReturn:
    """End, and remove unfinished files."""
    raise SystemExit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent says when to end
    with EndingSignals([signal.SIGTERM], _stop, "ended by SIGTERM"):
        sys.exit(answer_requests(_Child()))
