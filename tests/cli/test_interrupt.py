"""Ctrl-C ends a command wherever it comes, also where Python or a library drops it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.runtime import Picture, write_picture
from runtime_models import nystra_metadata, save_upscaler

TRIES = 200

# A shell starts what it puts into the background without SIGINT.
LISTENING: dict[str, Any] = {"preexec_fn": partial(signal.signal, signal.SIGINT, signal.SIG_DFL)}

# A command in whose course an interrupt comes: {how} it is lost.
COMMAND = """
import ctypes, signal, sys, time
from types import SimpleNamespace
from nystra.cli import main

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)
    time.sleep(0)
    return 0

class Deleted:
    __del__ = interrupt

def deleted():
    Deleted()

def callback():
    ctypes.PYFUNCTYPE(ctypes.c_int)(interrupt)()

def failing():
    try:
        interrupt()
    except KeyboardInterrupt as error:
        raise ImportError("initialization failed") from error

def run(args):
    {how}()
    time.sleep(8)
    return 0

main._command = lambda name: SimpleNamespace(SUMMARY="", add_arguments=lambda _: None, run=run)
begin = time.monotonic()
code = main.main(["run"])
assert time.monotonic() - begin < 7, "it went on"
sys.exit(code)
"""


@pytest.mark.parametrize("how", ["interrupt", "deleted", "callback", "failing"])
def test_an_interrupt_that_is_dropped_comes_again(how: str) -> None:
    program = COMMAND.replace("{how}", how)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, **LISTENING
    )
    assert run.returncode == 130, run.stderr
    assert run.stderr.splitlines()[-1] == "interrupted"


def test_the_handler_is_that_of_before(capsys: pytest.CaptureFixture[str]) -> None:
    from nystra.cli.main import main

    before = signal.getsignal(signal.SIGINT)
    assert main(["run", "--help"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
    capsys.readouterr()


@pytest.mark.release
def test_interrupts_all_over_the_start(tmp_path: Path) -> None:
    model = save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())
    (tmp_path / "in").mkdir()
    for number in range(100):
        pixels = np.random.default_rng(number).random((300, 300, 3), np.float32)
        write_picture(tmp_path / "in" / f"{number}.png", Picture(pixels))
    command = [sys.executable, "-m", "nystra.cli.main", "run", str(model), "-q"]
    command += ["-i", str(tmp_path / "in"), "--overwrite"]

    def started(out: Path) -> subprocess.Popen[bytes]:
        out.mkdir()
        return subprocess.Popen([*command, "-o", str(out)], stderr=subprocess.PIPE, **LISTENING)

    begin = time.monotonic()
    first = started(tmp_path / "first")
    while not list((tmp_path / "first").glob("[0-9]*.png")):
        assert first.poll() is None
        time.sleep(0.005)
    seconds = time.monotonic() - begin
    first.kill()
    first.communicate()
    codes: Counter[int] = Counter()
    for number in range(TRIES):
        process = started(tmp_path / f"{number}")
        time.sleep(seconds * (number + random.random()) / TRIES)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        codes[process.returncode] += 1
        unready = b"Fatal Python error: init_import_site" in errors  # Python itself begins
        assert process.returncode in (130, -signal.SIGINT) or unready, (number, errors)
    assert codes[130] > TRIES / 3, codes  # else the start was not reached
