"""``nystra deploy``: writes a model file in the form that a server or program needs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from ...core.option import Options, option
from ...core.option_kinds import Folder
from ..console import echo, print_json
from ..flags.option_flags import add_options, add_output_arguments
from ..flags.shared_flags import add_shared_options, read_shared

SUMMARY = "Write a folder from which a server or another program loads a model file."


@dataclass(frozen=True)
class FolderOptions(Options):
    """Where the folder is written."""

    output: Path | None = option(Folder(None, "output folder", short="o", required=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ...deploy.registry import TARGETS

    targets = "; ".join(f"{target.name}: {target.summary}" for target in TARGETS)
    names = [target.name for target in TARGETS]
    parser.add_argument("server", choices=names, help=f"target: {targets}")
    parser.add_argument("model", type=Path, help=".onnx file")
    add_options(parser, FolderOptions)
    add_shared_options(parser, {target.name: target.options() for target in TARGETS})
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    from ...deploy.registry import TARGETS

    records = {target.name: target.options() for target in TARGETS}
    values = read_shared(args, records, args.server)
    target = next(target for target in TARGETS if target.name == args.server)
    folder = target.write()(args.model, args.output, target.options()(**values))
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    if args.json:
        print_json({"folder": str(folder), "files": files})
    elif not args.quiet:
        echo(f"{folder}: {', '.join(files)}")
        if "README.md" in files:
            echo(f"how to start and query the server: {folder / 'README.md'}")
    return 0
