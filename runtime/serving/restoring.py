"""``/v1/restore``: a picture in, what the model makes of it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from ...core.errors import NystraError
from ..images.images import SUFFIXES, encode_picture, format_named
from ..images.picture import Picture
from ..session import Session
from ..tasks.restoration.answer import check_output, with_pixels
from ..tasks.restoration.auxiliary_inputs import ROLES, companion_arrays
from ..tasks.restoration.restorer import Restorer
from ..tasks.restoration.session_restorer import restorer_for
from .batch_limit import images_a_run
from .batcher import Batcher, Ran
from .errors import ModelFailedError
from .limits import Limits
from .service import Answer, Parts, Service, decoded, measured, told
from .work import Work

_MEDIA = {"PNG": "image/png", "JPEG": "image/jpeg", "TIFF": "image/tiff", "WebP": "image/webp"}
_WRITTEN = {kind.upper(): kind for kind in SUFFIXES.values()}
_TRIAL_SIDES = (32, 128)


@dataclass(frozen=True)
class RestoreQuestion:
    """What is asked for besides the picture."""

    format: Literal["png", "jpg", "tif", "webp"] | None = told(
        None, "of the answer (default: the picture's, else png)"
    )
    quality: int | None = told(None, "of JPEG (95) and of WebP (lossless), 1 to 100")
    tile: int = told(0, "side of the tiles in pixels of the picture, 0 = the service's own")
    overlap: int | None = told(None, "of the tiles, in pixels of the picture")


class RestoringModel:
    """A model that makes pictures of pictures; see `Served`."""

    def __init__(self, session: Session, name: str, limits: Limits, ran: Ran) -> None:
        """Choose the tiles and try the model on a small grey picture."""
        self.name, self.session = name, session
        self._most = limits.max_pixels
        restorer = restorer_for(session)
        self._companions = bool(restorer.mask_input or restorer.reference_input)
        self.whole = restorer.tiling == "internal" or self._companions
        self.tile = None if self.whole else _largest_tile(restorer, limits)
        images = images_a_run(session, limits.batch)
        pixels = None
        if self.tile is not None and restorer.meter is not None:
            pixels = self.tile**2  # on a CPU a batch saves calls, and takes its memory
            restorer = replace(restorer, meter=None)  # others run meanwhile: measured for good
        self._batcher = Batcher(restorer.function, images=images, pixels=pixels, ran=ran)
        self._restorer, self._images, self._pixels = restorer, images, pixels
        self._try()

    def facts(self) -> dict[str, Any]:
        """Return what a client has to know of it."""
        restorer = self._restorer
        takes = [("mask", restorer.mask_input), ("reference", restorer.reference_input)]
        return {
            "scale": restorer.scale,
            "parts": ["image", *(role for role, taken in takes if taken)],
            "channels": restorer.input_channels,
            "tile": self.tile,
            "batch": self._images,
            "max_pixels": self._most,
        }

    def cost(self, parts: Parts, asked: RestoreQuestion) -> int:
        """Return the bytes of a picture and its result in float32, and of their files."""
        self._restorer.check_companions("mask" in parts, "reference" in parts)
        if self.tile is not None and asked.tile > self.tile:
            raise NystraError(
                f"the tile is {asked.tile}, expected at most the service's own of {self.tile}"
            )
        sizes = [size for size, _ in measured(parts, self._most).values()]
        height, width = sizes[0]
        numbers = sum(3 * size[0] * size[1] for size in sizes)
        numbers += 2 * 3 * height * width * self._restorer.scale**2
        return 4 * numbers + sum(map(len, parts.values()))

    def answer(self, parts: Parts, asked: RestoreQuestion, work: Work[Answer]) -> Answer:
        """Return the restored picture as a file."""
        (_, format), *_ = measured(parts, self._most).values()
        kind = format_named(asked.format) if asked.format else _WRITTEN.get(format, "PNG")
        before = decoded(parts["image"], "image")
        beside = {role: decoded(parts[role], role) for role in ROLES if role in parts}
        arrays, doubts = companion_arrays(beside, before.size)
        after, tiles, findings = self._restored(before, asked, work, arrays)
        work.check()
        content = encode_picture(after, kind, quality=asked.quality)
        notes = {"tiles": str(tiles), "warnings": "; ".join(doubts + findings)}
        given = {name: text for name, text in notes.items() if text}
        return Answer(content, _MEDIA[kind], before.size[0] * before.size[1], given)

    def close(self) -> None:
        """End the thread that runs the model."""
        self._batcher.close()

    def _restored(
        self, before: Picture, asked: RestoreQuestion, work: Work[Any], arrays: dict[str, Any]
    ) -> tuple[Picture, int, list[str]]:
        tile = asked.tile or (self.tile if self._restorer.fixed_size is None else None) or 0
        batch = self._images
        if self._pixels is not None and tile:
            batch = max(min(batch, self._pixels // tile**2), 1)
        function = partial(self._batcher, work)
        restorer = replace(self._restorer, function=function, batch=batch)
        pixels, tiles = restorer(
            before.pixels, tile, asked.overlap, lambda done, total: work.check(), **arrays
        )
        try:
            findings = check_output(pixels, before.pixels, "this picture")
        except NystraError as error:
            raise ModelFailedError(str(error)) from error
        return with_pixels(before, pixels), tiles, findings

    def _try(self) -> None:
        """Run a small grey picture, so that what cannot run is found before it is waited for."""
        fixed, least = self._restorer.fixed_size, self._restorer.size_minimum
        sizes = [fixed] if fixed else [(max(side, least),) * 2 for side in _TRIAL_SIDES]
        failure: Exception | None = None
        for height, width in sizes:
            grey = Picture(np.full((height, width, self._restorer.input_channels), 0.5, np.float32))
            others: dict[str, Any] = {}
            if self._restorer.mask_input:
                others["mask"] = np.zeros((height, width), np.float32)
                others["mask"][height // 4 : height // 2, width // 4 : width // 2] = 1
            if self._restorer.reference_input:
                others["reference"] = np.full((height, width, 3), 0.5, np.float32)
            work: Work[Any] = Work(lambda _: None)
            try:
                self._restored(grey, RestoreQuestion(), work, others)
            except Exception as error:
                failure = failure or error
            else:
                return
        self.close()
        raise NystraError(f"a trial run of {self.session.path} failed: {failure}") from failure


def _largest_tile(restorer: Restorer, limits: Limits) -> int:
    """Return the side of the tiles: the one wanted, or what the memory allows."""
    if restorer.fixed_size is not None:
        return max(restorer.fixed_size)
    wanted = max(limits.tile, restorer.size_minimum)
    wanted = -(-wanted // restorer.size_multiple) * restorer.size_multiple
    side, _ = restorer.choose_tiles((wanted, wanted), wanted**2, 0, None, None)
    return side if isinstance(side, int) else wanted


SERVICE = Service(
    route="restore",
    summary="Restore a picture",
    question=RestoreQuestion,
    parts=("image", "mask", "reference"),
    gives=tuple(_MEDIA.values()),
    open=RestoringModel,
)
