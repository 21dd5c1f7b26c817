"""Unexpected errors: one line on stderr, exit code 2, no traceback."""

import argparse
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.commands import inspect
from nystra.cli.main import main
from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata, save_upscaler


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (RecursionError("maximum recursion depth"), "nested too deeply"),
        (OverflowError("int too large\nsecond line"), "OverflowError (int too large): add -v"),
        (PermissionError(errno.EACCES, "Permission denied", "a.bin"), "a.bin: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "a file: No space left"),
    ],
)
def test_an_unexpected_error_is_one_line_and_exit_code_2(
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(inspect, "run", fail)
    assert main(["inspect", "model.onnx"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert main(["inspect", "model.onnx", "-v"]) == 2
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert words in said.splitlines()[-1]


def test_a_package_that_code_imports_late_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: argparse.Namespace) -> int:
        raise ModuleNotFoundError("No module named 'zstd'", name="zstd")

    monkeypatch.setattr(inspect, "run", fail)
    assert main(["inspect", "model.onnx"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("error: zstd, which this command needs, is not installed: pip install")
    assert said.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
def test_streams_that_the_starting_program_closed(tmp_path: Path) -> None:
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    command = 'exec "$0" -m nystra.cli.main inspect "$1" <&- >&-'
    done = subprocess.run(["sh", "-c", command, sys.executable, str(model)], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="a program needs more of its environment there")
def test_an_environment_without_a_home(tmp_path: Path) -> None:
    """As in a container: no HOME, no TMPDIR, no folder of a cache."""
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    write_image(tmp_path / "a.png", ImageData(np.zeros((8, 8, 3), np.float32)))
    given = [str(model), "-i", str(tmp_path / "a.png"), "--backend", "fastest"]
    for folder in (tmp_path / "new", tmp_path):
        command = [sys.executable, "-m", "nystra.cli.main", "run", *given]
        done = subprocess.run(
            [*command, "-o", str(folder / "o.png")],
            env={"PATH": os.environ["PATH"]},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (folder / "o.png").exists()


def test_a_full_disk_at_stdout_is_exit_code_2(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this machine")
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "nystra.cli.main", "inspect", str(model), "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == "error: cannot use a file: No space left on device\n"


def test_files_that_are_none_are_refused_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    long = tmp_path / ("n" * 300 + ".onnx")
    for path, reasons in (
        (pipe, ["is a pipe"]),
        (long, ["name too long", "there are no", "is no"]),
    ):
        for command in (
            ["validate", path],
            ["validate", model, "--references", path],
            ["check", path, "--baseline", tmp_path / "b.json", "--update"],
            ["check", model, "--baseline", path],
            ["inspect", path],
            ["bench", path],
        ):
            assert main([str(word) for word in command]) == 2, command
            said = capsys.readouterr().err
            assert any(reason in said for reason in reasons), command
            assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["run", "m.onnx", "-i", "a", "-o", "b", "--thread", "1"],
            "unrecognized arguments: --thread 1; did you mean --threads?\n",
        ),
        (["run", "m.onnx", "-i", "a", "-o", "b", "--x9"], "unrecognized arguments: --x9\n"),
        (["export", "m.pth", "-o", "b.onnx", "--images", "a"], "arguments: --images a\n"),
        (["run", "m.onnx", "-i", "a.png", "b.png", "-o", "c"], "give the folder of several images"),
        (
            ["run", "m.onnx", "-i", "a", "-o", "b", "--threads", "1", "--threads", "1"],
            "given twice",
        ),
        (["run", "m.onnx", "-i", "a", "-i", "c", "-o", "b"], "argument -i/--input: given twice"),
        (["check", "m.onnx", "--baseline", "a", "--baseline", "b"], "given twice, expected once"),
    ],
)
def test_flags_are_written_in_full_and_given_once(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
