"""How one parameter of a mechanism is bounded, read and written, wherever it is given.

The same object checks a value given in Python, a key of a plan and a flag of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...core.errors import NystraError
from ...plugins.operators.schema import OperatorSchema


@dataclass(frozen=True)
class Parameter:
    """One parameter; the subclasses are its kinds.

    Attributes:
        default: The value where none is given.
        doc: What it means, as half a sentence.
        flag: How the command line spells it where not by the field's name.
    """

    default: Any
    doc: str
    flag: str = field(default="", kw_only=True)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        raise NotImplementedError

    def accept(self, name: str, value: Any) -> Any:
        """Return a value of Python or JSON as the field's type.

        Args:
            name: How the user called the parameter: a key or a flag.
            value: What was given.

        Raises:
            NystraError: The type or the range is wrong.
        """
        raise NotImplementedError

    def read(self, name: str, text: str) -> Any:
        """Return the value that a text of the command line says; arguments as for `accept`."""
        return self.accept(name, text)

    def show(self, value: Any) -> str:
        """Return a value as the command line spells it."""
        return str(value)

    def refused(self, name: str, value: Any) -> NystraError:
        """Return the error for a value that is not what was expected."""
        return NystraError(f"{name} {value!r:.40} is not {self.expected}")


@dataclass(frozen=True)
class Number(Parameter):
    """A whole number, or any, as its default is."""

    minimum: float
    maximum: float

    @classmethod
    def of(
        cls, schema: OperatorSchema, attribute: str, doc: str = "", default: float | None = None
    ) -> Number:
        """Return an operator's attribute as a parameter: its range, its default and meaning too.

        Args:
            schema: Of the operator.
            attribute: Name of the attribute.
            doc: What it means, where not what the schema says.
            default: The value where none is given, where not the schema's.
        """
        given = next(limits for limits in schema.attributes if limits.name == attribute)
        usual = given.default if default is None else default
        return cls(usual, doc or given.doc, given.minimum, given.maximum)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        kind = "whole number" if isinstance(self.default, int) else "number"
        return f"a {kind} from {self.limits}"

    @property
    def limits(self) -> str:
        """The range: ``1 to 8``."""
        return f"{self.minimum:g} to {self.maximum:g}"

    def accept(self, name: str, value: Any) -> Any:
        """Return the number."""
        kinds = int if isinstance(self.default, int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not self.allows(value):
            raise self.refused(name, value)
        return type(self.default)(value)

    def allows(self, value: float) -> bool:
        """Tell whether a number is in the range."""
        return self.minimum <= value <= self.maximum

    def read(self, name: str, text: str) -> Any:
        """Return the number that a text says."""
        try:
            value = type(self.default)(text)
        except ValueError:
            raise self.refused(name, text) from None
        return self.accept(name, value)

    def show(self, value: float) -> str:
        """Return a number without needless digits."""
        return f"{value:g}"


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several words."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return " or ".join((", ".join(self.choices[:-1]), self.choices[-1]))

    def accept(self, name: str, value: Any) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.choices:
            raise self.refused(name, value)
        return value


@dataclass(frozen=True)
class Switch(Parameter):
    """On or off; off unless given. Its flag takes no text."""

    default: bool = field(default=False, init=False)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return "true or false"

    def accept(self, name: str, value: Any) -> bool:
        """Return the switch."""
        if not isinstance(value, bool):
            raise self.refused(name, value)
        return value


@dataclass(frozen=True)
class Grid(Parameter):
    """Rows and columns of something; ``16`` is the most square grid of 16, ``4x4``.

    Attributes:
        things: What lies in the grid, as a plural.
        most: How many, at most.
    """

    things: str
    most: int

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return f"rows and columns of 1 to {self.most} {self.things} in all, such as 16 or 4x4"

    def accept(self, name: str, value: Any) -> tuple[int, int]:
        """Return rows and columns."""
        if not (isinstance(value, (list, tuple)) and [type(side) for side in value] == [int, int]):
            raise self.refused(name, value)
        rows, columns = value
        if min(rows, columns) < 1 or max(rows, columns) > 9999:  # which nobody wants spelled out
            raise self.refused(name, value)
        if rows * columns > self.most:
            raise NystraError(
                f"{name} {rows}x{columns} is {rows * columns} {self.things}; at most {self.most}"
            )
        return rows, columns

    def read(self, name: str, text: str) -> tuple[int, int]:
        """Return the grid that a text says."""
        try:
            sides = tuple(int(part) for part in text.split("x"))
        except ValueError:
            raise self.refused(name, text) from None
        if len(sides) == 1:
            if not 1 <= sides[0] <= self.most:
                raise self.refused(name, text)
            sides = most_square(sides[0])
        return self.accept(name, sides)

    def show(self, value: tuple[int, int]) -> str:
        """Return ``4x4``."""
        return "{}x{}".format(*value)


def most_square(count: int) -> tuple[int, int]:
    """Return rows and columns of the most square grid of ``count`` cells, rows the fewer."""
    rows = max(side for side in range(1, int(count**0.5) + 1) if count % side == 0)
    return rows, count // rows


def parameter(kind: Parameter, *, kw_only: bool = False) -> Any:
    """Return the dataclass field of a parameter."""
    return field(default=kind.default, metadata={"parameter": kind}, kw_only=kw_only)
