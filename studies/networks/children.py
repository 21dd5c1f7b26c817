"""Runs the rows of a table, each in a process of its own, with a limit of memory and time."""

from __future__ import annotations

import json
import multiprocessing
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MEMORY = 6 << 30
MOST = 200  # characters of a reason

Outcome = dict[str, Any]


def resume(
    results: Path,
    names: Sequence[str],
    wanted: Sequence[str],
    outcome_of: Callable[[str], Outcome],
    minutes: float,
    seconds: int,
) -> None:
    """Add to a file of results what is not in it yet, or what is wanted, within a time.

    Args:
        results: JSON, by name.
        names: All that there are.
        wanted: These, whatever is known of them; none: all that are not known.
        outcome_of: Returns what comes of one.
        minutes: After which none is begun.
        seconds: Of processor time, for each.
    """
    begun = time.monotonic()
    for name in wanted or [name for name in names if name not in read(results)]:
        if time.monotonic() - begun > 60 * minutes:
            break
        outcome = _in_child(outcome_of, name, seconds)
        text = json.dumps(read(results) | {name: outcome}, indent=1, sort_keys=True)
        results.write_text(text + "\n")
        sys.stdout.write(f"{name} {json.dumps(outcome)}\n")
        sys.stdout.flush()


def read(results: Path) -> dict[str, Outcome]:
    """Return the results so far, by name."""
    return json.loads(results.read_text()) if results.exists() else {}


def short(error: Exception) -> str:
    """Return what an error says, in one line without paths and colors."""
    plain = re.sub(r"\x1b\[\d+m", "", " ".join(str(error).split()))
    text = re.sub(r"\S*/(?=\w+\.\w+)", "", plain).removeprefix("small.pth: ")
    return text if len(text) <= MOST else f"{text[:MOST]} ..."


def _in_child(outcome_of: Callable[[str], Outcome], name: str, seconds: int) -> Outcome:
    """Return what comes of one in a process of its own, ended after that processor time."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    arguments = (sender, outcome_of, name, seconds)
    child = multiprocessing.get_context("fork").Process(target=_send, args=arguments)
    child.start()
    sender.close()
    try:
        outcome: Outcome = receiver.recv()
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGXCPU
        reason = f"memory above {MEMORY >> 30} GiB perhaps"
        outcome = {"failed": f"longer than {seconds} s" if late else f"its process ended: {reason}"}
    child.join()
    return outcome


def _send(connection: Any, outcome_of: Callable[[str], Outcome], name: str, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    warnings.simplefilter("ignore")
    connection.send(outcome_of(name))
