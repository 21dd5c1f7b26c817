"""Ctrl-C ends a command at any time, also where Python or a library would ignore it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from listening import LISTENING
from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata, save_upscaler

TRIES = 200

# A command in whose course an interrupt comes: {how} it is lost.
COMMAND = """
import ctypes, signal, sys, time
from types import SimpleNamespace
from nystra.cli import console, dispatch, main

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

def building():
    pass

def again():
    said = console.echo_error
    console.echo_error = lambda text: (interrupt(), said(text))
    try:
        interrupt()
    finally:
        interrupt()
        print("cleaned")

def run(args):
    {how}()
    time.sleep(8)
    return 0

def add_arguments(parser):
    if "{how}" == "building":  # a descriptor: Python makes another error of it
        type("Options", (), {"field": SimpleNamespace(), "name": Field()})

class Field:
    __set_name__ = interrupt

dispatch._command = lambda name: SimpleNamespace(SUMMARY="", add_arguments=add_arguments, run=run)
begin = time.monotonic()
code = main.main(["run"])
assert time.monotonic() - begin < 7, "it went on"
sys.exit(code)
"""


PROGRAM = """
import os, sys
from nystra.cli.main import main
os.write(1, b".")
sys.exit(main())
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "how", ["interrupt", "deleted", "callback", "failing", "building", "again"]
)
def test_an_interrupt_that_is_dropped_comes_again(how: str) -> None:
    program = COMMAND.replace("{how}", how)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, **LISTENING
    )
    assert run.returncode == 130, run.stderr
    assert run.stderr.splitlines()[-1] == "interrupted"
    assert ("cleaned" in run.stdout) == (how == "again"), "a second signal stopped the cleaning"


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
        write_image(tmp_path / "in" / f"{number}.png", ImageData(pixels))
    given = [*("run", str(model), "-q", "-i", str(tmp_path / "in")), "--overwrite"]

    def started(out: Path) -> subprocess.Popen[bytes]:
        """A run that has printed its first line; before that Python may ignore the signal."""
        out.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *given, "-o", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **LISTENING,
        )
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        return process

    first = started(tmp_path / "first")
    begin = time.monotonic()
    while not list((tmp_path / "first").glob("[0-9]*.png")):
        assert first.poll() is None
        time.sleep(0.005)
    seconds = time.monotonic() - begin
    first.kill()
    first.communicate()
    for number in range(TRIES):
        process = started(tmp_path / f"{number}")
        time.sleep(seconds * (number + random.random()) / TRIES)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, (number, process.returncode, errors)
        assert errors.splitlines()[-1] == b"interrupted"
