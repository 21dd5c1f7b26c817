"""``nystra run``: restore pictures with a model file."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import add_output_arguments, add_session_arguments, print_json, print_table

SUMMARY = "Restore a picture or a folder of pictures with a model file."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", type=Path, help=".onnx file")
    parser.add_argument("-i", "--input", type=Path, required=True, help="picture or folder")
    parser.add_argument("-o", "--output", type=Path, required=True, help="picture or folder")
    parser.add_argument(
        "-t", "--tile", type=int, metavar="N", help="tile side, 0 = by memory (default: 0)"
    )
    parser.add_argument("--overlap", type=int, metavar="N", help="overlap of the tiles, in pixels")
    parser.add_argument("--overwrite", action="store_true", help="replace existing outputs")
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...runtime.run import run_pictures

    raise NotImplementedError
