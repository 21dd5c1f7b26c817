"""Engines side by side on networks that restore images.

    python -m studies.engines                      # what is not measured yet, and the page
    python -m studies.engines --again              # everything anew
    python -m studies.engines --networks swinir_m --groups f32 bf16 --again
    python -m studies.engines --page               # the page and its chart from what is known

Each engine has an environment and a process of its own; the engines of a network and a precision
take turns. Files, environments and what engines made of files are kept in a folder (some 10 GB);
results stand in ``results.json``, so that it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from studies.engines.engines import ENGINES, GROUPS
from studies.engines.measuring import Settings, measure, say

RESULTS = Path(__file__).with_name("results.json")

Results = dict[str, dict[str, dict[str, Any]]]


def read() -> Results:
    """Return the results so far: network -> engine -> outcome."""
    known: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return known


def keep(network: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """Add results of a network to the file of results."""
    results = read()
    results[network] = results.get(network, {}) | outcomes
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Measure what is missing or requested, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--engines", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--groups", nargs="*", default=GROUPS, choices=GROUPS)
    parser.add_argument("--folder", type=Path, default=Path("build/engines"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600, help="to convert, open or run first")
    parser.add_argument("--run-seconds", type=float, default=120, help="that a later run may take")
    parser.add_argument("--minutes", type=float, default=1e9, help="after which none is begun")
    parser.add_argument("--again", action="store_true", help="what is measured already too")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if not args.page:
        measure_all(args)
    from studies.engines.page import write

    write(read())


def measure_all(args: argparse.Namespace) -> None:
    """Measure network by network, group by group."""
    from studies.engines.networks import NETWORKS

    settings = Settings(
        args.folder.absolute(), args.threads, args.rounds, args.seconds, args.run_seconds
    )
    begun = time.monotonic()
    for network in args.networks or NETWORKS:
        for group in args.groups:
            names = [
                name
                for name, engine in ENGINES.items()
                if engine.group == group and (not args.engines or name in args.engines)
            ]
            known = read().get(network, {})
            if not args.again and all(name in known for name in names):
                continue
            if time.monotonic() - begun > 60 * args.minutes:
                say(f"{network}, {group}: not begun, the time is up")
                continue
            keep(network, measure(network, names, settings))


if __name__ == "__main__":
    main()
