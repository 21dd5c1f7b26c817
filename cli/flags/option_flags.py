"""The flags that are made from options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import Any

from ...core.option import Option, Options
from ...core.option_kinds import Switch


def add_options(
    parser: argparse._ActionsContainer,
    record: type[Options],
    names: Iterable[str] | None = None,
) -> None:
    """Add a flag for each option of a record.

    Args:
        parser: Or a group of it.
        record: The record.
        names: Those that are added, in this order; None adds all.
    """
    options = record.options()
    for name in options if names is None else names:
        add_option(parser, name, options[name], partial(options[name].read, name))


def add_option(
    parser: argparse._ActionsContainer, name: str, kind: Option, read: Any = None
) -> None:
    """Add the flag of an option; what it leaves is None where it was not given.

    Args:
        parser: Or a group of it.
        name: Of the option.
        kind: The option.
        read: Makes a value of a text; None leaves the text.
    """
    flags = [*([f"-{kind.short}"] if kind.short else []), flag_of(name, kind)]
    if isinstance(kind, Switch):
        parser.add_argument(*flags, dest=name, action="store_true", default=None, help=kind.help)
    else:
        how = {} if read is None else {"type": read}
        parser.add_argument(*flags, dest=name, metavar=kind.placeholder, help=kind.help, **how)


def flag_of(name: str, kind: Option) -> str:
    """Return the flag of an option, such as ``--max-memory``."""
    return kind.flag or f"--{name.replace('_', '-')}"


def given_options(args: argparse.Namespace, record: type[Options]) -> dict[str, Any]:
    """Return those options of a record that are on the command line, by name."""
    values = vars(args)
    return {name: values[name] for name in record.options() if values[name] is not None}


def flags_by_name(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the flag of each option that a parser knows, by the name of the option."""
    return {
        action.dest: action.option_strings[-1]
        for action in parser._actions  # argparse lists them in no other way
        if action.option_strings
    }
