"""The flags for what a checkpoint may lack: hyper-parameters of its network."""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from ...core.errors import NystraError
from ...core.option_kinds import Number, Text
from ...core.ports.image_sizes import ImageSize
from .option_flags import add_option, flag_of

_OPTIONS = {
    "module": Text(
        None,
        "your own network: CALLABLE(), with the values of --set as keywords, returns the "
        "torch.nn.Module of the checkpoint; the file is executed, so name only code that you "
        "trust",
        metavar="FILE.py:CALLABLE",
    ),
    "window_size": Number(
        None, "attention window of the network", 1, hard_maximum=4096, flag="--window"
    ),
    "num_heads": Number(
        None, "attention heads of the network", 1, hard_maximum=4096, flag="--heads"
    ),
    "frames": Number(None, "frames per run of a video network", 1, hard_maximum=4096),
    "resize_positions": ImageSize(
        None,
        "input size of a vision transformer; its learned positions are resized (bicubic)",
    ),
}


def add_checkpoint_arguments(parser: argparse._ActionsContainer) -> None:
    """Add what a checkpoint may lack: its code, window, heads, other hyper-parameters."""
    for name, kind in _OPTIONS.items():
        add_option(parser, name, kind, type=partial(kind.read, name))
    parser.add_argument(
        "--set",
        dest="hyper",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another hyper-parameter, as JSON or text; may be repeated",
    )


def hyper_from(args: argparse.Namespace) -> dict[str, Any]:
    """Return the hyper-parameters given on the command line.

    Raises:
        NystraError: A --set without '=', or one that contradicts another flag.
    """
    hyper: dict[str, Any] = {}
    for text in args.hyper:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise NystraError(f"--set {text!r} is not KEY=VALUE")
        try:
            hyper[key] = json.loads(value)
        except json.JSONDecodeError:
            hyper[key] = value
    for name, kind in _OPTIONS.items():
        value = getattr(args, name)
        if value is not None and name in hyper:
            flag = flag_of(name, kind)
            raise NystraError(f"{flag} and --set {name} contradict each other: give one")
        if value is not None:
            hyper[name] = list(value.values()) if isinstance(value, dict) else value
    return hyper
