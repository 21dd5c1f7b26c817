"""A network on several frames, as a restorer of clips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.pixels import to_range
from ....core.ports.port import FRAMES_AXES, UNIT
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
    """

    length: int
    network: TiledNetwork
    channels: int = 3

    def __call__(
        self, clip: Sequence[Array], tile: int = 0, overlap: int | None = None
    ) -> tuple[list[npt.NDArray[np.float32]], int]:
        """Run the network on ``length`` frames (H, W, C) in 0..1 of one size, as a `Restorer`.

        Returns:
            As many frames (H * scale, W * scale, C'), not clipped, and the number of tiles.

        Raises:
            NystraError: The sizes contradict each other, or the network fails.
        """
        planes = np.concatenate([self._planes(frame) for frame in clip])[None]
        height, width = planes.shape[2:]
        minimum = self.network.size_minimum
        image = mirror_to(planes, max(height, minimum), max(width, minimum))
        size = (image.shape[2], image.shape[3])
        side, shared = self.network.choose_tiles(size, size[0] * size[1], tile, overlap, None)
        tiles = [0]
        output = self.network.run(image, side, shared, lambda done, _: tiles.append(done))
        scale = self.network.scale
        output = output[0, :, : height * scale, : width * scale]
        frames = output.reshape(self.length, -1, *output.shape[1:])
        gray = clip[0].shape[2] == 1
        return [_pixels(frame, gray) for frame in frames], tiles[-1]

    def _planes(self, frame: Array) -> Array:
        channels = frame.shape[2]
        if channels > self.channels:
            raise NystraError(
                f"the model takes gray frames, got {channels} channels: convert them first"
            )
        planes = np.moveaxis(frame, 2, 0).astype(np.float32)
        return np.repeat(planes, self.channels // channels, axis=0)


def clip_restorer_for(session: Session, noise: float | None = None) -> ClipRestorer:
    """Return a session as a restorer of clips.

    The noise is a standard deviation in 8-bit steps, for a model that takes it as a fourth channel.

    Raises:
        NystraError: Its input and output are not equally many frames of gray or color, or the
            noise level is missing or does not apply.
    """
    facts = session.facts
    port, returned = facts.input("frames"), facts.output_image
    if port is None or returned is None or len(facts.inputs) != 1:
        raise NystraError(f"{session.path} does not take the frames of a video as its only input")
    for each, allowed in ((port, (1, 3, _WITH_NOISE)), (returned, (1, 3))):
        single = each.lengths.get("batch", 1) == 1
        if each.axes != FRAMES_AXES or each.channels not in allowed or not single:
            raise NystraError(
                f"{session.path} has the tensor {each.name} ({each.layout}, {dict(each.lengths)}), "
                "expected NTCHW with 1 or 3 channels and a batch of 1: run it from Python with "
                "nystra.runtime.Session"
            )
    takes_noise = port.channels == _WITH_NOISE
    if takes_noise and noise is None:
        raise NystraError(
            f"{session.path} takes the noise level as a fourth channel: give `noise`, such as "
            "`noise` 25"
        )
    if noise is not None and not takes_noise:
        raise NystraError(
            f"`noise` does not apply to {session.path}, which has no input for the noise level"
        )
    length = port.lengths.get("frames", _FREE_LENGTH)
    scale = facts.scale or returned.multiple
    sides = port.sides
    channels, out_channels = port.channels or 3, returned.channels or 3
    if noise is not None:
        channels -= 1

    def run(release: bool) -> Callable[[Array], Array]:
        def function(image: Array) -> Array:
            batch, _, height, width = image.shape
            clip = image.reshape(batch, length, channels, height, width)
            if noise is not None:
                level = np.full(clip[:, :, :1].shape, noise / 255, np.float32)
                clip = np.concatenate([clip, to_range(level, port.range or UNIT)], axis=2)
            output = session.run({port.name: clip}, release=release)[returned.name]
            expected = (batch, length, out_channels, height * scale, width * scale)
            if output.shape != expected:
                raise NystraError(
                    f"{session.path} returned {output.shape} for {clip.shape}, expected {expected}"
                )
            return output.reshape(batch, length * out_channels, *output.shape[3:])

        return function

    network = TiledNetwork(
        run(release=False),
        scale,
        length * channels,
        length * out_channels,
        port.range or UNIT,
        returned.range or UNIT,
        port.multiple,
        facts.size_minimum,
        facts.tiling,
        None if sides is None else (sides["height"], sides["width"]),
        quadratic_bytes=facts.quadratic_bytes,
        meter=memory_meter(session),
        trial=run(release=True),
        tile_psnr=facts.tile_psnr,
    )
    return ClipRestorer(length, network, channels)


def _pixels(planes: Array, gray: bool) -> npt.NDArray[np.float32]:
    pixels = np.ascontiguousarray(np.moveaxis(planes, 0, 2))
    return luma_of(pixels)[:, :, None] if gray and pixels.shape[2] == 3 else pixels
