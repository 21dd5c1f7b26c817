"""Programs of the machine that look into built files."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def printed_by(*command: str) -> str:
    """Return what a command prints, or skip the test where the machine lacks the program."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} on this machine")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
