"""The flat record of what a network promises to those who run it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..plugins.ports.port import IMAGE_AXES, Port


@dataclass(frozen=True)
class ExtraInput:
    """An input of a network besides the picture.

    Attributes:
        name: of the input in the model file, and of the network's argument.
        role: ``mask`` (1 = to be filled), or ``reference`` (another picture).
        channels: C of (B, C, H, W).
        same_size: its height and width are those of the picture.
    """

    name: str
    role: str
    channels: int
    same_size: bool = True


@dataclass(frozen=True)
class Facts:
    """What is known of a loaded network.

    Attributes:
        architecture: its name in the registry, ``swinir``.
        task: ``restoration`` (one picture in, one picture out), ``inpainting`` (picture and mask
            in), ``colorization`` (grey picture and reference in).
        scale: output side over input side.
        input_channels: channels of the input picture.
        output_channels: channels of the output picture.
        range: lowest and highest value of the pictures the network takes and gives.
        window: attention window, rows and columns, in tokens; None where there is none.
        size_multiple: multiple the network pads to by itself, in input pixels.
        size_minimum: smallest side the network takes, in input pixels.
        fixed_size: the only (height, width) it takes, or None for any.
        tiling: ``supported`` when a picture may be restored in overlapping tiles, ``internal``
            when the network has to see the whole of it.
        license: of the weights, ``unknown`` when the checkpoint does not say.
        extra_inputs: what it takes besides the picture, in the order of its arguments.
    """

    architecture: str
    task: str
    scale: int
    input_channels: int
    output_channels: int
    range: tuple[float, float]
    window: tuple[int, int] | None
    size_multiple: int
    size_minimum: int
    tiling: str
    license: str
    fixed_size: tuple[int, int] | None = None
    extra_inputs: tuple[ExtraInput, ...] = ()

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What the network takes, in the order of its arguments."""
        image = self._port("input", "image", self.input_channels, self.size_multiple)
        others = (
            self._port(one.name, one.role, one.channels, self.size_multiple, one.same_size)
            for one in self.extra_inputs
        )
        return (image, *others)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the network gives."""
        return (self._port("output", "picture", self.output_channels, self.scale),)

    def _port(
        self, name: str, role: str, channels: int, multiple: int, same_size: bool = True
    ) -> Port:
        lengths = {"channels": channels}
        return Port(name, role, IMAGE_AXES, lengths, self.range, multiple, own_size=not same_size)

    @property
    def cell(self) -> tuple[int, int]:
        """Rows and columns that test sizes are made of: the window, or 4 multiples without one."""
        side = 4 * max(self.size_multiple, 2)
        return self.window or (side, side)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary of plain values."""
        return asdict(self)
