"""An option, declared once: its default, range, unit and meaning.

A dataclass of options is a record: a subclass of `Options` whose fields are made by `option`. The
flags of the command line, the parameters of a query or a server, the keys of a plan and the rows of
a reference page are made from the record; all of them read values with the same objects, so that no
range is written twice.

Messages name an option in backticks, by its name in Python. Each interface replaces such names by
its own spelling, with `spell_names`. The kinds of options are in ``option_kinds.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from .errors import NystraError

_NAMED = re.compile(r"`([A-Za-z_]\w*)`")


@dataclass(frozen=True)
class Option:
    """One option; the subclasses are its kinds, which say what `expected` and `placeholder` return.

    Attributes:
        default: The value if none is given; None also means no value.
        doc: What it means, as half a sentence.
        unit: Unit of the numbers, as a plural; "" if ``doc`` states it.
        default_text: Description of the default, if its value does not explain it.
        flag: Its flag on the command line, if not derived from its name.
        short: One-letter form of the flag.
        alias: A second spelling of the flag.
        metavar: Placeholder of the value in ``--help``, if not that of the kind.
        required: The command line requires it.
    """

    _expected: ClassVar[str] = ""
    _placeholder: ClassVar[str] = "X"
    is_list: ClassVar[bool] = False  # a flag that is repeated adds to the list

    default: Any
    doc: str
    unit: str = field(default="", kw_only=True)
    default_text: str = field(default="", kw_only=True)
    flag: str = field(default="", kw_only=True)
    short: str = field(default="", kw_only=True)
    alias: str = field(default="", kw_only=True)
    metavar: str = field(default="", kw_only=True)
    required: bool = field(default=False, kw_only=True)

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return self._expected

    @property
    def limits(self) -> str:
        """The range as ``--help`` shows it, or ""."""
        return ""

    @property
    def placeholder(self) -> str:
        """The placeholder of a value in ``--help``."""
        return self.metavar or self._placeholder

    @property
    def help(self) -> str:
        """Meaning, unit, range and default."""
        words = f"{self.doc}, in {self.unit}" if self.unit else self.doc
        if self.limits:
            words += f", {self.limits}"
        default = self.default_text
        if not default and self.default not in (None, ""):
            default = self.show(self.default)
        return f"{words} (default: {default})" if default else words

    def accept(self, name: str, value: Any) -> Any:
        """Return a value of Python or JSON as the type of the field.

        Args:
            name: Name of the option.
            value: The given value; None is accepted if it is the default.

        Raises:
            NystraError: The type or the range is wrong.
        """
        return None if value is None and self.default is None else self._convert(name, value)

    def read(self, name: str, text: str) -> Any:
        """Return the value of a text; arguments and errors as for `accept`."""
        return self.accept(name, text)

    def take(self, name: str, value: Any) -> Any:
        """Return the value of a text, or of a value: requests contain both."""
        return self.read(name, value) if isinstance(value, str) else self.accept(name, value)

    def show(self, value: Any) -> str:
        """Return a value as a text that `read` accepts."""
        return str(value)

    def make_error(self, name: str, value: Any) -> NystraError:
        """Return the error for a value that is not what was expected."""
        return NystraError(f"`{name}` is {value!r:.40}, expected {self.expected}")

    def _convert(self, name: str, value: Any) -> Any:
        raise NotImplementedError


def option(kind: Option, *, kw_only: bool = False, **changes: Any) -> Any:
    """Return the dataclass field of an option.

    Args:
        kind: The option.
        kw_only: The field is given by keyword alone.
        **changes: Attributes that differ here, such as another default.
    """
    kind = replace(kind, **changes) if changes else kind
    return field(default=kind.default, metadata={"option": kind}, kw_only=kw_only)


class Options:
    """The base of dataclasses whose fields are options, made by `option`.

    Attributes:
        heading: Heading of its flags in ``--help``; "" for none.
    """

    heading: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, kind in self.list_options().items():
            object.__setattr__(self, name, kind.accept(name, getattr(self, name)))

    @classmethod
    def list_options(cls) -> dict[str, Option]:
        """Return the options that the record declares, by name."""
        metadata = {entry.name: entry.metadata for entry in fields(cls)}  # type: ignore[arg-type]
        return {name: data["option"] for name, data in metadata.items() if "option" in data}

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in self.list_options()}

    def list_changes(self) -> dict[str, Any]:
        """Return the values that are not the default, by name."""
        kinds = self.list_options()
        return {
            name: value for name, value in self.values().items() if value != kinds[name].default
        }


def spell_names(text: str, spell: Callable[[str], str | None]) -> str:
    """Return a text with the names of options as an interface spells them.

    Args:
        text: A text with names of options in backticks.
        spell: Returns the spelling of a name, or None if it is not an option and stays.
    """
    return _NAMED.sub(lambda match: spell(match[1]) or match[0], text)
