"""Neither nystra nor a library that it loads reports anything to anybody.

A command runs with an empty HOME and without the variables of CI, in which libraries report
nothing anyway. onnxruntime and OpenVINO leave an identity in HOME before they connect; where strace
can run, connections of native code and of child processes are seen too.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import save_file

from later import full
from nystra.core import VARIABLES
from runtime_models import nystra_metadata, save_upscaler
from shared import ROOT
from small_swinir import state_of

OLD = ROOT / "tests/compatibility/0.1.0"
MODEL = str(OLD / "full.onnx")  # of no use for images
IMAGE = ROOT / "export/photographs/chelsea.png"
RUN = ["run", "double.onnx", "-i", str(IMAGE), "-o", "out.png"]
COMMANDS = (
    [*RUN, "--jobs", "2"],
    ["validate", MODEL],
    ["check", MODEL, "--baseline", str(OLD / "full.baseline.json")],
    ["inspect", MODEL],
    ["bench", MODEL, "--sizes", "16x16", "--runs", "3"],
    ["deploy", "triton", MODEL, "-o", "triton"],
    ["export", "tiny.safetensors", "-o", "m.onnx", "--attn", "auto", "--report", "page"],
)
LONG = 12
"""Seconds: onnxruntime connects nine seconds after it is loaded."""


def made(folder: Path) -> Path:
    """Make a folder with a home and a place to work in, which has a model."""
    (folder / "home").mkdir(parents=True)
    (folder / "work").mkdir()
    save_upscaler(folder / "work/double.onnx", metadata=nystra_metadata())
    return folder


@functools.cache
def strace() -> list[str]:
    """The start of a command whose connections are recorded; empty where strace cannot run."""
    command = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-e",
        "trace=connect,sendto,sendmsg,sendmmsg",
    ]
    if shutil.which("strace") is None:
        return []
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else []


def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start Python; what it leaves and connects to, `reports` returns."""
    traced = [*strace(), "-o", str(folder / "trace")] if strace() else []
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*traced, sys.executable, *command],
        cwd=folder / "work",
        env=environment,
        start_new_session=True,  # strace passes no signal on: they go to the group
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def reports(folder: Path) -> list[str]:
    """Return connections, name lookups and files that are no results and no cache of nystra's."""
    trace = folder / "trace"
    seen = (
        [line for line in trace.read_text().splitlines() if "AF_INET" in line] if strace() else []
    )
    places = [
        *(folder / "home").rglob("*"),
        *(folder / "work").rglob(".*"),
        *(folder / "work").glob(":*"),
    ]
    ours = folder / "home/.cache/nystra"
    return seen + [str(path) for path in places if path.is_file() and ours not in path.parents]


def skip_without_strace() -> None:
    if not strace():
        pytest.skip("strace does not run here: HOME stayed empty, connections were not looked at")


def run(arguments: list[str], folder: Path) -> None:
    """Run a command, which reports nothing."""
    if arguments[0] == "export":
        save_file(state_of(), folder / "work/tiny.safetensors")
    process = start(["-m", "nystra.cli.main", *arguments], folder)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, (arguments, said.decode())
    assert reports(folder) == [], arguments


@contextmanager
def service(folder: Path) -> Iterator[None]:
    """Run a service until the block is left; it reports nothing, and restores an image."""
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    process = start(["-m", "nystra.cli.main", "serve", "double.onnx", "--port", "0"], folder)
    try:
        assert process.stdout is not None
        address = next(
            found[0]
            for line in process.stdout
            if (found := re.search(r"http://127\.0\.0\.1:\d+", line.decode()))
        )
        request = urllib.request.Request(f"{address}/v1/restore", IMAGE.read_bytes())
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.read().startswith(b"\x89PNG")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
    assert reports(folder) == []


@pytest.mark.parametrize("backend", ["auto", *full("openvino")])
def test_a_run_reports_nothing(backend: str, tmp_path: Path) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino", reason="nystra[openvino] is not installed")
    run([*RUN, "--backend", backend], made(tmp_path / "here"))
    skip_without_strace()


@pytest.mark.full
def test_a_service_reports_nothing(tmp_path: Path) -> None:
    with service(made(tmp_path / "here")):
        pass
    skip_without_strace()


@pytest.mark.release
def test_a_long_service_and_commands_beside_it_report_nothing(tmp_path: Path) -> None:
    with service(made(tmp_path / "service")):
        begun = time.monotonic()
        for number, arguments in enumerate(COMMANDS):
            run(arguments, made(tmp_path / str(number)))
        time.sleep(max(0.0, begun + LONG - time.monotonic()))
    skip_without_strace()


def test_what_reports_is_seen(tmp_path: Path) -> None:
    """Negative control."""
    folder = made(tmp_path / "here")
    code = (
        "import pathlib, socket; pathlib.Path.home().joinpath('id').touch();"
        "socket.socket(type=socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    )
    start(["-c", code], folder).communicate(timeout=60)
    seen = reports(folder)
    assert any("home/id" in one for one in seen)
    assert not strace() or any("htons(9)" in one for one in seen)


@pytest.mark.parametrize("first", ["nystra", "nystra.runtime", "nystra.plugins.library"])
def test_an_import_turns_telemetry_off(first: str) -> None:
    """Before the program itself imports onnxruntime or OpenVINO."""
    code = f"import {first}, os, sys; print(*map(os.environ.get, {list(VARIABLES)!r}));"
    code += "print(sys.modules['openvino_telemetry'])"
    for text, expected in ((None, "1 0"), ("", "1 0"), ("0", "0 0")):
        given = {} if text is None else {"ORT_DISABLE_TELEMETRY": text}
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        made = subprocess.run(
            [sys.executable, "-c", code], env={**kept, **given}, capture_output=True, text=True
        )
        assert made.stdout.split("\n")[:2] == [expected, "None"], made.stderr


def test_programs_without_nystra_are_told() -> None:
    """Where a page, an example or a written script loads onnxruntime by itself."""
    loads = re.compile(r"^import onnxruntime|\"import onnxruntime|Ort::Env\b|core\.ort\.", re.M)
    found = []
    for folder in ("docs", "examples", "deploy"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in {".md", ".py", ".cc"} and loads.search(path.read_text("utf-8")):
                found.append(path.name)
                assert re.search("(?i)telemetry", path.read_text("utf-8")), path
    assert len(found) >= 4
