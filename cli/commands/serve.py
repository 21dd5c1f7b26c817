"""``nystra serve``: model files behind HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import NystraError
from ..console import echo, print_json, warn
from ..flags.option_flags import (
    add_options,
    add_output_arguments,
    add_session_arguments,
    option_values,
    session_spec,
)

if TYPE_CHECKING:
    from ...runtime.serving.served_model import Models

SUMMARY = "Serve model files over HTTP: images in, images or classes out."

TOKEN = "NYSTRA_TOKEN"
_LOCAL = ("127.0.0.1", "localhost", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...runtime.serving.limits import Address, Limits

    parser.epilog = (
        f"If {TOKEN} is set, requests need the header Authorization: Bearer TOKEN. Ctrl-C or "
        "SIGTERM finishes the requests in progress and exits with code 0."
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.onnx", help="model files")
    add_options(parser, Address)
    add_options(parser.add_argument_group("limits"), Limits)
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    import fastapi  # noqa: F401  # what is missing is said before a model is loaded
    import prometheus_client  # noqa: F401
    import python_multipart  # noqa: F401
    import uvicorn  # noqa: F401

    from ...runtime.serving.application import serve
    from ...runtime.serving.limits import Address, Limits

    token = os.environ.get(TOKEN)
    if token is not None and not token.strip():
        raise NystraError(f"{TOKEN} is empty: set it to a secret, or unset it")
    if token is None and args.host not in _LOCAL:
        warn(
            f"{args.host} may be reached from other machines, without a token: set {TOKEN}; "
            "see docs/serving.md"
        )
    args.access_log = args.access_log and not (args.quiet or args.json)  # nobody may read stderr
    serve(
        [session_spec(args, model) for model in args.models],
        Limits(**option_values(args, Limits)),
        Address(**option_values(args, Address)),
        token,
        lambda address, models: _announce(args, address, models),
    )
    return 0


def _announce(args: argparse.Namespace, address: str, models: Models) -> None:
    if args.json:
        print_json({"address": address, "models": [model.name for model in models.served]})
    elif not args.quiet:
        for model in models.served:
            echo(f"{model.name}: {address}/v1/{model.handler.route}", file=sys.stderr)
            if model.session.library_refused:
                warn(f"{model.name}: {model.session.library_reason}")
            elif args.verbose:
                echo(f"  {model.session.library_reason}", file=sys.stderr)
            if model.session.assignment is not None:
                echo(f"  {model.session.assignment.describe()}", file=sys.stderr)
        echo(f"try: {_example_request(address, models)}", file=sys.stderr)
    sys.stdout.flush()


def _example_request(address: str, models: Models) -> str:
    """Return a command that sends a file to the first model, with names of files for show."""
    from ...runtime.tasks.registry import find_task

    model = models.served[0]
    source, target = find_task(model.session).example
    words = ["curl"]
    for part in model.facts()["parts"]:
        value = "VALUE"
        if part in model.handler.parts:
            value = f"@{source}" if part == "image" else f"@{part}.png"
        words.append(f"-F {part}={value}")
    if model.handler.media_types[0].startswith("image/"):
        words.append(f"-o {target}")
    if os.environ.get(TOKEN):
        words.append(f'-H "Authorization: Bearer ${TOKEN}"')
    query = f"?model={model.name}" if len(models.served) > 1 else ""
    return " ".join([*words, f"'{address}/v1/{model.handler.route}{query}'"])
