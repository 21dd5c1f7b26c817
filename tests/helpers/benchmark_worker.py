"""A worker of ``nystra bench`` whose run is a line of code."""

from __future__ import annotations

from pathlib import Path

import pytest


def worker(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    """Write a worker module whose run is ``body``, reachable by child processes."""
    (folder / "odd_worker.py").write_text(
        "import os, signal, sys, time\n"
        "from nystra.runtime.timing.worker import Opened, serve\n"
        f"def run(feeds):\n    {body}\n"
        "sys.exit(serve(lambda request: Opened(run)))\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    return "odd_worker"
