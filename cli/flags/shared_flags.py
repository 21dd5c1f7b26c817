"""Flags of several records of which a command takes one, such as those of the mechanisms.

The name of an option stands for one flag, whichever records have it; its text is read when it is
known which record is meant.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ...core.errors import NystraError
from ...core.option import Option, Options
from .option_flags import add_option, flag_of

Records = Mapping[str, type[Options]]
"""Name on the command line -> record."""


def add_shared_options(
    parser: argparse.ArgumentParser, records: Records, title: str = "{}"
) -> None:
    """Add a flag for each option of any record, in groups by the records that have it.

    Args:
        parser: Parser of the command.
        records: The records.
        title: Title of a group; {} is the names of the records.
    """
    groups: dict[tuple[str, ...], Any] = {}
    for name, users in _users(records).items():
        if users not in groups:
            groups[users] = parser.add_argument_group(title.format(", ".join(users)))
        kinds = {user: records[user].list_options()[name] for user in users}
        add_option(groups[users], name, kinds[users[0]], help=_help(kinds))


def _help(kinds: Mapping[str, Option]) -> str:
    users: dict[str, list[str]] = {}
    for user, kind in kinds.items():
        users.setdefault(kind.help, []).append(user)
    if len(users) == 1:
        return next(iter(users))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in users.items())


def read_given_texts(args: argparse.Namespace, records: Records) -> dict[str, Any]:
    """Return the texts of those options that are on the command line, by name."""
    values = vars(args)
    return {name: values[name] for name in _users(records) if values[name] is not None}


def read_shared(
    args: argparse.Namespace, records: Records, chosen: str, title: str = "{}"
) -> dict[str, Any]:
    """Return the values that the chosen record was given, by name.

    Args:
        args: The command line.
        records: The records.
        chosen: Name of the record.
        title: How the command line names a record; {} is its name.

    Raises:
        NystraError: An option of another record was given, or a text is not a value of its option.
    """
    kinds = records[chosen].list_options()
    texts = read_given_texts(args, records)
    for name in texts:
        if name not in kinds:
            users = _users(records)[name]
            raise NystraError(
                f"{flag_among(records, name)} does not apply to {title.format(chosen)}: it is for "
                f"{title.format(' or '.join(users))}"
            )
    return {name: kinds[name].read(name, text) for name, text in texts.items()}


def flag_among(records: Records, name: str) -> str:
    """Return the flag of an option, whichever record has it."""
    return flag_of(name, records[_users(records)[name][0]].list_options()[name])


def _users(records: Records) -> dict[str, tuple[str, ...]]:
    users: dict[str, tuple[str, ...]] = {}
    for record, kind in records.items():
        for name in kind.list_options():
            users[name] = (*users.get(name, ()), record)
    return users
