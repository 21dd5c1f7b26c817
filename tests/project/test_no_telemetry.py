"""No command opens a connection or resolves a name unless asked to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from shared import ROOT
from small_swinir import state_of

WATCH = """
import os, sys
def watch(event, arguments):
    # Sockets of the machine itself (AF_UNIX, pipes between processes) are no connections.
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], (str, bytes)):
        return
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "urllib.Request"):
        with open(os.environ["CONNECTIONS"], "a") as log:
            log.write(f"{event} {arguments[1:]}\\n")
sys.addaudithook(watch)
"""
MODEL = str(ROOT / "tests/compatibility/0.1.0/full.onnx")
IMAGE = str(ROOT / "export/photographs/chelsea.png")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", MODEL, "-i", IMAGE, "-o", "out.png"],
        pytest.param(["validate", MODEL], marks=pytest.mark.full),
        pytest.param(["export", "tiny.safetensors", "-o", "m.onnx"], marks=pytest.mark.release),
    ],
)
def test_a_command_opens_no_connection(arguments: list[str], tmp_path: Path) -> None:
    save_file(state_of(), tmp_path / "tiny.safetensors")
    assert run(["-m", "nystra.cli.main", *arguments], tmp_path) == ""


def test_a_connection_would_be_seen(tmp_path: Path) -> None:
    """Negative control."""
    code = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    assert "127.0.0.1" in run(["-c", code], tmp_path)


def run(arguments: list[str], folder: Path) -> str:
    """Run Python in a folder, and its children, and return the connections they opened."""
    (folder / "watching").mkdir()
    (folder / "watching/sitecustomize.py").write_text(WATCH)
    log = folder / "connections"
    log.touch()
    environment = {**os.environ, "PYTHONPATH": str(folder / "watching"), "CONNECTIONS": str(log)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return log.read_text()
