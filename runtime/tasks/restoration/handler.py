"""Requests to models from images to images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.option import Options, option
from ....core.option_kinds import Choice
from ....core.ports.port import key_ports
from ...images.image_data import ImageData
from ...images.images import (
    DECODING_BYTES,
    SUFFIXES,
    format_named,
    image_head,
    metadata_bytes,
)
from ...options import OVERLAP, QUALITY, TILE
from ...session import Session
from ...tiling.tiled_network import DISCOURAGED
from ..handler import (
    Answer,
    AnswerTensor,
    Files,
    Handler,
    Size,
    decode_role,
    file_tensor,
)
from ..result import UnreadableFileError
from .auxiliary_roles import AUXILIARY_ROLES, auxiliary_arrays, match_inputs, stand_in
from .conditions import decode_values
from .restorer import Restorer, restore, restorer_for

MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "TIFF": "image/tiff",
    "WebP": "image/webp",
}
"""Format of an image file -> its media type."""

_TRIAL_SIDES = (32, 128)
_COPIES = 3
"""Of the metadata of an image: as read, as libvips gets it for the result, and in the result."""


@dataclass(frozen=True)
class RestoreParameters(Options):
    """The parameters of a request."""

    format: str | None = option(
        Choice(
            None,
            "of the answer",
            ("png", "jpg", "tif", "webp"),
            default_text="the image's, else png",
        )
    )
    quality: int | None = option(QUALITY)
    tile: int = option(TILE, default_text="0, the service's own")
    overlap: int | None = option(OVERLAP)


@dataclass(frozen=True)
class RestorationHandler(Handler):
    """A model from images to images; see `Handler`.

    Attributes:
        restorer: The model.
        output: Name of its output.
        tile: The largest side of a tile in a service; None: any, or no tiles.
        pixels_per_run: See `Handler`; those of one tile where a batch takes memory of this process.
    """

    route: ClassVar[str] = "restore"
    summary: ClassVar[str] = "Restore an image"
    parts: ClassVar[tuple[str, ...]] = ("image", *AUXILIARY_ROLES)
    parameters: ClassVar[type[Options]] = RestoreParameters
    media_types: ClassVar[tuple[str, ...]] = tuple(MEDIA_TYPES.values())
    restorer: Restorer
    output: str
    tile: int | None = None
    pixels_per_run: int | None = None

    @classmethod
    def open(cls, session: Session, name: str) -> RestorationHandler:
        """Return the handler of an open session; see `restorer_for`."""
        return cls(restorer_for(session), session.facts.outputs[0].name)

    @property
    def function(self) -> Callable[..., Array]:
        """The model."""
        return self.restorer.function

    @property
    def tensors(self) -> tuple[AnswerTensor, ...]:
        """The restored image as a file."""
        return (AnswerTensor(self.output),)

    def limit(self, tile: int) -> RestorationHandler:
        """Return it with tiles of this side, or what the memory allows."""
        restorer = self.restorer
        if restorer.untiled:
            return self
        side = _largest_tile(restorer, tile)
        if restorer.meter is None:
            return replace(self, tile=side)
        # Other requests disturb measurements; on a CPU a batch saves calls, and takes its memory.
        restorer = replace(restorer, meter=None)
        return replace(self, restorer=restorer, tile=side, pixels_per_run=side**2)

    def with_function(self, function: Callable[..., Array], images: int) -> RestorationHandler:
        """Return it with another function."""
        return replace(self, restorer=replace(self.restorer, function=function, batch=images))

    def facts(self) -> dict[str, Any]:
        """Return the properties that a client needs."""
        return {
            "scale": self.restorer.scale,
            "parts": ["image", *key_ports(self.restorer.auxiliary)],
            "channels": self.restorer.input_channels,
            "tile": self.tile,
        }

    def images(self, files: Files) -> Files:
        """Return the files without those of conditions."""
        values = {port.name for port in self.restorer.auxiliary if not port.has_sides}
        return {key: data for key, data in files.items() if key not in values}

    def cost(self, files: Files, sizes: Mapping[str, Size], parameters: RestoreParameters) -> int:
        """Return the bytes of images, metadata and result in float32, or for decoding."""
        match_inputs(self.restorer.auxiliary, {key: files[key] for key in files if key != "image"})
        if self.tile is not None and parameters.tile > self.tile:
            raise NystraError(
                f"`tile` is {parameters.tile}, expected at most {self.tile}, the tile of the "
                "service"
            )
        pixels = sum(height * width for height, width in sizes.values())
        height, width = sizes["image"]
        numbers = 3 * (pixels + 2 * height * width * self.restorer.scale**2)
        described = _COPIES * metadata_bytes(files["image"])
        return described + max(4 * numbers, DECODING_BYTES * pixels)

    def try_out(self) -> None:
        """Run a small gray image."""
        restorer = self._restorer(0)
        fixed, minimum = restorer.fixed_size, restorer.size_minimum
        sizes = [fixed] if fixed else [(max(side, minimum),) * 2 for side in _TRIAL_SIDES]
        failure: Exception | None = None
        for height, width in sizes:
            gray = ImageData(np.full((height, width, restorer.input_channels), 0.5, np.float32))
            auxiliary = {port.name: stand_in(port, gray.pixels) for port in restorer.auxiliary}
            try:
                restore(restorer, gray, "a gray image", tile=self._tile(0), auxiliary=auxiliary)
            except Exception as error:  # noqa: BLE001 - raised below if no size runs
                failure = failure or error
            else:
                return
        if failure is not None:
            raise failure

    def __call__(
        self,
        files: Files,
        parameters: RestoreParameters,
        check: Callable[[], None] = lambda: None,
        max_pixels: int | None = None,
    ) -> Answer:
        """Return the restored image as a file; ``check`` is called after each tile."""
        before = decode_role(files, max_pixels=max_pixels)
        images = self.images(files)
        others: dict[str, ImageData | Array] = {
            key: decode_role(files, key, max_pixels) if key in images else _decode(key, data)
            for key, data in files.items()
            if key != "image"
        }
        auxiliary, warnings = auxiliary_arrays(self.restorer.auxiliary, others, before.size)
        restored = restore(
            self._restorer(parameters.tile),
            before,
            "the image",
            tile=self._tile(parameters.tile),
            overlap=parameters.overlap,
            progress=lambda done, total: check(),
            auxiliary=auxiliary,
        )
        check()
        _, own_format = image_head(files["image"])
        kind = own_format if own_format in SUFFIXES.values() else "PNG"
        if parameters.format is not None:
            kind = format_named(parameters.format)
        content, more = restored.encode(kind, parameters.quality, "the image")
        notes = {"tiles": str(restored.tiles), "warnings": "; ".join([*warnings, *more])}
        return Answer(
            content,
            MEDIA_TYPES[kind],
            before.size[0] * before.size[1],
            {name: text for name, text in notes.items() if text},
            {self.output: file_tensor(content)},
        )

    def _tile(self, requested: int) -> int:
        if self.restorer.tiling == DISCOURAGED:  # only a request asks for tiles
            return requested
        return requested or (self.tile if self.restorer.fixed_size is None else None) or 0

    def _restorer(self, requested: int) -> Restorer:
        """Return the model with as many tiles in a call as a run has room for."""
        tile, batch = self._tile(requested), self.restorer.batch
        if self.pixels_per_run is None or not tile:
            return self.restorer
        batch = max(min(batch, self.pixels_per_run // tile**2), 1)
        return replace(self.restorer, batch=batch)


def _decode(key: str, data: bytes) -> Array:
    """Return the values of a condition in a request."""
    try:
        return decode_values(data, f"the {key}")
    except NystraError as error:
        raise UnreadableFileError(str(error)) from error


def _largest_tile(restorer: Restorer, requested: int) -> int:
    """Return the side of the tiles: the requested one, or what the memory allows."""
    if restorer.fixed_size is not None:
        return max(restorer.fixed_size)
    requested = max(requested, restorer.size_minimum)
    requested = -(-requested // restorer.size_multiple) * restorer.size_multiple
    side, _ = restorer.choose_tiles((requested, requested), requested**2, 0, None, None)
    return side if isinstance(side, int) else requested
