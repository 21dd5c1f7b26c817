"""``/v1/restore``: an image in, the restored image out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import NystraError
from ...core.ports.port import keyed_ports
from ..images.image_data import ImageData
from ..images.images import DECODING_BYTES
from ..session import Session
from ..tasks.answer import Answer, Files
from ..tasks.restoration.answer import RestorationAnswerer, RestoreParameters, restore
from ..tasks.restoration.auxiliary_roles import AUXILIARY_ROLES, match_inputs
from ..tasks.restoration.restorer import Restorer
from .batch_limit import images_per_run
from .batcher import Batcher, OnRun
from .limits import Limits
from .service import Service, measured
from .work import Work

_TRIAL_SIDES = (32, 128)


class RestorationModel:
    """A model from images to images; see `Served`."""

    def __init__(self, session: Session, name: str, limits: Limits, on_run: OnRun) -> None:
        """Choose the tiles and try the model on a small gray image."""
        self.name, self.session = name, session
        self._most = limits.max_pixels
        self._answer = RestorationAnswerer.open(session, name)
        restorer = self._answer.restorer
        self.tile = None if restorer.whole else _largest_tile(restorer, limits)
        images = images_per_run(session, limits.batch)
        pixels = None
        if self.tile is not None and restorer.meter is not None:
            pixels = self.tile**2  # on a CPU a batch saves calls, and takes its memory
            restorer = replace(restorer, meter=None)  # other requests disturb later measurements
        self._batcher = Batcher(restorer.function, images=images, pixels=pixels, on_run=on_run)
        self._restorer, self._images, self._pixels = restorer, images, pixels
        self._try()

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs."""
        restorer = self._restorer
        return {
            "scale": restorer.scale,
            "parts": ["image", *keyed_ports(restorer.auxiliary)],
            "channels": restorer.input_channels,
            "tile": self.tile,
            "batch": self._images,
            "max_pixels": self._most,
        }

    def cost(self, files: Files, parameters: RestoreParameters) -> int:
        """Return the bytes of images and result in float32, or for decoding, and of the files."""
        match_inputs(self._restorer.auxiliary, {key: files[key] for key in files if key != "image"})
        if self.tile is not None and parameters.tile > self.tile:
            raise NystraError(
                f"`tile` is {parameters.tile}, expected at most {self.tile}, the tile of the "
                "service"
            )
        sizes = [size for size, _ in measured(files, self._most).values()]
        height, width = sizes[0]
        numbers = sum(3 * size[0] * size[1] for size in sizes)
        numbers += 2 * 3 * height * width * self._restorer.scale**2
        decoding = DECODING_BYTES * sum(size[0] * size[1] for size in sizes)
        return max(4 * numbers, decoding) + sum(map(len, files.values()))

    def answer(self, files: Files, parameters: RestoreParameters, work: Work[Answer]) -> Answer:
        """Return the restored image as a file; tiles of several requests share a run."""
        tile = self._tile(parameters.tile)
        answer = replace(self._answer, restorer=self._batched(tile, work))
        return answer(files, replace(parameters, tile=tile), work.check, self._most)

    def close(self) -> None:
        """End the thread that runs the model."""
        self._batcher.close()

    def _tile(self, wanted: int) -> int:
        return wanted or (self.tile if self._restorer.fixed_size is None else None) or 0

    def _batched(self, tile: int, work: Work[Any]) -> Restorer:
        """Return the model for one request, whose tiles go to the batcher."""
        batch = self._images
        if self._pixels is not None and tile:
            batch = max(min(batch, self._pixels // tile**2), 1)
        return replace(self._restorer, function=partial(self._batcher, work), batch=batch)

    def _try(self) -> None:
        """Run a small gray image, so that failures are found before the first request."""
        fixed, least = self._restorer.fixed_size, self._restorer.size_minimum
        sizes = [fixed] if fixed else [(max(side, least),) * 2 for side in _TRIAL_SIDES]
        failure: Exception | None = None
        for height, width in sizes:
            gray = ImageData(
                np.full((height, width, self._restorer.input_channels), 0.5, np.float32)
            )
            auxiliary = {
                port.name: AUXILIARY_ROLES[port.role].stand_in(gray.pixels)
                for port in self._restorer.auxiliary
            }
            tile = self._tile(0)
            batched = self._batched(tile, Work(lambda _: None))
            try:
                restore(batched, gray, "a gray image", tile=tile, auxiliary=auxiliary)
            except Exception as error:
                failure = failure or error
            else:
                return
        self.close()
        raise NystraError(f"a trial run of {self.session.path} failed: {failure}") from failure


def _largest_tile(restorer: Restorer, limits: Limits) -> int:
    """Return the side of the tiles: the requested one, or what the memory allows."""
    if restorer.fixed_size is not None:
        return max(restorer.fixed_size)
    wanted = max(limits.tile, restorer.size_minimum)
    wanted = -(-wanted // restorer.size_multiple) * restorer.size_multiple
    side, _ = restorer.choose_tiles((wanted, wanted), wanted**2, 0, None, None)
    return side if isinstance(side, int) else wanted


SERVICE = Service(
    route="restore",
    summary="Restore an image",
    parameters=RestoreParameters,
    parts=("image", *AUXILIARY_ROLES),
    gives=RestorationAnswerer.media_types,
    open=RestorationModel,
)
