"""What ``nystra-export`` and ``nystra`` do: arguments, errors and exit codes.

Exit codes: 0 fine, 1 a check failed, 2 usage or bad input, 3 a backend is missing,
128 + the number of the signal that ended it (130 for Ctrl-C). Nothing heavy is imported before a
command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Container, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NoReturn

from ..core.errors import NystraError, foreign_text
from ..core.installation import install_module
from ..core.plain_text import printable
from .console import echo, echo_error, set_flags
from .flags.option_flags import flags_by_name
from .interrupt import reraise_interrupt

_COMMANDS = (
    "export",
    "validate",
    "run",
    "serve",
    "inspect",
    "build",
    "bench",
    "check",
    "deploy",
)
"""Each is a module of ``commands``, imported on use."""


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated flags, and each flag once.

    Its errors show names of files without control characters, as `echo` does.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)
        self.given: set[str] = set()
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self.given = set()
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggest(unknown[0])}")
        return parsed, unknown

    def _suggest(self, word: str) -> str:
        """Return what was probably meant, for the end of a message, or ""."""
        if not word.startswith("-") and "--input" in self._option_string_actions:
            return "; --input takes one image or folder: give the folder of several images"
        from difflib import get_close_matches  # of a mistake alone

        flags = [flag[2:] for flag in self._option_string_actions if flag.startswith("--")]
        close = get_close_matches(word.partition("=")[0].lstrip("-"), flags, 1)
        return f"; did you mean --{close[0]}?" if close else ""

    def format_usage(self) -> str:
        """Return one line: what has to be given; the options are listed below it."""
        self._set_usage()
        return super().format_usage()

    def format_help(self) -> str:
        """Return the help, which begins with the line of `format_usage`."""
        self._set_usage()
        return super().format_help()

    def _set_usage(self) -> None:
        if any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            return
        words = [self.prog]
        for action in self._actions:
            name = action.metavar or action.dest.upper()
            if not action.option_strings:
                words.append(f"{name} [{name} ...]" if action.nargs == "+" else str(name))
            elif action.required:
                words.append(f"{action.option_strings[0]} {name}")
        self.usage = " ".join([*words, "[options]"]).replace("%", "%%")

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


class _StoreOnce(argparse.Action):
    """Stores a value; a flag that is given twice is an error, not the last one of both."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if isinstance(parser, _Parser) and option_string is not None:
            if self.dest in parser.given:
                raise argparse.ArgumentError(self, "given twice, expected once")
            parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


def run_nystra(arguments: Sequence[str]) -> int:
    """Run ``nystra`` with these arguments; return the exit code."""

    def build() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
        parser, commands = build_parsers(arguments[:1])
        return parser, commands.get(arguments[0], parser) if arguments else parser

    return _dispatch(build, arguments)


def build_parsers(
    commands: Container[str] = _COMMANDS,
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of ``nystra``, and that of each command by name.

    Args:
        commands: Commands whose arguments are added, which takes time.
    """
    parser = _Parser(
        prog="nystra", description="Export, run and check image restoration transformers."
    )
    parser.add_argument("--version", action="version", version=f"nystra {_version()}")
    group = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers: dict[str, argparse.ArgumentParser] = {}
    listed = not any(name in commands for name in _COMMANDS)  # the help of nystra itself
    for name in _COMMANDS:
        if not listed and name not in commands:
            parsers[name] = group.add_parser(name)
            continue
        command = _command(name)
        parsers[name] = group.add_parser(name, help=command.SUMMARY, description=command.SUMMARY)
        if name in commands:
            command.add_arguments(parsers[name])
    return parser, parsers


def _command(name: str) -> Any:
    return import_module(f".commands.{name}", __package__)


def run_export(arguments: Sequence[str]) -> int:
    """Run ``nystra-export`` with these arguments; return the exit code."""

    def build() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
        export = _command("export")
        parser = _Parser(prog="nystra-export", description=export.SUMMARY)
        parser.add_argument("--version", action="version", version=f"nystra {_version()}")
        parser.set_defaults(command="export")
        export.add_arguments(parser)
        return parser, parser

    return _dispatch(build, arguments)


def _version() -> str:
    from .. import __version__

    return __version__


def _dispatch(
    build: Callable[[], tuple[argparse.ArgumentParser, argparse.ArgumentParser]],
    argv: Sequence[str],
) -> int:
    """Run what the parser that ``build`` returns, and that of the command, make of arguments."""
    try:
        parser, command = build()
    except ModuleNotFoundError as error:
        return _report_unexpected(argparse.Namespace(), error)
    own = flags_by_name(command)
    set_flags(lambda name: own.get(name) or _flags_of_all().get(name))
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed; 0 for --help, 2 for usage
        return int(stop.code or 0)
    except NystraError as error:
        echo_error(f"error: {error}")
        return error.exit_code
    args.command_line = [parser.prog, *argv]
    try:
        with reraise_interrupt():
            code: int = _command(args.command).run(args)
            sys.stdout.flush()
        return code
    except NystraError as error:
        echo_error(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:
        _drop_output()
        return 0
    except Exception as error:  # noqa: BLE001 - one line and exit code 2, whatever was given
        return _report_unexpected(args, error)


@cache
def _flags_of_all() -> dict[str, str]:
    flags: dict[str, str] = {}
    for parser in build_parsers()[1].values():
        flags = flags_by_name(parser) | flags
    return flags


def _report_unexpected(args: argparse.Namespace, error: Exception) -> int:
    if getattr(args, "verbose", False):
        for line in traceback.format_exc().splitlines():
            echo(line, file=sys.stderr)
    echo_error(f"error: {_reason(error)}")
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return 3 if isinstance(error, ModuleNotFoundError) else 2


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return (
            "not enough memory: use smaller images, tiles or sizes, or a machine with more memory"
        )
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, ModuleNotFoundError) and error.name:
        install = install_module(error.name)
        return f"{error.name}, which this command needs, is not installed: {install}"
    words = foreign_text(error).splitlines()[0][:300]
    if isinstance(error, OSError):
        place = "a file" if error.filename is None else error.filename
        return f"cannot use {place}: {error.strerror or words}"
    kind = type(error).__name__
    return f"the input caused {kind} ({words}): add -v for the traceback"


def _drop_output() -> None:
    """Discard further output to stdout, also at exit: writing it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
