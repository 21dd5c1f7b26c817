"""The flags that are made from options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.option import Option, Options, spelled
from ...core.option_kinds import Switch


def add_options(
    parser: argparse._ActionsContainer,
    record: type[Options],
    names: Iterable[str] | None = None,
    **docs: str,
) -> None:
    """Add a flag for each option of a record.

    Args:
        parser: Or a group of it.
        record: The record.
        names: Those that are added, in this order; None adds all.
        **docs: What an option means, where the record does not say it in full.
    """
    options = record.declared()
    for name in options if names is None else names:
        doc = docs.get(name, options[name].doc)
        kind = replace(options[name], doc=spelled(doc, lambda each: _flag_among(options, each)))
        how = {} if isinstance(kind, Switch) else {"type": partial(kind.read, name)}
        add_option(parser, name, kind, default=kind.default, **how)


def _flag_among(options: Mapping[str, Option], name: str) -> str | None:
    return flag_of(name, options[name]) if name in options else None


def add_option(parser: argparse._ActionsContainer, name: str, kind: Option, **how: Any) -> None:
    """Add the flag of an option.

    Args:
        parser: Or a group of it.
        name: Of the option.
        kind: The option.
        **how: As argparse takes it; without ``type`` the text of the flag stays as it is.
    """
    flags = [*([f"-{kind.short}"] if kind.short else []), flag_of(name, kind)]
    looks = {"action": "store_true"} if isinstance(kind, Switch) else {"metavar": kind.placeholder}
    how = {"default": None, **looks, **how}
    parser.add_argument(*flags, dest=name, help=kind.help, **how)


def flag_of(name: str, kind: Option) -> str:
    """Return the flag of an option, such as ``--max-memory``."""
    return kind.flag or f"--{name.replace('_', '-')}"


def option_values(args: argparse.Namespace, record: type[Options]) -> dict[str, Any]:
    """Return the values that the flags of a record were given, or their defaults, by name."""
    return {name: getattr(args, name) for name in record.declared()}


def flags_by_name(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the flag of each option that a parser knows, by the name of the option."""
    return {
        action.dest: action.option_strings[-1]
        for action in parser._actions  # argparse lists them in no other way
        if action.option_strings
    }
