"""The kinds of training options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nystra.core.option import Option


@dataclass(frozen=True)
class Counts(Option):
    """Several whole numbers above 0, as a tuple."""

    @property
    def expected(self) -> str:
        """The accepted values, as text."""
        return "whole numbers of 1 or more"

    def show(self, value: Any) -> str:
        """Return the numbers with spaces between."""
        return " ".join(map(str, value))

    def _convert(self, name: str, value: Any) -> tuple[int, ...]:
        whole = isinstance(value, (tuple, list)) and all(type(each) is int for each in value)
        if not whole or min(value, default=0) < 1:
            raise self.make_error(name, value)
        return tuple(value)
