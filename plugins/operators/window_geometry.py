"""How a map is divided into windows: one record for sites, operators and mechanisms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import NystraError

_MARGINS = ("margin_h", "margin_w")


@dataclass(frozen=True)
class WindowGeometry:
    """The geometry of attention in the windows of a map.

    A window has a side for each axis of the map: (rows, columns) or (frames, rows, columns).

    Attributes:
        heads: Number of heads, h.
        head_dim: Size of a query and a key, d.
        value_dim: Size of a value, e.
        window: Sides of a window, in tokens.
        shift: Cyclic shift before the partition, along each side.
        masked: Tokens that are neighbors only because of the cyclic shift do not attend to each
            other.
        scale: Factor of the scores.
        hidden: They do not at any score; otherwise their scores are lowered by 100, as in Swin.
        margin: Tokens by which the key window extends beyond the window, on each side of each axis;
            () for none. Keys beyond the map are zero, with their position bias and a value of 0.
    """

    heads: int
    head_dim: int
    value_dim: int
    window: tuple[int, ...]
    shift: tuple[int, ...]
    masked: bool = False
    scale: float = 1.0
    margin: tuple[int, ...] = ()
    hidden: bool = False

    def __post_init__(self) -> None:
        if self.overlapping and self.shifted:
            raise NystraError(
                f"windows whose keys extend beyond them, by {self.margin}, cannot be shifted, by "
                f"{self.shift}"
            )

    @classmethod
    def of(cls, attributes: Mapping[str, float]) -> WindowGeometry:
        """Return the geometry of the attributes of a window operator."""
        return cls(
            heads=int(attributes["heads"]),
            head_dim=int(attributes["head_dim"]),
            value_dim=int(attributes["value_dim"]),
            window=(int(attributes["window_h"]), int(attributes["window_w"])),
            shift=(int(attributes.get("shift_h", 0)), int(attributes.get("shift_w", 0))),
            masked=bool(attributes.get("mask", 0)),
            hidden=int(attributes.get("mask", 0)) == 2,
            scale=float(attributes["scale"]),
            margin=tuple(int(attributes[name]) for name in _MARGINS if name in attributes),
        )

    @property
    def channels(self) -> int:
        """Channels of the packed map, h(2d+e)."""
        return self.heads * (2 * self.head_dim + self.value_dim)

    @property
    def tokens(self) -> int:
        """Tokens of a window, N."""
        return math.prod(self.window)

    @property
    def overlapping(self) -> bool:
        """The key window extends beyond the window."""
        return any(self.margin)

    @property
    def key_window(self) -> tuple[int, ...]:
        """Sides of the window of keys."""
        if not self.margin:
            return self.window
        return tuple(side + 2 * more for side, more in zip(self.window, self.margin, strict=True))

    @property
    def keys(self) -> int:
        """Keys per query, Nk."""
        return math.prod(self.key_window)

    @property
    def shifted(self) -> bool:
        """The map is rolled before the partition."""
        return any(self.shift)

    @property
    def exact_mask(self) -> int:
        """The ``mask`` attribute of operators of exact attention."""
        return int(self.masked) * (1 + int(self.hidden))

    def attributes(self) -> dict[str, Any]:
        """Return the geometry under the attribute names of the window operators.

        If the key window extends beyond the window, those of ``NystraWindowOverlap``.

        Raises:
            NystraError: The window does not have two sides, which the operators need.
        """
        if len(self.window) != 2:
            raise NystraError(
                f"a window of {len(self.window)} sides, {self.window}; the window operators "
                "have two, rows and columns"
            )
        sizes = {
            "heads": self.heads,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
            "window_h": self.window[0],
            "window_w": self.window[1],
        }
        if self.overlapping:
            return sizes | dict(zip(_MARGINS, self.margin, strict=True)) | {"scale": self.scale}
        return sizes | {
            "shift_h": self.shift[0],
            "shift_w": self.shift[1],
            "mask": int(self.masked),
            "scale": self.scale,
        }
