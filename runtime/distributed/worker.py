"""What runs in each process of the cluster: one open model and its tasks."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.reading import file_sha256
from ..images.image_data import ImageData
from ..machine.memory import available_memory, resident_memory
from ..session import Session
from ..session_spec import SessionSpec
from ..tasks.restoration.image_job import ImageJob
from ..tasks.restoration.options import RunOptions
from ..tasks.restoration.restorer import RestoredImage, Restorer, restore, restorer_for
from ..tasks.restoration.result import ImageResult
from ..tasks.restoration.sequential import LockedModel
from ..tasks.result import in_one_line
from ..tiling.run_tiled import run_batch


@dataclass(frozen=True)
class Setup:
    """The settings of a worker.

    Attributes:
        session: How the model is run; its file has the same path on every machine.
        sha256: Of that file, so that no machine runs another one.
        kernels: The operator library is in use; bodies round differently.
        options: Options of the run.
    """

    session: SessionSpec
    sha256: str
    kernels: bool
    options: RunOptions


@dataclass(frozen=True)
class Failed:
    """The result of a task that a worker could not do."""

    error: str


class Worker:
    """One process; its methods return failures instead of raising, so that it keeps running.

    Two of them may be called at the same time: the model runs for one of them.
    """

    def __init__(self, setup: Setup) -> None:
        """Store the settings; nothing is loaded yet."""
        self._setup = setup
        self._restorer: Restorer
        self._model: LockedModel

    def open(self) -> str | Failed:
        """Load the model; return the name of this worker."""
        where = f"{socket.gethostname()}, process {os.getpid()}"
        try:
            self._open()
        except Exception as error:  # whatever a machine lacks, the others go on
            return Failed(f"{where}: {str(error) or type(error).__name__}")
        return where

    def file(self, here: Path, there: Path) -> ImageResult:
        """Restore an image file; the output of an earlier try is replaced."""
        return self._model.restore((here, there))

    def image(self, before: ImageData, name: str, how: Mapping[str, Any]) -> RestoredImage | Failed:
        """Restore an image; see `restore`."""
        try:
            with self._model.lock:
                return restore(self._restorer, before, name, **how)
        except Exception as error:
            return Failed(str(in_one_line(error, Path(name))))

    def tiles(self, tiles: list[Array]) -> list[Array] | Failed:
        """Run the network on tiles (1, C, h, w) of one shape; see `run_batch`."""
        try:
            with self._model.lock:
                return run_batch(self._restorer.function, tiles)
        except Exception as error:
            return Failed(str(in_one_line(error, Path("a tile"))))

    def _open(self) -> None:
        setup = self._setup
        model = setup.session.model
        if file_sha256(model, "the model") != setup.sha256:
            raise NystraError(
                f"{model} is a different file on this machine: copy the same file to every machine"
            )
        session = Session.open(setup.session)
        if (session.library is not None) != setup.kernels:
            raise NystraError(
                f"{session.library_reason}, unlike on the machine that started the run, so "
                "results would differ. Install the same nystra on every machine, or use "
                "`library` none"
            )
        self._restorer = restorer_for(session)
        options = setup.options
        if options.max_memory is None:
            options = replace(options, max_memory=_share(setup.session.threads or 1))
        # What may be replaced was decided before the run began.
        options = replace(options, overwrite=True, skip_existing=False, quiet=True)
        self._model = LockedModel(ImageJob(self._restorer, options))


def _share(threads: int) -> int:
    """Return the bytes this process may use: its share of the machine, by threads and CPUs."""
    part = min(threads / (os.cpu_count() or 1), 1.0)
    return (resident_memory() or 0) + int(available_memory() * part)
