"""A network on several frames, as a restorer of clips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.port import FRAMES_AXES, Port
from ...images.image_data import luma_of
from ...session import Session
from ...tiling.tile_plan import mirror_to
from ...tiling.tiled_network import TiledNetwork
from ..restoration.restorer import memory_meter

_FREE_LENGTH = 10
"""Frames per run of a network that takes any number."""


_WITH_NOISE = 4
"""Channels of a frame whose last one is the noise level."""


@dataclass(frozen=True)
class ClipRestorer:
    """A network on frames.

    Attributes:
        length: Frames that it takes at once.
        network: The same as a network on images with the channels of all frames, so that a clip is
            cut into tiles like an image.
        channels: Channels of a frame: 1 or 3.
        noise: Value of a further channel of each frame, 0..1; None: there is none.
    """

    length: int
    network: TiledNetwork
    channels: int = 3
    noise: float | None = None

    def __call__(
        self, clip: Sequence[Array], tile: int = 0, overlap: int | None = None
    ) -> tuple[list[npt.NDArray[np.float32]], int]:
        """Run the network on a clip.

        Args:
            clip: ``length`` frames (H, W, C) in 0..1, of one size.
            tile: Side of the tiles in input pixels; 0 chooses by the available memory.
            overlap: Overlap of the tiles in input pixels.

        Returns:
            As many frames (H * scale, W * scale, C'), not clipped, and the number of tiles.

        Raises:
            NystraError: The sizes contradict each other, or the network fails.
        """
        planes = np.concatenate([self._planes(frame) for frame in clip])[None]
        height, width = planes.shape[2:]
        least = self.network.size_minimum
        image = mirror_to(planes, max(height, least), max(width, least))
        size = (image.shape[2], image.shape[3])
        side, shared = self.network.choose_tiles(size, size[0] * size[1], tile, overlap, None)
        count = 0

        def step(_: int, total: int) -> None:
            nonlocal count
            count = total

        output = self.network.run(image, side, shared, step)
        scale = self.network.scale
        output = output[0, :, : height * scale, : width * scale]
        frames = output.reshape(self.length, -1, *output.shape[1:])
        gray = clip[0].shape[2] == 1
        return [_pixels(frame, gray) for frame in frames], count

    def _planes(self, frame: Array) -> Array:
        channels = frame.shape[2]
        if channels > self.channels:
            raise NystraError(
                f"the model takes gray frames, got {channels} channels: convert them first"
            )
        planes = np.moveaxis(frame, 2, 0).astype(np.float32)
        planes = np.repeat(planes, self.channels // channels, axis=0)
        if self.noise is None:
            return planes
        return np.concatenate([planes, np.full_like(planes[:1], self.noise)])


def clip_restorer_for(session: Session, noise: float | None = None) -> ClipRestorer:
    """Return a session as a restorer of clips.

    Args:
        session: The model.
        noise: Standard deviation of the noise in 8-bit steps, for a model that takes it as a fourth
            channel.

    Raises:
        NystraError: Its input and output are not equally many frames of gray or color, or the
            noise level is missing or does not apply.
    """
    facts = session.facts
    port, returned = facts.input("frames"), facts.output_image
    if port is None or returned is None or len(facts.inputs) != 1:
        raise NystraError(f"{session.path} does not take the frames of a video as its only input")
    takes_noise = port.channels == _WITH_NOISE
    if takes_noise != (noise is not None):
        raise NystraError(
            f"{session.path} takes the noise level as a fourth channel: give `noise`, such as "
            "`noise` 25"
            if takes_noise
            else f"`noise` does not apply to {session.path}, which has no input for the noise level"
        )
    _check_port(session, port, (1, 3, _WITH_NOISE))
    _check_port(session, returned, (1, 3))
    length = port.lengths.get("frames", _FREE_LENGTH)
    if returned.lengths.get("frames", length) != length:
        raise NystraError(
            f"{session.path} returns {returned.lengths['frames']} frames for {length}, expected "
            "the same number"
        )
    scale = facts.scale or returned.multiple
    sides = port.sides
    channels, out_channels = port.channels or 3, returned.channels or 3

    def run(release: bool) -> Callable[[Array], Array]:
        def function(image: Array) -> Array:
            batch, _, height, width = image.shape
            clip = image.reshape(batch, length, channels, height, width)
            output = session.run({port.name: clip}, release=release)[returned.name]
            _check_output(session, output, (batch, length, out_channels), scale, clip.shape)
            return output.reshape(batch, length * out_channels, *output.shape[3:])

        return function

    network = TiledNetwork(
        run(release=False),
        scale,
        length * channels,
        length * out_channels,
        port.range or (0.0, 1.0),
        returned.range or (0.0, 1.0),
        port.multiple,
        facts.size_minimum,
        facts.tiling,
        None if sides is None else (sides["height"], sides["width"]),
        quadratic_bytes=facts.quadratic_bytes,
        meter=memory_meter(session),
        trial=run(release=True),
        tile_psnr=facts.tile_psnr,
    )
    if noise is None:
        return ClipRestorer(length, network, channels)
    return ClipRestorer(length, network, channels - 1, noise / 255)


def _check_port(session: Session, port: Port, allowed: tuple[int, ...]) -> None:
    single = port.lengths.get("batch", 1) == 1
    if port.axes != FRAMES_AXES or port.channels not in allowed or not single:
        raise NystraError(
            f"{session.path} has the tensor {port.name} ({port.layout}, {dict(port.lengths)}), "
            "expected NTCHW with 1 or 3 channels and a batch of 1: run it from Python with "
            "nystra.runtime.Session"
        )


def _check_output(
    session: Session,
    output: Array,
    expected: tuple[int, int, int],
    scale: int,
    input_shape: tuple[int, ...],
) -> None:
    whole = (*expected, input_shape[3] * scale, input_shape[4] * scale)
    if output.shape != whole:
        raise NystraError(
            f"{session.path} returned {output.shape} for {input_shape}, expected {whole}"
        )


def _pixels(planes: Array, gray: bool) -> npt.NDArray[np.float32]:
    pixels = np.ascontiguousarray(np.moveaxis(planes, 0, 2))
    return luma_of(pixels)[:, :, None] if gray and pixels.shape[2] == 3 else pixels
