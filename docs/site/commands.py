"""The page of commands, made of what the commands' own parsers know."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

_TITLES = {"positional arguments": "arguments", "optional arguments": "options"}


def commands_text(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return what each command takes, in Markdown, a heading of the second level each."""
    return "\n".join(line for name, parser in parsers.items() for line in _command(name, parser))


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## nystra {name}\n"
    yield f"{_plain(parser.description or '')}\n"
    for group in parser._action_groups:  # argparse shows them in no other way
        actions = [action for action in group._group_actions if action.dest != "help"]
        if not actions:
            continue
        title = group.title or "options"
        yield f"| {_plain(_TITLES.get(title, title))} | |\n| --- | --- |"
        for action in actions:
            yield f"| {_written(action)} | {_meaning(parser, action)} |"
        yield ""
    if parser.epilog:
        yield f"{_plain(parser.epilog)}\n"


def _written(action: argparse.Action) -> str:
    """Return how an argument is written on the command line."""
    if not action.option_strings:
        name = str(action.metavar or action.dest.upper())
        return f"`{name} ...`" if action.nargs == "+" else f"`{name}`"
    value = ""
    if action.nargs != 0:
        choices = action.choices and "{" + ",".join(map(str, action.choices)) + "}"
        value = f" {action.metavar or choices or action.dest.upper()}"
        value = f" [{value[1:]}]" if action.nargs == "?" else value
    *others, last = action.option_strings
    return ", ".join(f"`{each}`" for each in (*others, last + value))


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = _plain(parser._get_formatter()._expand_help(action) if action.help else "")
    return f"{text} (required)" if action.required and action.option_strings else text


def _plain(text: str) -> str:
    """Return a text with nothing left in it that Markdown would read."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("*", "&#42;")):
        text = text.replace(sign, entity)
    return text
