"""The tables of networks in the measurements: which export, and which attention is found.

Every architecture that spandrel lists is built small with random weights, written as a checkpoint,
exported for any size, run in plain onnxruntime at three sizes and compared with spandrel's own
call. Attention is searched in these and in networks of other libraries. Each runs in a process of
its own, with limits of memory and time. Results are stored, so that the command continues after a
stop:

    python -m studies.networks measure --minutes 3
    python -m studies.networks measure DAT GRL       # these, even if they have results
    python -m studies.networks find --minutes 30     # attention, of all libraries
    python -m studies.networks find timm/pvt_v2_b0
    python -m studies.networks table                 # the page, and its count in README
"""

from __future__ import annotations

import argparse
import logging


def main() -> None:
    """Carry out what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("measure", "find"):
        measuring = commands.add_parser(name)
        measuring.add_argument("names", nargs="*")
        measuring.add_argument("--minutes", type=float, default=3.0)
        measuring.add_argument("--seconds", type=int, default=400, help="processor time, for each")
    commands.add_parser("table")
    args = parser.parse_args()
    if args.command == "table":
        from studies.networks.page import texts

        for path, text in texts().items():
            path.write_text(text, encoding="utf-8")
        return
    _measure(args)


def _measure(args: argparse.Namespace) -> None:
    from studies.networks import exporting, finding
    from studies.networks.children import resume
    from studies.networks.small import SMALL

    logging.disable(logging.CRITICAL)
    exporting.warm()
    study, names = exporting, list(SMALL)
    if args.command == "find":
        study, names = finding, finding.names()
    resume(study.RESULTS, names, args.names, study.outcome_of, args.minutes, args.seconds)


if __name__ == "__main__":
    main()
