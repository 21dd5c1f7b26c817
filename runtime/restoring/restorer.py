"""From a model that takes NCHW arrays to one that takes a picture's pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from ..session import Session
from .fixed_batch import fill_batch
from .mirror import mirror_to
from .tile_memory import automatic_tile, refuse_too_large
from .tile_plan import DEFAULT_OVERLAP
from .tiling import ImageFunction, run_tiled

_PROBE_SIZES = (64, 128, 224, 256)

Array = npt.NDArray[Any]

GREY_WEIGHTS = np.array((0.299, 0.587, 0.114), np.float32)
"""Weights of red, green and blue in the luma of BT.601."""


@dataclass(frozen=True)
class Restorer:
    """A function on NCHW arrays with what has to be known to run it on pictures.

    Attributes:
        function: (B, C, h, w) -> (B, C', h * scale, w * scale), B at most ``batch``; with
            arguments named ``mask_input`` and ``reference_input`` where these are set.
        scale: Output pixels per input pixel and axis.
        input_channels: C: 1 or 3.
        output_channels: C': 1 or 3.
        range: Lowest and highest value of the input.
        output_range: The same of the output.
        size_multiple: Tiles start at its multiples, in pixels.
        size_minimum: Smaller pictures are mirrored up to it and cropped, in pixels.
        tiling: ``internal`` forbids tiles; anything else allows them.
        fixed_size: The only (height, width) the function takes, or None.
        mask_input: Name of the input that marks the hole to fill, or None.
        reference_input: Name of the input that takes another picture in colour, or None.
        quadratic_bytes: How the memory grows with the square of the pixels; 0 if it does not.
        batch: How many tiles are run at once.
    """

    function: Callable[..., Array]
    scale: int = 1
    input_channels: int = 3
    output_channels: int = 3
    range: tuple[float, float] = (0.0, 1.0)
    output_range: tuple[float, float] = (0.0, 1.0)
    size_multiple: int = 1
    size_minimum: int = 1
    tiling: str = "supported"
    fixed_size: tuple[int, int] | None = None
    mask_input: str | None = None
    reference_input: str | None = None
    quadratic_bytes: float = 0.0
    batch: int = 1

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
        *,
        mask: Array | None = None,
        reference: Array | None = None,
    ) -> tuple[npt.NDArray[np.float32], int]:
        """Run the model on a picture's pixels.

        A grey picture goes into a 3-channel model three times and comes out as grey (luma
        weights of BT.601); the channels of a colour picture go one by one through a 1-channel
        model, and its luma alone through one that makes colour out of grey.

        Args:
            pixels: (H, W, C) in 0..1, C 1 or 3.
            tile: Side of the tiles in input pixels; 0 chooses by the available memory.
            overlap: Of the tiles in input pixels; None is 32, less where the tile is small.
            progress: Called with (tiles done, tiles in all).
            mask: (H, W), 1 in the hole and 0 elsewhere; where the model takes one.
            reference: (Hr, Wr, C) in 0..1; where the model takes one.

        Returns:
            (H * scale, W * scale, C') in the model's output range mapped to 0..1, not clipped;
            and the number of tiles that were run.

        Raises:
            NystraError: The sizes contradict each other, a mask or reference is missing or one
                too many, or the model fails.
        """
        if self.input_channels == 1 and self.output_channels == 3 and pixels.shape[2] == 3:
            pixels = (pixels @ GREY_WEIGHTS)[:, :, None]
        channels = pixels.shape[2]
        image = np.ascontiguousarray(np.moveaxis(pixels, 2, 0)[None], dtype=np.float32)
        height, width = image.shape[2:]
        least = self.size_minimum if self.fixed_size is None else 1
        image = mirror_to(image, max(height, least), max(width, least))
        self.check_companions(mask is not None, reference is not None)
        if mask is not None:
            check_mask_size(mask, (height, width))
        others = self._others(image, mask, reference)
        if others and self.fixed_size is not None:
            image = mirror_to(image, *self.fixed_size)
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
                count = index * total + done
                if progress is not None:
                    progress(index * total + done, len(parts) * total)

            results.append(self._run(part, side, shared, step, others))
        output = np.concatenate([r[:, :1] for r in results], 1) if len(parts) > 1 else results[0]
        cropped = output[0, :, : height * self.scale, : width * self.scale]
        picture = np.ascontiguousarray(np.moveaxis(cropped, 0, 2))
        if channels < self.input_channels and picture.shape[2] == 3:
            picture = (picture @ GREY_WEIGHTS)[:, :, None]
        return picture, count

    def check_companions(self, mask: bool, reference: bool) -> None:
        """Refuse a mask or a reference that the model does not take, and ask for one it needs.

        Args:
            mask: One is given.
            reference: One is given.

        Raises:
            NystraError: One is missing, or one too many.
        """
        for what, given, taken, purpose, example in (
            ("mask", mask, self.mask_input, "fills holes", "MASK.png (white = fill)"),
            ("reference", reference, self.reference_input, "copies", "PICTURE.png"),
        ):
            if given and taken is None:
                raise NystraError(f"the model takes no {what}: leave --{what} ({what}=) out")
            if taken is not None and not given:
                raise NystraError(
                    f"the model {purpose} and needs a {what}: give --{what} {example}, from "
                    f"Python {what}="
                )

    def _others(
        self, image: Array, mask: Array | None, reference: Array | None
    ) -> dict[str, Array]:
        """Return the inputs besides the image, by name; with them the picture is run whole."""
        others: dict[str, Array] = {}
        size = self.fixed_size or image.shape[2:]
        if self.mask_input or self.reference_input:
            sizes = [image.shape[2:]] + ([] if reference is None else [reference.shape[:2]])
            for height, width in sizes if self.fixed_size is not None else ():
                if height > size[0] or width > size[1]:
                    raise NystraError(
                        f"the model takes exactly {size[0]}x{size[1]} pixels and has to see the "
                        f"whole of a picture, and one is {height}x{width}: export it without "
                        "--static"
                    )
        if self.mask_input is not None and mask is not None:
            plane = np.asarray(mask, dtype=np.float32)[None, None]
            others[self.mask_input] = mirror_to(plane, size[0], size[1])
        if self.reference_input is not None and reference is not None:
            colour = np.repeat(reference, 3, axis=2) if reference.shape[2] == 1 else reference
            planes = np.moveaxis(colour, 2, 0)[None].astype(np.float32)
            if self.fixed_size is not None:
                planes = mirror_to(planes, size[0], size[1])
            others[self.reference_input] = np.ascontiguousarray(planes)
        return others

    def _run(
        self,
        image: Array,
        tile: int | tuple[int, int] | None,
        overlap: int,
        progress: Callable[[int, int], None],
        others: dict[str, Array],
    ) -> npt.NDArray[np.float32]:
        if self.range != (0.0, 1.0):
            low, high = self.range
            image = image * np.float32(high - low) + np.float32(low)
        function: ImageFunction = partial(self.function, **others) if others else self.function
        output = run_tiled(
            function,
            image,
            tile,
            overlap,
            self.scale,
            self.size_multiple,
            progress,
            fixed=self.fixed_size is not None,
            batch=self.batch,
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
        if self.tiling == "internal" or self.mask_input or self.reference_input:
            if tile:
                raise NystraError("the model has to see the whole picture: leave -t out")
            refuse_too_large(height, width, self.quadratic_bytes)
            return None, 0
        if tile:
            if tile < self.size_minimum:
                raise NystraError(f"the tile is {tile}, the model needs {self.size_minimum} pixels")
            return tile, _overlap(tile, self.size_multiple, overlap)
        wanted = DEFAULT_OVERLAP if overlap is None else overlap
        if self.quadratic_bytes and overlap is None:
            wanted = 0  # the tile comes first: it may be smaller than the default overlap
        side = automatic_tile(
            height,
            width,
            self.input_channels,
            self.scale,
            multiple=self.size_multiple,
            overlap=wanted,
            minimum=self.size_minimum,
            output_channels=self.output_channels,
            quadratic_bytes=self.quadratic_bytes,
        )
        if self.quadratic_bytes and side is not None:
            wanted = _overlap(side, self.size_multiple, overlap)
        return side, wanted


def check_mask_size(mask: Array, size: tuple[int, int], name: str = "the mask") -> None:
    """Raise NystraError where a mask (H, W) is not of its picture's height and width."""
    if mask.shape != size:
        raise NystraError(
            f"{name} is {'x'.join(str(side) for side in mask.shape[1::-1] + mask.shape[2:])} "
            f"pixels, its picture {size[1]}x{size[0]}: expected the same size"
        )


def restorer_for(session: Session) -> Restorer:
    """Return a session as something that takes pictures.

    What a file by another program does not say is found by running it once on a small grey
    image: channels (3 first, then 1) and scale; its values are taken to be in 0..1.

    Raises:
        NystraError: The model does not take one image, with a mask or a reference where
            ``nystra.io`` names one, and give one picture.
    """
    facts = session.facts
    image, picture = facts.image, facts.picture
    mask, reference = facts.input("mask"), facts.input("reference")
    taken = [port for port in (image, mask, reference) if port is not None]
    if image is None or picture is None or len(taken) != len(facts.inputs):
        described = [f"{one.name} {one.shape} {one.dtype}" for one in session.inputs]
        raise NystraError(
            f"{session.path} does not take one image (1, C, H, W) of floating numbers and nothing "
            f"else: its inputs are {described}. Run it from Python with nystra.runtime.Session."
        )
    fixed = None if image.sides is None else (image.sides["height"], image.sides["width"])
    batch = image.lengths.get("batch", 1)
    function = session if batch == 1 else fill_batch(session, batch)
    scale, inputs, outputs = facts.scale, image.channels, picture.channels
    if scale is None or inputs is None or outputs is None:
        scale, inputs, outputs = _probe(session, function, inputs, fixed)
    return Restorer(
        function,
        scale,
        inputs,
        outputs,
        image.range or (0.0, 1.0),
        picture.range or (0.0, 1.0),
        image.multiple,
        facts.size_minimum,
        facts.tiling,
        fixed,
        None if mask is None else mask.name,
        None if reference is None else reference.name,
        facts.quadratic_bytes,
        batch,
    )


def _overlap(tile: int, multiple: int, overlap: int | None) -> int:
    """Return the overlap asked for, or a default that fits the tile."""
    if overlap is not None:
        return overlap
    side = tile // multiple * multiple
    return max(min(DEFAULT_OVERLAP, side // 4, side - multiple), 0)


def _probe(
    session: Session,
    function: Callable[..., Array],
    known: int | None,
    fixed: tuple[int, int] | None,
) -> tuple[int, int, int]:
    sizes = [fixed] if fixed is not None else [(size, size) for size in _PROBE_SIZES]
    failure: NystraError | None = None
    for height, width in sizes:
        for channels in (3, 1) if known is None else (known,):
            try:
                got = function(np.full((1, channels, height, width), 0.5, np.float32))
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
