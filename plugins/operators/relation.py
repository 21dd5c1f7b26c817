"""Relations between the attributes of an operator: written once, for Python and for C++.

The functions of a relation take a record of attributes. Where a node is checked these are integers;
``csrc/write_tables.py`` passes expressions instead and writes the results as C++. So the functions
use only attributes by name, integers, ``+ - * // %``, comparisons and ``&``, on numbers that
are not negative, and messages are f-strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ...core.errors import NystraError


@dataclass(frozen=True)
class Relation:
    """A condition under which attributes, though within their ranges, are refused.

    Attributes:
        is_violated: Record of attributes -> whether they are refused.
        message: Record of attributes -> the message, with the actual and the expected value.
        when: A flag (an attribute of 0 or 1); if it is 0, nothing is refused.
    """

    is_violated: Callable[[Any], Any]
    message: Callable[[Any], str]
    when: str | None = None

    def check(self, owner: str, attributes: Mapping[str, int | float]) -> None:
        """Raise NystraError if the attributes of the operator ``owner`` are refused."""
        if self.when is not None and not attributes[self.when]:
            return
        record = SimpleNamespace(**attributes)
        if self.is_violated(record):
            raise NystraError(f"{owner}: {self.message(record)}")


@dataclass(frozen=True)
class Limit:
    """A number that kernels are built for.

    Attributes:
        name: Its name in C++, after a k.
        value: The number.
        doc: What it limits.
    """

    name: str
    value: int
    doc: str


def ceil_div(number: Any, divisor: Any) -> Any:
    """Return ``number / divisor`` rounded up."""
    return (number + divisor - 1) // divisor
