"""``nystra deploy``: a model file as a server wants it."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from ..common import add_labels_argument, add_output_arguments, print_json
from ..console import say

SUMMARY = "Write the folder that a server takes a model file from: Triton's model repository."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("server", choices=("triton",), help="for which server")
    parser.add_argument("model", type=Path, help=".onnx file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="model repository"
    )
    parser.add_argument(
        "--backend",
        default="python",
        metavar="NAME",
        help="python, which takes picture files and cuts tiles, or onnxruntime, tensorrt, "
        "openvino, which take tensors (default: python)",
    )
    parser.add_argument("--name", help="of the model on the server (default: the file's stem)")
    parser.add_argument(
        "--instances", type=int, default=1, metavar="N", help="copies that run (default: 1)"
    )
    parser.add_argument("--gpu", action="store_true", help="run on a GPU")
    parser.add_argument(
        "--max-batch",
        type=int,
        default=8,
        metavar="N",
        help="most images of different requests that run at once, of tensors (default: 8)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="of an instance")
    parser.add_argument(
        "-t", "--tile", type=int, default=0, metavar="N", help="tile side, 0 = by the memory"
    )
    parser.add_argument("--overlap", type=int, metavar="N", help="overlap of the tiles")
    parser.add_argument(
        "--engine", type=Path, metavar="FILE", help="of nystra build -o, for tensorrt"
    )
    add_labels_argument(parser)
    parser.add_argument(
        "--library",
        default="auto",
        metavar="auto|none|FILE",
        help="the operator or plugin library to put in (default: auto)",
    )
    parser.add_argument(
        "--server-path",
        default="/models",
        metavar="FOLDER",
        help="where the server sees the repository (default: /models)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the model's folder")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...deploy.triton.options import TritonOptions
    from ...deploy.triton.repository import write_repository

    names = [field.name for field in fields(TritonOptions)]
    options = TritonOptions(**{name: getattr(args, name) for name in names})
    folder = write_repository(args.model, args.output, options)
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    if args.json:
        print_json({"folder": str(folder), "files": files})
    elif not args.quiet:
        say(f"{folder}: {', '.join(files)}")
        say(f"how to start and ask the server: {folder / 'README.md'}")
    return 0
