"""The properties of a loaded network: ports, size limits, tiling, window, licence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..core.ports.port import Port, image_size
from ..core.ports.preprocessing import Preprocessing

_LARGEST_CELL = 64  # pixels, where the size multiple is not larger


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a loaded network.

    Attributes:
        architecture: Its name in the registry, ``swinir``.
        task: A name of the runtime's table of tasks: ``restoration``, ``inpainting``, ...
        inputs: What it takes, in the order of its arguments; the first one is what it is about.
        outputs: What it gives; the first one is the result.
        size_minimum: Smallest side it takes, in input pixels.
        pads: It pads images to its size multiple itself; False: it takes multiples only.
        tiling: ``supported`` when an image may be restored in overlapping tiles, ``discouraged``
            when tiles give another one than the whole, so that a run says how many there were,
            ``internal`` when the network has to see the whole of it.
        license: Of the weights, ``unknown`` when the checkpoint does not say.
        window: Sides of the attention window in tokens, where all sites have the same one.
        preprocessing: What becomes of an image before the network takes it; None: nobody says.
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
        """The only height and width it takes, or None for any."""
        return self.inputs[0].sides

    @property
    def cell(self) -> int:
        """Side that test sizes are made of: a window where there are some, else four multiples.

        Four of large ones would be more than a test needs, and no side is below the smallest.
        Where the network resizes images itself, three quarters of what they become, so that test
        sizes are smaller and larger.
        """
        if self.preprocessing is not None and self.preprocessing.in_graph:
            resize = self.preprocessing.resize
            return 8 if resize is None else max(2, max(resize.sides) * 3 // 4)
        if self.window is None:
            several = min(4 * max(self.size_multiple, 2), _LARGEST_CELL)
            return self.taken(max(self.size_multiple, several, self.size_minimum))
        return self.taken(max(self.size_multiple, *self.window))

    def taken(self, side: int) -> int:
        """Return the smallest side that the network takes and that is no smaller than this."""
        step = 1 if self.pads else self.size_multiple
        return -(-side // step) * step

    def test_size(self, cells: int = 4) -> dict[str, int]:
        """Return a size of so many cells a side, or the only one the network takes."""
        return self.sides or image_size(cells * self.cell, cells * self.cell)

    def fixed(self, shape: Sequence[int]) -> Facts:
        """Return the facts with every axis of the inputs fixed, by a shape of the first one.

        Raises:
            NystraError: The network does not take that shape.
        """
        first = self.inputs[0]
        size = dict(zip(first.axes, shape, strict=True))
        first.shape(size)
        size.pop("channels", None)
        return replace(self, inputs=tuple(port.fixed(size) for port in self.inputs))

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary of plain values."""
        values = asdict(self) | {"scale": self.scale}
        if self.preprocessing is None:
            del values["preprocessing"]
        if self.pads:
            del values["pads"]
        return values
