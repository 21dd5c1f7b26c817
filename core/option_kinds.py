"""The kinds of options: numbers, bytes, texts, words, files, choices, switches and grids."""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .errors import NystraError
from .option import Option

MAX_WHOLE = (1 << 31) - 1
"""What fits into the integers of every library."""

MAX_REAL = 1e9
"""As seconds some thirty years, which every timer takes."""


def parse_whole(text: str) -> int:
    """Return the whole number of a text of ASCII digits, maybe with a sign and spaces around it.

    Raises:
        ValueError: It is something else, also what `int` accepts: other digits, ``1_000``.
    """
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,40}\s*", text):
        raise ValueError(text)
    return int(text)


def parse_real(text: str) -> float:
    """Return the number of a text of ASCII.

    Raises:
        ValueError: It is something else, also what `float` accepts: ``1_000``.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


@dataclass(frozen=True)
class Number(Option):
    """A number, whole or real as its default is.

    Attributes:
        minimum: The smallest value.
        maximum: The largest value.
        most: What no value exceeds where there is no maximum that users need to know: memory,
            threads or a type of a library end there. None: `MAX_WHOLE` or `MAX_REAL`.
        real: Real numbers are accepted although the default is None.
        above: Values have to be above the minimum.
    """

    _placeholder: ClassVar[str] = "N"

    minimum: float
    maximum: float = math.inf
    hard_maximum: int | None = field(default=None, kw_only=True)
    real: bool = field(default=False, kw_only=True)
    above: bool = field(default=False, kw_only=True)

    @property
    def type(self) -> type[int] | type[float]:
        """The type of the values."""
        return float if self.real or isinstance(self.default, float) else int

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        kind = "whole number" if self.type is int else "number"
        if self.above and self.maximum == math.inf:
            return f"a {kind} above {self._bound(self.minimum)}"
        if self.above:
            return f"a {kind} above {self._bound(self.minimum)}, up to {self._bound(self.maximum)}"
        if self.maximum == math.inf:
            return f"a {kind} of {self._bound(self.minimum)} or more"
        return f"a {kind} from {self._bound(self.minimum)} to {self._bound(self.maximum)}"

    @property
    def limits(self) -> str:
        """The range where it has two ends: ``1 to 8``."""
        if math.inf in (-self.minimum, self.maximum):
            return ""
        return f"{self._bound(self.minimum)} to {self._bound(self.maximum)}"

    @property
    def largest(self) -> float:
        """The largest value that is accepted."""
        of_type = MAX_WHOLE if self.type is int else MAX_REAL
        return min(self.maximum, of_type if self.hard_maximum is None else self.hard_maximum)

    def make_error(self, name: str, value: Any) -> NystraError:
        """Return the error for a value, with its upper end if it is above that."""
        if self.maximum == math.inf and isinstance(value, (int, float)) and value > self.largest:
            return NystraError(f"`{name}` is {value}, expected {self._bound(self.largest)} or less")
        return super().make_error(name, value)

    def _bound(self, bound: float) -> str:
        return f"{bound:.0f}" if self.type is int else f"{bound:g}"

    def allows(self, value: float) -> bool:
        """Tell whether a number is in the range."""
        low = self.minimum < value if self.above else self.minimum <= value
        return low and value <= self.largest

    def read(self, name: str, text: str) -> Any:
        """Return the number of a text."""
        try:
            value = parse_whole(text) if self.type is int else parse_real(text)
        except ValueError:
            raise self.make_error(name, text) from None
        return self.accept(name, value)

    def show(self, value: float) -> str:
        """Return a number without needless digits."""
        return str(value) if self.type is int else f"{value:g}"

    def _convert(self, name: str, value: Any) -> Any:
        kind: Any = numbers.Integral if self.type is int else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind) or not self.allows(value):
            raise self.make_error(name, value)
        return self.type(value)


@dataclass(frozen=True)
class Bytes(Number):
    """A number of bytes; a text may say ``4G``, ``500M`` or ``1.5GiB``."""

    _placeholder: ClassVar[str] = "BYTES"

    hard_maximum: int | None = field(default=1 << 50, kw_only=True)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return f"a size of {self.minimum:g} or more bytes, such as 4G or 500M"

    def read(self, name: str, text: str) -> int:
        """Return the number of bytes of a text."""
        match = re.fullmatch(
            r"(\d{1,9}(?:\.\d{1,3})?)([kmgt]?)(?:i?b)?", text.strip().lower(), re.ASCII
        )
        if match is None:
            raise self.make_error(name, text)
        count = int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))
        return int(self.accept(name, count))

    def show(self, value: float) -> str:
        """Return ``64M``."""
        count, prefixes = int(value), ["", "K", "M", "G", "T"]
        while count and count % 1024 == 0 and len(prefixes) > 1:
            count //= 1024
            prefixes.pop(0)
        return f"{count}{prefixes[0]}"


@dataclass(frozen=True)
class Text(Option):
    """Any text."""

    _expected: ClassVar[str] = "a text"

    def _convert(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.make_error(name, value)
        return value


@dataclass(frozen=True)
class Words(Option):
    """Several words, as a tuple; a text has commas between them."""

    _expected: ClassVar[str] = "comma-separated words"
    _placeholder: ClassVar[str] = "LIST"
    is_list: ClassVar[bool] = True

    def read(self, name: str, text: str) -> tuple[str, ...]:
        """Return the words of a text."""
        return self._convert(name, tuple(text.split(",")))

    def show(self, value: tuple[str, ...]) -> str:
        """Return the comma-separated words."""
        return ",".join(value)

    def _convert(self, name: str, value: Any) -> tuple[str, ...]:
        words = isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
        if not words or "" in value:
            raise self.make_error(name, value)
        return tuple(value)


@dataclass(frozen=True)
class Pairs(Option):
    """Values by name; the text of one is ``NAME=VALUE``, and its flag may be repeated."""

    _expected: ClassVar[str] = "NAME=VALUE"
    _placeholder: ClassVar[str] = "NAME=VALUE"
    is_list: ClassVar[bool] = True

    def read(self, name: str, text: str) -> dict[str, Any]:
        """Return the pair of a text."""
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise self.make_error(name, text)
        return {key: value}

    def _convert(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self.make_error(name, value)
        return dict(value)


@dataclass(frozen=True)
class File(Option):
    """The path of a file or folder, as a `Path`."""

    _expected: ClassVar[str] = "a path"
    _placeholder: ClassVar[str] = "FILE"

    def _convert(self, name: str, value: Any) -> Path:
        if not isinstance(value, (str, os.PathLike)):
            raise self.make_error(name, value)
        return Path(value)


@dataclass(frozen=True)
class Folder(File):
    """The path of a folder, as a `Path`."""

    _placeholder: ClassVar[str] = "FOLDER"


@dataclass(frozen=True)
class FileOrWord(Option):
    """The path of a file, or one of several words, as a text.

    Attributes:
        words: The words that are not taken for a path.
    """

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return f"{', '.join(self.words)} or a path"

    @property
    def placeholder(self) -> str:
        """The words, and ``FILE``."""
        return self.metavar or "|".join((*self.words, "FILE"))

    def _convert(self, name: str, value: Any) -> str:
        if not isinstance(value, (str, os.PathLike)):
            raise self.make_error(name, value)
        return os.fspath(value)


@dataclass(frozen=True)
class Choice(Option):
    """One of several words."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        *others, last = self.choices
        return f"{', '.join(others)} or {last}" if others else last

    @property
    def placeholder(self) -> str:
        """The words."""
        return self.metavar or "|".join(self.choices)

    def _convert(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise self.make_error(name, value)
        return value


@dataclass(frozen=True)
class NamedChoice(Choice):
    """One of several words, each with a flag of its own that takes no text.

    Attributes:
        flags: Word -> name of its flag and what it means; a word without one is the default.
    """

    flags: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Switch(Option):
    """On or off; its flag takes no text.

    Off unless its flag is given. One that is on by default has a flag ``--no-<name>``, described by
    ``doc``.
    """

    default: bool = field(default=False, kw_only=True)

    _expected: ClassVar[str] = "true or false"

    @property
    def help(self) -> str:
        """The meaning."""
        return self.doc

    def read(self, name: str, text: str | bool) -> bool:
        """Return the switch of a text, or of a flag without a value."""
        values = {"true": True, "false": False}
        return self._convert(name, values.get(text, text) if isinstance(text, str) else text)

    def show(self, value: bool) -> str:
        """Return ``true`` or ``false``."""
        return str(value).lower()

    def _convert(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.make_error(name, value)
        return value


@dataclass(frozen=True)
class Grid(Option):
    """Rows and columns of something; ``16`` is the most square grid of 16, ``4x4``.

    Attributes:
        things: What the cells hold, as a plural.
        maximum: The largest number of cells.
    """

    _placeholder: ClassVar[str] = "N|RxC"

    things: str
    maximum: int

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return f"rows and columns of 1 to {self.maximum} {self.things} in all, such as 16 or 4x4"

    def read(self, name: str, text: str) -> tuple[int, int]:
        """Return the grid of a text."""
        try:
            sides = tuple(map(parse_whole, text.split("x")))
        except ValueError:
            raise self.make_error(name, text) from None
        if len(sides) == 1:
            if not 1 <= sides[0] <= self.maximum:
                raise self.make_error(name, text)
            sides = squarest_grid(sides[0])
        return self._convert(name, sides)

    def show(self, value: tuple[int, int]) -> str:
        """Return ``4x4``."""
        return "{}x{}".format(*value)

    def _convert(self, name: str, value: Any) -> tuple[int, int]:
        if not (isinstance(value, (list, tuple)) and [type(side) for side in value] == [int, int]):
            raise self.make_error(name, value)
        rows, columns = value
        if min(rows, columns) < 1 or max(rows, columns) > 9999:  # such numbers are not printed
            raise self.make_error(name, value)
        require_count(name, f"{rows}x{columns}", rows * columns, self.things, self.maximum)
        return rows, columns


def require_count(name: str, text: str, count: int, things: str, maximum: int) -> None:
    """Refuse a product of sides that is too large.

    Raises:
        NystraError: The count exceeds ``maximum``.
    """
    if count > maximum:
        raise NystraError(f"`{name}` is {text:.40}, {count} {things}; at most {maximum}")


def squarest_grid(count: int) -> tuple[int, int]:
    """Return rows and columns of the most square grid of ``count`` cells, rows the fewer."""
    rows = max(side for side in range(1, int(count**0.5) + 1) if count % side == 0)
    return rows, count // rows
