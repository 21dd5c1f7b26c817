"""A model that restores images for a pool: in this process, in a child, or on a cluster.

The files of one image are read and written while the model runs for another one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from ....core.arrays import Array
from ....core.errors import NystraError
from ...images.image_data import ImageData
from ...machine.memory import available_memory
from ...pool.calls import Call, Failed
from ...tiling.run_tiled import run_batch
from ..result import in_one_line
from .image_job import ImageJob, ImageRun, Move, result_of_failure
from .restorer import RestoredImage, restore
from .result import ImageResult

_LARGEST = 2 << 30
_SHARE = 8
"""An image with its result takes at most an eighth of the memory, and of 2 GiB, if other images
are read and written at the same time."""


class ImageWorker:
    """An open model; its methods return failures instead of raising.

    Several threads may call them. One image at a time is read, and the model runs for one of them.
    While a large image is restored none is read.
    """

    def __init__(
        self, job: ImageJob, move: Move = lambda done, total: None, images: int = 1
    ) -> None:
        """Set the model.

        Args:
            job: The model and the options.
            move: Called with the progress over all images, assumed to have equally many tiles.
            images: Number of all images.
        """
        self._job, self._move, self._images, self._begun = job, move, images, 0
        self._stopped = False
        meter = job.restorer.meter
        # File access is kept out of measurements.
        self._quiet: AbstractContextManager[Any] = nullcontext() if meter is None else meter.quiet
        self._files, self._model = threading.Lock(), threading.Lock()

    def call(self, call: Call) -> Any:
        """Do a call of a pool."""
        method, arguments = call
        return getattr(self, method)(*arguments)

    def stop(self) -> None:
        """Make calls under way fail after their next tile."""
        self._stopped = True

    def file(self, source: str, target: str) -> ImageResult:
        """Restore an image file."""
        try:
            image = self._job.of(Path(source), Path(target))
            with ExitStack() as reading:
                reading.enter_context(self._files)
                begun, self._begun = self._begun, self._begun + 1
                with self._quiet:
                    image.read()
                if self._is_small(image):
                    reading.close()
                with self._model:
                    image.run(partial(self._report_progress, begun))
                with self._quiet:
                    return image.write()
        except Exception as error:  # noqa: BLE001 - a bad image never stops the others
            return result_of_failure(error, Path(source))

    def small_file(self, source: str, target: str, limit: int) -> ImageResult | None:
        """Restore an image file, also while the model runs for others.

        Returns:
            None if the image has more pixels than ``limit``.
        """
        try:
            image = self._job.of(Path(source), Path(target))
            image.read()
            if image.image is None or math.prod(image.image.size) > limit:
                return None
            image.run(partial(self._report_progress, 0))
            return image.write()
        except Exception as error:  # noqa: BLE001 - a bad image never stops the others
            return result_of_failure(error, Path(source))

    def image(self, before: ImageData, name: str, how: Mapping[str, Any]) -> RestoredImage | Failed:
        """Restore an image; see `restore`."""
        try:
            with self._model:
                return restore(self._job.restorer, before, name, **how)
        except Exception as error:  # noqa: BLE001 - the run reports it and goes on
            return Failed(str(in_one_line(error, Path(name))))

    def tiles(self, tiles: list[Array]) -> list[Array] | Failed:
        """Run the network on tiles (1, C, h, w) of one shape; see `run_batch`."""
        try:
            with self._model:
                return run_batch(self._job.restorer.function, tiles)
        except Exception as error:  # noqa: BLE001 - the run reports it and goes on
            return Failed(str(in_one_line(error, Path("a tile"))))

    def _report_progress(self, begun: int, done: int, total: int) -> None:
        if self._stopped:
            raise NystraError("the run was stopped")
        self._move(begun * total + done, self._images * total)

    def _is_small(self, one: ImageRun) -> bool:
        """Return whether there is memory for other images in addition to this one."""
        if one.image is None:
            return False
        restorer = self._job.restorer
        height, width = one.image.size
        numbers = height * width * (3 + restorer.output_channels * restorer.scale**2)
        budget = min(self._job.options.max_memory or available_memory(), _LARGEST)
        return 4 * numbers * _SHARE <= budget
