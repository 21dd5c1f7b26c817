"""``nystra run``: restore pictures with a model file."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import add_output_arguments, add_session_arguments, print_json, print_table, warn

SUMMARY = "Restore a picture or a folder of pictures with a model file."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", type=Path, help=".onnx file")
    parser.add_argument("-i", "--input", type=Path, required=True, help="picture or folder")
    parser.add_argument("-o", "--output", required=True, help="picture or folder")
    parser.add_argument(
        "-t",
        "--tile",
        type=int,
        default=0,
        metavar="N",
        help="tile side in input pixels, 0 = by the memory (default: 0)",
    )
    parser.add_argument(
        "--overlap", type=int, metavar="N", help="overlap of the tiles, in input pixels"
    )
    parser.add_argument(
        "--mask",
        type=Path,
        metavar="FILE|FOLDER",
        help="of a model that fills holes: white = fill, same size as the picture",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE|FOLDER",
        help="of a model that copies from another picture",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing outputs")
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 2 when a picture of a folder failed."""
    from ...runtime.restoring.job import run_pictures
    from ...runtime.session import Session

    session = Session(args.model, args.backend, args.threads, args.library)
    results = run_pictures(
        session,
        args.input,
        args.output,
        tile=args.tile,
        overlap=args.overlap,
        overwrite=args.overwrite,
        quiet=args.quiet,
        mask=args.mask,
        reference=args.reference,
    )
    failed = [one for one in results if one["error"] is not None]
    if args.json:
        print_json({"library_reason": session.library_reason, "pictures": results})
    elif not args.quiet:
        if args.verbose:
            print(session.library_reason)
        rows = [("input", "output", "size", "seconds", "tiles")]
        for one in results:
            if one["error"] is None:
                width, height = one["output_size"]
                rows.append(
                    (
                        one["input"],
                        one["output"],
                        f"{width}x{height}",
                        f"{one['seconds']:.2f}",
                        str(one["tiles"]),
                    )
                )
        print_table(rows)
    for one in results:
        for text in one["warnings"]:
            warn(f"{one['input']}: {text}")
    for one in failed:
        warn(f"{one['input']} failed: {one['error']}")
    return 2 if failed else 0
