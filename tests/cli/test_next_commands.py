"""What a command says to do next can be typed."""

import re
import shlex
from pathlib import Path

import pytest

from nystra.cli.dispatch import build_parsers
from nystra.cli.main import export_main, main
from nystra.runtime.tasks.registry import TASKS
from small_swinir import four_sites


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return four_sites(tmp_path)


@pytest.mark.full
def test_an_export_ends_with_the_command_that_runs_its_file(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "a file.onnx"
    assert export_main([str(checkpoint), "-o", str(model), "--no-speed"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("next: nystra run ")
    words = shlex.split(last.removeprefix("next: nystra "))
    args = build_parsers(["run"])[0].parse_args(words)
    assert args.model == model
    photograph = Path(__file__).parents[2] / "export" / "photographs" / "chelsea.png"
    words = [str(photograph) if word == str(args.input) else word for word in words]
    words = [str(tmp_path / "out.png") if word == str(args.output) else word for word in words]
    assert main([*words, "-q"]) == 0
    assert (tmp_path / "out.png").exists()


def test_every_task_names_example_files() -> None:
    for task in TASKS:
        for name in task.example:
            assert re.fullmatch(r"[a-z]+\.[a-z0-9]+", name)


@pytest.mark.parametrize("command", ["export", "run", "bench", "check", "serve", "validate"])
def test_help_begins_with_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    usage, empty, *_ = capsys.readouterr().out.splitlines()
    assert usage.startswith(f"usage: nystra {command} ")
    assert usage.endswith(" [options]")
    assert empty == ""
