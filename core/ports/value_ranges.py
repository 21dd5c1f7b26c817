"""The option that says which values a model takes and returns: ``0..255``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from ..json_records import is_number
from ..option import Option
from .port import Range

_MOST = 1e9
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)"
_RANGE = re.compile(rf"(?:({_NUMBER})\.\.)?({_NUMBER})", re.ASCII)


@dataclass(frozen=True)
class ValueRanges(Option):
    """The range of the input and that of the output, as a pair.

    A text says ``0..255``, or ``255`` with the same meaning; two of them, ``1,255``, if the output
    has another range than the input.
    """

    _expected: ClassVar[str] = (
        "LOW..HIGH such as 0..255 or -1..1, or two for input and output: 0..1,0..255"
    )
    _placeholder: ClassVar[str] = "LOW..HIGH"

    def read(self, name: str, text: str) -> tuple[Range, Range]:
        """Return the ranges of a text."""
        ranges = []
        for part in text.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                raise self.refused(name, text)
            ranges.append((float(match[1] or 0), float(match[2])))
        return self._accepted(name, ranges * 2 if len(ranges) == 1 else ranges)

    def show(self, value: tuple[Range, Range]) -> str:
        """Return ``0..255``."""
        texts = [f"{low:g}..{high:g}" for low, high in value]
        return texts[0] if texts[0] == texts[1] else ",".join(texts)

    def _accepted(self, name: str, value: Any) -> tuple[Range, Range]:
        if isinstance(value, str):
            return self.read(name, value)
        if is_number(value):
            value = [[0, value]] * 2
        pairs = [tuple(pair) for pair in value if isinstance(pair, (list, tuple))]
        if len(pairs) != 2 or not all(map(_is_range, pairs)):
            raise self.refused(name, value)
        return (
            (float(pairs[0][0]), float(pairs[0][1])),
            (float(pairs[1][0]), float(pairs[1][1])),
        )


def _is_range(pair: tuple[Any, ...]) -> bool:
    if len(pair) != 2 or not all(is_number(item) and abs(item) <= _MOST for item in pair):
        return False
    return bool(pair[0] < pair[1])
