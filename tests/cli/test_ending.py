"""Signals end a command while an engine computes, even one that would compute for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from listening import LISTENING
from nystra.runtime import ImageData, write_image

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")

# A command whose engine has begun to compute when it prints a dot; {stop} says what stops it.
PROGRAM = """
import os, sys, threading, time
from nystra.cli.main import main
from nystra.core import ending
from nystra.core.files.scratch import scratch_folder
from nystra.runtime.backends._onnxruntime import OnnxRuntimeBackend

def tell():
    while not ending.engines_compute():
        time.sleep(0.01)
    time.sleep(0.1)
    os.write(1, b".")

threading.Thread(target=tell, daemon=True).start()
if "{stop}" != "engine":
    OnnxRuntimeBackend.stop = lambda self: None
if "{stop}" == "second":
    ending.GRACE = 60.0
with scratch_folder():
    code = main()
sys.exit(code)
"""


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a model that computes for ever."""
    value, number, truth = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", [a], [b]) for a, b in (("c", "d"), ("v", "w"))],
        "body",
        [info("i", number, []), info("c", truth, []), info("v", value, None)],
        [info("d", truth, []), info("w", value, None)],
    )
    shape = ["batch", 3, "height", "width"]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "true", "input"], ["output"], body=body)],
        "endless",
        [info("input", value, shape)],
        [info("output", value, shape)],
        [
            numpy_helper.from_array(np.int64(2**40), "trips"),
            numpy_helper.from_array(np.bool_(True), "true"),
        ],
    )
    folder = tmp_path_factory.mktemp("endless")
    opset = helper.make_opsetid("", 17)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "endless.onnx")
    write_image(folder / "in.png", ImageData(np.zeros((8, 8, 3), np.float32)))
    return folder / "endless.onnx"


def ended(model: Path, scratch: Path, stop: str, *numbers: int) -> tuple[int, str, float]:
    """Send signals to a run, half a second apart; return exit code, last line and seconds."""
    images = ("-i", str(model.with_name("in.png")), "-o", str(scratch / "out.png"))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{stop}", stop), "run", str(model), "-q", *images],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
        **LISTENING,
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    begin = time.monotonic()
    for place, number in enumerate(numbers):
        time.sleep(0.5 if place else 0.0)
        process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    return process.returncode, errors.decode().splitlines()[-1], time.monotonic() - begin


@pytest.mark.full
@pytest.mark.parametrize(
    ("stop", "numbers", "code"),
    [
        ("engine", [signal.SIGINT], 130),
        ("process", [signal.SIGTERM], 143),
        ("second", [signal.SIGINT, signal.SIGINT], 130),
    ],
)
def test_a_run_without_end_is_ended(
    endless: Path, tmp_path: Path, stop: str, numbers: list[int], code: int
) -> None:
    assert ended(endless, tmp_path, stop, *numbers)[:2] == (code, "interrupted")
    assert not list(tmp_path.glob(".scratch*")), "temporary files are removed"
