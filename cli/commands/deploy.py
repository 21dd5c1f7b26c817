"""``nystra deploy``: a model file as a server wants it."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..console import echo, print_json
from ..flags.option_flags import add_options, option_values
from ..flags.output_flags import add_output_arguments

SUMMARY = "Write the folder that a server takes a model file from: Triton's model repository."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...deploy.triton.options import TritonOptions

    parser.add_argument("server", choices=("triton",), help="for which server")
    parser.add_argument("model", type=Path, help=".onnx file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="model repository"
    )
    add_options(parser, TritonOptions)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...deploy.triton.options import TritonOptions
    from ...deploy.triton.repository import write_repository

    options = TritonOptions(**option_values(args, TritonOptions))
    folder = write_repository(args.model, args.output, options)
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    if args.json:
        print_json({"folder": str(folder), "files": files})
    elif not args.quiet:
        echo(f"{folder}: {', '.join(files)}")
        echo(f"how to start and ask the server: {folder / 'README.md'}")
    return 0
