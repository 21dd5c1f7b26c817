"""The option that is the shapes of inputs, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..option import Option
from ..option_kinds import parse_whole
from .port import join_sides

Shape = tuple[int, ...]


@dataclass(frozen=True)
class InputShapes(Option):
    """Shapes by the name of an input; in text ``input:1x3x64x64,other:1x1``."""

    _expected: ClassVar[str] = "shapes such as input:1x3x64x64,other:1x1"
    _placeholder: ClassVar[str] = "input:1x3x64x64,..."

    def read(self, name: str, text: str) -> dict[str, Shape]:
        """Return the shapes in a text."""
        shapes = {}
        for part in text.split(","):
            tensor, _, sizes = part.rpartition(":")
            try:
                shapes[tensor] = tuple(map(parse_whole, sizes.split("x")))
            except ValueError:
                raise self.make_error(name, text) from None
        if "" in shapes or any(min(shape) < 1 for shape in shapes.values()):
            raise self.make_error(name, text)
        return shapes

    def show(self, value: Mapping[str, Shape]) -> str:
        """Return shapes as text, in the form of trtexec."""
        return ",".join(f"{name}:{join_sides(shape)}" for name, shape in value.items())

    def _convert(self, name: str, value: Any) -> dict[str, Shape]:
        if isinstance(value, str):
            return self.read(name, value)
        if not isinstance(value, Mapping) or not value:
            raise self.make_error(name, value)
        return self.read(name, self.show(value))
