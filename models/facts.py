"""The flat record of what a network promises to those who run it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What is known of a loaded network.

    Attributes:
        architecture: its name in the registry, ``swinir``.
        task: ``restoration`` (one picture in, one picture out).
        scale: output side over input side.
        input_channels: channels of the input picture.
        output_channels: channels of the output picture.
        range: lowest and highest value of the pictures the network takes and gives.
        window: attention window, rows and columns, in tokens.
        size_multiple: multiple the network pads to by itself, in input pixels.
        size_minimum: smallest side the network takes, in input pixels.
        fixed_size: the only (height, width) it takes, or None for any.
        tiling: ``supported`` when a picture may be restored in overlapping tiles.
        precision: the precision that is known to be safe.
        license: of the weights, ``unknown`` when the checkpoint does not say.
    """

    architecture: str
    task: str
    scale: int
    input_channels: int
    output_channels: int
    range: tuple[float, float]
    window: tuple[int, int]
    size_multiple: int
    size_minimum: int
    tiling: str
    precision: str
    license: str
    fixed_size: tuple[int, int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a dictionary of plain values."""
        return asdict(self)
