"""The input shapes an engine is built for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import NystraError
from ...core.option_kinds import Switch
from ...core.ports.port import SIDES, Port
from ..options import TILE

DEFAULT_TILE = 256
"""Side of the one picture an engine is built for where nothing else is asked, in pixels."""

ENGINE_TILE = replace(
    TILE,
    default=None,
    minimum=1,
    doc="side of the one picture, where no shapes are given",
    usual=str(DEFAULT_TILE),
)
REBUILD = Switch("even if the cache has the engine")

Shape = tuple[int, ...]
Profile = dict[str, tuple[Shape, Shape, Shape]]
"""Input name -> smallest, best and largest shape; inputs of a fixed shape are left out."""


@dataclass(frozen=True)
class ShapeFlags:
    """``--minShapes``, ``--optShapes`` and ``--maxShapes``, as trtexec has them, or None."""

    minimum: str | None = None
    best: str | None = None
    maximum: str | None = None

    @property
    def given(self) -> bool:
        """Whether one of them is given."""
        return any(text is not None for text in (self.minimum, self.best, self.maximum))


def parse_shapes(text: str) -> dict[str, Shape]:
    """Read ``input:1x3x64x64,other:1x1``.

    Raises:
        NystraError: It is not of that form.
    """
    shapes = {}
    for part in text.split(","):
        name, _, sizes = part.rpartition(":")
        try:
            shape = tuple(int(size) for size in sizes.split("x"))
        except ValueError:
            shape = ()
        if not name or not shape or min(shape) < 1:
            raise NystraError(f"the shapes {text!r} are not of the form input:1x3x64x64,...")
        shapes[name] = shape
    return shapes


def make_profile(inputs: Sequence[Port], flags: ShapeFlags, tile: int | None = None) -> Profile:
    """Return the profile of a model.

    Args:
        inputs: The model's.
        flags: The shapes asked for; what is left out of three is taken from the best or the
            largest one given.
        tile: Side of the picture where no shapes are asked for: one fixed shape, of batch 1.

    Raises:
        NystraError: A shape has an unknown name, another rank or another fixed size, the three
            are not in order, or an input has open sizes and no shape is asked for.
    """
    dynamic = {port.name: port for port in inputs if port.free_axes()}
    if not flags.given:
        side = DEFAULT_TILE if tile is None else tile
        fixed = {name: _tile_shape(port, side) for name, port in dynamic.items()}
        return {name: (shape, shape, shape) for name, shape in fixed.items()}
    if tile is not None:
        raise NystraError("`tile` and `minShapes`, `optShapes`, `maxShapes`: give one or the other")
    parsed = [
        None if text is None else parse_shapes(text)
        for text in (flags.minimum, flags.best, flags.maximum)
    ]
    least, best, largest = parsed
    best = best or largest or least or {}
    least, largest = least or best, largest or best
    wrong = sorted((set(least) | set(best) | set(largest)) - {port.name for port in inputs})
    if wrong:
        names = ", ".join(port.name for port in inputs)
        raise NystraError(f"the model has no input {', '.join(wrong)}; its inputs are {names}")
    return {name: _row(port, least, best, largest) for name, port in dynamic.items()}


def profile_text(profile: Mapping[str, tuple[Shape, Shape, Shape]], index: int) -> str:
    """Return the shapes of one index (0 smallest, 1 best, 2 largest) as trtexec takes them."""
    return ",".join(
        f"{name}:{'x'.join(str(size) for size in row[index])}" for name, row in profile.items()
    )


def _tile_shape(port: Port, side: int) -> Shape:
    if not set(SIDES) <= set(port.axes):
        raise NystraError(f"{_open(port)}: say which with `optShapes`")
    return port.shape(dict.fromkeys(SIDES, side) | dict(port.lengths))


def _row(
    port: Port,
    least: Mapping[str, Shape],
    best: Mapping[str, Shape],
    largest: Mapping[str, Shape],
) -> tuple[Shape, Shape, Shape]:
    if port.name not in least or port.name not in best or port.name not in largest:
        raise NystraError(f"{_open(port)}: give its shapes")
    row = (least[port.name], best[port.name], largest[port.name])
    for shape in row:
        fits = len(shape) == len(port.axes) and all(
            port.lengths.get(axis, got) == got for axis, got in zip(port.axes, shape, strict=False)
        )
        if not fits:
            raise NystraError(
                f"the shape {shape} does not fit the input {port.name!r}, {_shape_text(port)}"
            )
    if not all(a <= b <= c for a, b, c in zip(*row, strict=True)):
        raise NystraError(
            f"the shapes of {port.name!r} are not in order: smallest {row[0]}, best {row[1]}, "
            f"largest {row[2]}"
        )
    return row


def _open(port: Port) -> str:
    return f"the input {port.name!r} has the open shape {_shape_text(port)}"


def _shape_text(port: Port) -> str:
    return f"({', '.join(str(port.lengths.get(axis, axis)) for axis in port.axes)})"
