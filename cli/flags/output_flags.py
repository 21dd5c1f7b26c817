"""The flags that say how much a command prints."""

from __future__ import annotations

import argparse


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, ``-v`` and ``-q``."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON on stdout")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="print each step")
    volume.add_argument("-q", "--quiet", action="store_true", help="print errors only")
