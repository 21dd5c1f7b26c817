"""The flags that say how a model file is run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import NystraError
from ...runtime.backends import backend_names
from ...runtime.session_spec import FASTEST, SessionSpec
from ..console import echo_error, warn
from ..progress import steps
from .option_flags import add_options

if TYPE_CHECKING:
    from ...runtime.session import Session

_SESSION = ("backend", "threads", "library", "precision", "ep_library", "range")


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a model file is run."""
    backends = (
        f"{', '.join(backend_names())}; openvino:GPU names a device, ort needs the name of an "
        "execution provider of onnxruntime, such as ort:WebGpuExecutionProvider; "
        f"{FASTEST} times ort-cpu and openvino once per file and uses the faster one; auto uses "
        "the first one installed"
    )
    add_options(parser, SessionSpec, _SESSION, backend=backends)
    parser.add_argument(
        "--backend-option",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the backend; may be repeated",
    )


def session_spec(args: argparse.Namespace, model: Path, side: int | None = None) -> SessionSpec:
    """Return how a command runs a model file; ``--backend fastest`` is timed here, once.

    Args:
        args: With what `add_session_arguments` adds.
        model: The file.
        side: Side of the expected images or tiles, if known.
    """
    values = {name: getattr(args, name) for name in _SESSION}
    spec = SessionSpec(model, **values, options=_pairs(args.options))
    if spec.backend != FASTEST:
        return spec
    from ...runtime.fastest import choose_fastest

    with steps(args, piped=True) as progress:
        fastest = choose_fastest(spec, side, progress)
    if not args.quiet:
        echo_error(f"note: {fastest.reason}")
    return fastest.spec


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of ``NAME=VALUE`` by name."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise NystraError(f"--backend-option {text!r:.40} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def open_session(args: argparse.Namespace, side: int | None = None) -> Session:
    """Load the model file of a command.

    Args:
        args: With what `add_session_arguments` adds, and ``model``.
        side: Side of the expected images or tiles, if known.
    """
    from ...runtime.backends.base import EMULATED
    from ...runtime.session import Session

    session = Session.open(session_spec(args, args.model, side))
    if session.emulated and not args.quiet:
        echo_error(f"note: {EMULATED}")
    if session.library_refused and not args.quiet:
        warn(session.library_reason)
    if session.assignment is not None and not args.quiet:
        echo_error(f"note: {session.assignment.sentence()}")
    return session
