"""Arguments and output that several commands share."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import NystraError
from ..core.ports.port import picture_size
from ..runtime.backends import backend_names
from ..runtime.session_spec import FASTEST, SessionSpec
from .console import complain, printable, say
from .flags.option_flags import add_options

if TYPE_CHECKING:
    from ..runtime.session import Session

_SESSION = ("backend", "threads", "library", "precision")


def parse_sizes(flag: str, text: str) -> list[dict[str, int]]:
    """Read ``128x128,64x96``, height x width, that ``flag`` was given.

    Raises:
        NystraError: It is not of that form.
    """
    return [parse_size(flag, part) for part in text.split(",")]


def parse_size(flag: str, text: str) -> dict[str, int]:
    """Read ``64x96``, height x width, that ``flag`` was given.

    Raises:
        NystraError: It is not of that form.
    """
    try:
        height, width = (int(number) for number in text.split("x"))
    except ValueError:
        height = width = 0
    if height < 1 or width < 1:
        raise NystraError(f"{flag} {text!r} is not of the form 128x128, height x width")
    return picture_size(height, width)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, ``-v`` and ``-q``."""
    parser.add_argument("--json", action="store_true", help="print the figures as JSON on stdout")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="say each step")
    volume.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def add_checkpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a checkpoint may not tell: window, heads, frames, size, other hyper-parameters."""
    parser.add_argument("--window", type=int, metavar="N", help="attention window of the network")
    parser.add_argument("--heads", type=int, metavar="N", help="attention heads of the network")
    parser.add_argument(
        "--frames", type=int, metavar="N", help="frames of a film that a video network takes"
    )
    parser.add_argument(
        "--resize-positions",
        metavar="HxW",
        help="run a vision transformer at this size: its learned positions are resized (bicubic)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another hyper-parameter, its value in JSON or text; may be repeated",
    )


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a model file is run."""
    backends = (
        f"{', '.join(backend_names())}; openvino:GPU names a device; {FASTEST} times ort-cpu and "
        "openvino once on a file; auto is the first that is installed"
    )
    add_options(parser, SessionSpec, _SESSION, backend=backends)


def session_spec(args: argparse.Namespace, model: Path, side: int | None = None) -> SessionSpec:
    """Return how a command runs a model file; ``--backend fastest`` is timed here, once.

    Args:
        args: With what `add_session_arguments` adds.
        model: The file.
        side: Of the pictures or tiles to come, where it is known.
    """
    spec = SessionSpec(model, **{name: getattr(args, name) for name in _SESSION})
    if spec.backend != FASTEST:
        return spec
    from ..runtime.fastest import choose_fastest

    with steps(args, piped=True) as progress:
        fastest = choose_fastest(spec, side, progress)
    if not args.quiet:
        complain(f"note: {fastest.reason}")
    return fastest.spec


def open_session(args: argparse.Namespace, side: int | None = None) -> Session:
    """Load the model file of a command.

    Args:
        args: With what `add_session_arguments` adds, and ``model``.
        side: Of the pictures or tiles to come, where it is known.
    """
    from ..runtime.backends.base import EMULATED

    session = session_spec(args, args.model, side).open()
    if session.emulated and not args.quiet:
        complain(f"note: {EMULATED}")
    return session


def hyper_from(args: argparse.Namespace) -> dict[str, Any]:
    """Return the hyper-parameters given on the command line.

    Raises:
        NystraError: A --set without '=', or a value below 1.
    """
    hyper: dict[str, Any] = {}
    for text in args.set:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise NystraError(f"--set {text!r} is not KEY=VALUE")
        try:
            hyper[key] = json.loads(value)
        except json.JSONDecodeError:
            hyper[key] = value
    for flag, key, value in (
        ("--window", "window_size", args.window),
        ("--heads", "num_heads", args.heads),
        ("--frames", "frames", args.frames),
    ):
        if value is None:
            continue
        if value < 1:
            raise NystraError(f"{flag} {value} is below 1")
        if key in hyper:
            raise NystraError(f"{flag} and --set {key} contradict each other: give one")
        hyper[key] = value
    if args.resize_positions is not None:
        size = parse_size("--resize-positions", args.resize_positions)
        hyper["resize_positions"] = list(size.values())
    return hyper


def print_json(document: Any) -> None:
    """Print a document as JSON on stdout."""
    say(json.dumps(document, indent=1, sort_keys=True, default=str))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first row as the head."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def warn(text: str) -> None:
    """Print a warning on stderr."""
    complain(f"warning: {text}")


@contextlib.contextmanager
def steps(args: argparse.Namespace, *, piped: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the present step.

    On a terminal it is one line with the time spent, and a bar where a step says ``3/14`` of
    itself; with ``-v``, and where stderr is piped if that is wanted, each step is a line of stderr.
    """
    from ..runtime.progress import step_bar, wants_bar

    if args.verbose or (piped and not args.quiet and not wants_bar()):
        yield lambda text: say(text, file=sys.stderr, flush=True)
    elif not wants_bar(args.quiet):
        yield lambda _: None
    else:
        with step_bar() as show:
            yield lambda text: show(printable(text))
