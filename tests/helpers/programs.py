"""Programs that inspect built files."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def printed_by(*command: str) -> str:
    """Return the output of a command, or skip the test if the program is not installed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} on this machine")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
