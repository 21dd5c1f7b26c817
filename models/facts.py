"""The properties of a loaded network: ports, size limits, tiling, window, license."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..core.ports.port import SIDES, Port, image_size
from ..core.ports.preprocessing import Preprocessing

_LARGEST_CELL = 64  # pixels, where the size multiple is not larger


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The properties of a loaded network.

    Attributes:
        architecture: Its name in the registry, ``swinir``.
        task: A name of the runtime's table of tasks: ``restoration``, ``inpainting``, ...
        inputs: Its inputs, in the order of its arguments; the first is the main one.
        outputs: Its outputs; the first one is the result.
        size_minimum: Smallest side, in input pixels.
        pads: It pads images to its size multiple itself; False: it needs multiples.
        tiling: ``supported`` if an image may be restored in overlapping tiles, ``discouraged`` if
            tiles change the result (a run then warns), ``internal`` if the network needs the whole
            image.
        license: License of the weights, ``unknown`` if the checkpoint does not state it.
        window: Sides of the attention window in tokens, if all sites have the same.
        preprocessing: How an image becomes the input; None: unknown.
    """

    architecture: str
    task: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    size_minimum: int = 1
    pads: bool = True
    tiling: str
    license: str
    window: tuple[int, ...] | None = None
    preprocessing: Preprocessing | None = None

    @property
    def scale(self) -> int:
        """Output side over input side."""
        return self.outputs[0].multiple

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest value of the first input."""
        return self.inputs[0].range or (0.0, 1.0)

    @property
    def input_channels(self) -> int | None:
        """Channels of the first input."""
        return self.inputs[0].channels

    @property
    def output_channels(self) -> int | None:
        """Channels (or classes) of the first output."""
        return self.outputs[0].channels

    @property
    def size_multiple(self) -> int:
        """Multiple the network pads to by itself, in input pixels."""
        return self.inputs[0].multiple

    @property
    def sides(self) -> dict[str, int] | None:
        """The fixed height and width, or None for any."""
        return self.inputs[0].sides

    @property
    def cell(self) -> int:
        """The unit of test sizes: a window if it has one, otherwise four multiples.

        It is less for large multiples, and never below the smallest side. If the network resizes
        images itself, it is three quarters of the resized side, so that test sizes are both
        smaller and larger.
        """
        if self.preprocessing is not None and self.preprocessing.in_graph:
            resize = self.preprocessing.resize
            return 8 if resize is None else max(2, max(resize.sides) * 3 // 4)
        if self.window is None:
            several = min(4 * max(self.size_multiple, 2), _LARGEST_CELL)
            return self.round_up(max(self.size_multiple, several, self.size_minimum))
        return self.round_up(max(self.size_multiple, *self.window))

    def round_up(self, side: int) -> int:
        """Return the smallest valid side that is not smaller than this."""
        step = 1 if self.pads else self.size_multiple
        return -(-side // step) * step

    def size(self, height: int, width: int) -> dict[str, int]:
        """Return the smallest valid sides that are not smaller than these; fixed ones as they are.

        Returns:
            Lengths by the name of the axis.
        """
        fixed = {axis: n for axis, n in self.inputs[0].lengths.items() if axis in SIDES}
        return image_size(self.round_up(height), self.round_up(width)) | fixed

    def test_size(self) -> dict[str, int]:
        """Return a size of four cells per side, or the fixed size of the network."""
        return self.size(4 * self.cell, 4 * self.cell)

    def fix_lengths(self, shape: Sequence[int]) -> Facts:
        """Return the facts with every axis of the inputs fixed by a shape of the first one.

        Raises:
            NystraError: The network does not support that shape.
        """
        first = self.inputs[0]
        size = dict(zip(first.axes, shape, strict=True))
        first.shape(size)
        size.pop("channels", None)
        return replace(self, inputs=tuple(port.fix_lengths(size) for port in self.inputs))

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary of plain values."""
        values = asdict(self) | {"scale": self.scale}
        if self.preprocessing is None:
            del values["preprocessing"]
        if self.pads:
            del values["pads"]
        return values
