"""``nystra serve``: model files behind HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ..common import (
    add_output_arguments,
    add_session_arguments,
    parse_bytes,
    print_json,
    session_spec,
    warn,
)
from ..console import say

if TYPE_CHECKING:
    from ...runtime.serving.limits import Limits
    from ...runtime.serving.opening import Models

SUMMARY = "Serve model files over HTTP: pictures in, pictures or classes out."

TOKEN = "NYSTRA_TOKEN"
_LOCAL = ("127.0.0.1", "localhost", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        f"With {TOKEN} in the environment requests need Authorization: Bearer. Ctrl-C or SIGTERM "
        "answers what is under way and ends with exit code 0."
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    limits = parser.add_argument_group("limits")
    for flag, kind, help in (
        ("tile", int, "largest side of a tile in pixels (default: 256, less with little memory)"),
        ("batch", int, "images of different requests in one run of a model (default: 8)"),
        ("workers", int, "requests under way at once (default: 4)"),
        ("queue", int, "requests that wait besides; more get 429 (default: 64)"),
        ("max-bytes", str, "of a request's body, such as 64M (default: 64M)"),
        ("max-pixels", int, "of a picture (default: 40000000)"),
        ("max-memory", str, "of pictures under way, such as 4G (default: half of what is free)"),
        ("timeout", float, "seconds until an answer (default: 300)"),
        ("upload-timeout", float, "seconds for an upload, or for taking an answer (default: 60)"),
        ("connections", int, "open at once (default: 512)"),
        ("patience", float, "seconds that a stop waits for requests under way (default: 30)"),
    ):
        limits.add_argument(f"--{flag}", type=kind, metavar="N", help=help)
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    import fastapi  # noqa: F401  # what is missing is said before a model is loaded
    import prometheus_client  # noqa: F401
    import python_multipart  # noqa: F401
    import uvicorn  # noqa: F401

    from ... import __version__
    from ...runtime.serving.serve import serve

    token = os.environ.get(TOKEN)
    if token is not None and not token.strip():
        raise NystraError(f"{TOKEN} is empty: set it to a secret, or unset it")
    if token is None and args.host not in _LOCAL:
        warn(f"{args.host} may be reached from other machines and no {TOKEN} is set")
    serve(
        [session_spec(args, model) for model in args.models],
        _limits(args),
        host=args.host,
        port=args.port,
        token=token,
        version=__version__,
        ready=lambda address, models: _tell(args, address, models),
    )
    return 0


def _limits(args: argparse.Namespace) -> Limits:
    """Return the limits that were given, and the usual ones."""
    from ...runtime.serving.limits import Limits

    values: dict[str, Any] = vars(args) | {"memory": args.max_memory}
    for name, flag in (("max_bytes", "--max-bytes"), ("memory", "--max-memory")):
        if values[name] is not None:
            values[name] = parse_bytes(flag, values[name])
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: values[name] for name in names if values[name] is not None})


def _tell(args: argparse.Namespace, address: str, models: Models) -> None:
    """Say where the models are found, once they are."""
    if args.json:
        print_json({"address": address, "models": [model.name for model in models.served]})
    elif not args.quiet:
        for model in models.served:
            say(f"{model.name}: {address}/v1/{models.route_of(model)}", file=sys.stderr)
            if args.verbose:
                say(f"  {model.session.library_reason}", file=sys.stderr)
    sys.stdout.flush()
