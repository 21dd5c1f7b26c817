"""How a map is cut into windows: one record for sites, operators and mechanisms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import NystraError


@dataclass(frozen=True)
class WindowGeometry:
    """How attention in windows looks at its map.

    A window has as many sides as the map has axes: rows and columns, or frames before them.

    Attributes:
        heads: Number of heads, h.
        head_dim: Size of a query and a key, d.
        value_dim: Size of a value, e.
        window: Sides of a window, in tokens.
        shift: Cyclic shift before the partition, along each side.
        masked: Tokens that are neighbours only through the cyclic shift do not see each other.
        scale: Factor of the scores.
    """

    heads: int
    head_dim: int
    value_dim: int
    window: tuple[int, ...]
    shift: tuple[int, ...]
    masked: bool = False
    scale: float = 1.0

    @classmethod
    def of(cls, attributes: Mapping[str, float]) -> WindowGeometry:
        """Return the geometry that the attributes of a window operator say."""
        return cls(
            heads=int(attributes["heads"]),
            head_dim=int(attributes["head_dim"]),
            value_dim=int(attributes["value_dim"]),
            window=(int(attributes["window_h"]), int(attributes["window_w"])),
            shift=(int(attributes["shift_h"]), int(attributes["shift_w"])),
            masked=bool(attributes["mask"]),
            scale=float(attributes["scale"]),
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
    def shifted(self) -> bool:
        """The map is rolled before it is cut."""
        return any(self.shift)

    def attributes(self) -> dict[str, Any]:
        """Return the geometry under the attribute names of the window operators.

        Raises:
            NystraError: The window does not have two sides, which the operators need.
        """
        if len(self.window) != 2:
            raise NystraError(
                f"a window of {len(self.window)} sides, {self.window}; the window operators "
                "have two, rows and columns"
            )
        return {
            "heads": self.heads,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
            "window_h": self.window[0],
            "window_w": self.window[1],
            "shift_h": self.shift[0],
            "shift_w": self.shift[1],
            "mask": int(self.masked),
            "scale": self.scale,
        }
