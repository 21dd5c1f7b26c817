"""From a model that takes NCHW arrays to one that takes a picture's pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..plugins.errors import NystraError
from .memory import automatic_tile
from .session import Session
from .tiling import DEFAULT_OVERLAP, ImageFunction, mirror_to, run_tiled

_GREY_WEIGHTS = (0.299, 0.587, 0.114)
_PROBE_SIZES = (64, 128, 224, 256)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Restorer:
    """A function on NCHW arrays with what has to be known to run it on pictures.

    Attributes:
        function: (1, C, h, w) -> (1, C', h * scale, w * scale).
        scale: Output pixels per input pixel and axis.
        input_channels: C: 1 or 3.
        output_channels: C': 1 or 3.
        range: Lowest and highest value of the input.
        output_range: The same of the output.
        size_multiple: Tiles start at its multiples, in pixels.
        size_minimum: Smaller pictures are mirrored up to it and cropped, in pixels.
        tiling: ``internal`` forbids tiles; anything else allows them.
        fixed_size: The only (height, width) the function takes, or None.
    """

    function: ImageFunction
    scale: int = 1
    input_channels: int = 3
    output_channels: int = 3
    range: tuple[float, float] = (0.0, 1.0)
    output_range: tuple[float, float] = (0.0, 1.0)
    size_multiple: int = 1
    size_minimum: int = 1
    tiling: str = "supported"
    fixed_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse channel counts that no picture has."""
        for name, channels in (("takes", self.input_channels), ("gives", self.output_channels)):
            if channels not in (1, 3):
                raise NystraError(
                    f"the model {name} {channels} channels, expected 1 (grey) or 3 (RGB): run it "
                    "from Python with nystra.runtime.Session"
                )

    def __call__(
        self,
        pixels: Array,
        tile: int = 0,
        overlap: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[npt.NDArray[np.float32], int]:
        """Run the model on a picture's pixels.

        A grey picture goes into a 3-channel model three times and comes out as grey (luma
        weights of BT.601); the channels of a colour picture go one by one through a 1-channel
        model.

        Args:
            pixels: (H, W, C) in 0..1, C 1 or 3.
            tile: Side of the tiles in input pixels; 0 chooses by the available memory.
            overlap: Of the tiles in input pixels; None is 32, less where the tile is small.
            progress: Called with (tiles done, tiles in all).

        Returns:
            (H * scale, W * scale, C') in the model's output range mapped to 0..1, not clipped;
            and the number of tiles that were run.

        Raises:
            NystraError: The sizes contradict each other, or the model fails.
        """
        channels = pixels.shape[2]
        image = np.ascontiguousarray(np.moveaxis(pixels, 2, 0)[None], dtype=np.float32)
        height, width = image.shape[2:]
        least = self.size_minimum if self.fixed_size is None else 1
        image = mirror_to(image, max(height, least), max(width, least))
        side, shared = self._tiles(image.shape[2], image.shape[3], tile, overlap)
        if channels > self.input_channels:
            parts = [image[:, i : i + 1] for i in range(channels)]
        elif channels < self.input_channels:
            parts = [np.repeat(image, self.input_channels, axis=1)]
        else:
            parts = [image]
        count = 0
        results = []
        for index, part in enumerate(parts):

            def step(done: int, total: int, index: int = index) -> None:
                nonlocal count
                count += 1
                if progress is not None:
                    progress(index * total + done, len(parts) * total)

            results.append(self._run(part, side, shared, step))
        output = np.concatenate([r[:, :1] for r in results], 1) if len(parts) > 1 else results[0]
        cropped = output[0, :, : height * self.scale, : width * self.scale]
        picture = np.ascontiguousarray(np.moveaxis(cropped, 0, 2))
        if channels < self.input_channels and picture.shape[2] == 3:
            picture = (picture @ np.array(_GREY_WEIGHTS, np.float32))[:, :, None]
        return picture, count

    def _run(
        self,
        image: Array,
        tile: int | tuple[int, int] | None,
        overlap: int,
        progress: Callable[[int, int], None],
    ) -> npt.NDArray[np.float32]:
        if self.range != (0.0, 1.0):
            low, high = self.range
            image = image * np.float32(high - low) + np.float32(low)
        output = run_tiled(
            self.function,
            image,
            tile,
            overlap,
            self.scale,
            self.size_multiple,
            progress,
            fixed=self.fixed_size is not None,
        )
        if self.output_range == (0.0, 1.0):
            return output
        low, high = self.output_range
        return (output - np.float32(low)) / np.float32(high - low)

    def _tiles(
        self, height: int, width: int, tile: int, overlap: int | None
    ) -> tuple[int | tuple[int, int] | None, int]:
        if tile < 0:
            raise NystraError(f"the tile is {tile} pixels, expected 0 (automatic) or more")
        if self.fixed_size is not None:
            if tile not in (0, *self.fixed_size):
                raise NystraError(
                    f"the model takes exactly {self.fixed_size[0]}x{self.fixed_size[1]} pixels, so "
                    f"tiles of {tile} are not possible: leave -t out"
                )
            return self.fixed_size, _overlap(min(self.fixed_size), 1, overlap)
        if self.tiling == "internal":
            if tile:
                raise NystraError("the model has to see the whole picture: leave -t out")
            return None, 0
        if tile:
            if tile < self.size_minimum:
                raise NystraError(f"the tile is {tile}, the model needs {self.size_minimum} pixels")
            return tile, _overlap(tile, self.size_multiple, overlap)
        wanted = DEFAULT_OVERLAP if overlap is None else overlap
        side = automatic_tile(
            height,
            width,
            self.input_channels,
            self.scale,
            multiple=self.size_multiple,
            overlap=wanted,
            minimum=self.size_minimum,
            output_channels=self.output_channels,
        )
        return side, wanted


def restorer_for(session: Session) -> Restorer:
    """Return a session as something that takes pictures.

    What a file by another program does not say is found by running it once on a small grey
    image: channels (3 first, then 1) and scale; its values are taken to be in 0..1.

    Raises:
        NystraError: The model does not take one image and give one picture.
    """
    facts = session.facts
    if facts.image_input is None or len(session.inputs) != 1:
        names = [f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in session.inputs]
        raise NystraError(
            f"{session.path} does not take one image (1, C, H, W) of floating numbers and nothing "
            f"else: its inputs are {names}. Run it from Python with nystra.runtime.Session."
        )
    fixed = session.inputs[0].fixed_size
    scale, inputs, outputs = facts.scale, facts.input_channels, facts.output_channels
    if scale is None or inputs is None or outputs is None:
        scale, inputs, outputs = _probe(session, fixed)
    return Restorer(
        session,
        scale,
        inputs,
        outputs,
        facts.range,
        facts.output_range,
        facts.size_multiple,
        facts.size_minimum,
        facts.tiling,
        fixed,
    )


def _overlap(tile: int, multiple: int, overlap: int | None) -> int:
    """Return the overlap asked for, or a default that fits the tile."""
    if overlap is not None:
        return overlap
    side = tile // multiple * multiple
    return max(min(DEFAULT_OVERLAP, side // 4, side - multiple), 0)


def _probe(session: Session, fixed: tuple[int, int] | None) -> tuple[int, int, int]:
    known = session.facts.input_channels
    sizes = [fixed] if fixed is not None else [(size, size) for size in _PROBE_SIZES]
    failure: NystraError | None = None
    for height, width in sizes:
        for channels in (3, 1) if known is None else (known,):
            try:
                got = session(np.full((1, channels, height, width), 0.5, np.float32))
            except NystraError as error:
                failure = failure or error
                continue
            return _probed(session, (channels, height, width), got.shape)
    raise NystraError(f"a trial run of {session.path} failed: {failure}")


def _probed(
    session: Session, given: tuple[int, int, int], got: tuple[int, ...]
) -> tuple[int, int, int]:
    channels, height, width = given
    scale = got[2] // height if len(got) == 4 else 0
    if len(got) != 4 or scale < 1 or got[2:] != (height * scale, width * scale):
        raise NystraError(
            f"{session.path} made {got} of an image of {(1, *given)}, expected a picture of the "
            "same size or a whole multiple of it"
        )
    return scale, channels, got[1]
