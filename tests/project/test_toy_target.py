"""A serving target that CONTRIBUTING's table adds: its flags, its folder and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toy_target
from runtime_models import save_upscaler
from toy_tree import NYSTRA, planted, run_in


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("target"), toy_target.TOY)


@pytest.mark.full
def test_a_model_is_written_for_it(tree: Path, tmp_path: Path) -> None:
    model = save_upscaler(tmp_path / "twice.onnx")
    given = ("deploy", "toy", model, "-o", tmp_path / "out", "--replicas", "3", "-t", "16")
    done = run_in(tree, NYSTRA, *given, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == {
        "folder": str(tmp_path / "out" / "twice"),
        "files": ["serve.json", "twice.onnx"],
    }
    written = json.loads((tmp_path / "out" / "twice" / "serve.json").read_text())
    assert written == {"replicas": 3, "tile": 16, "overwrite": False}
    done = run_in(tree, NYSTRA, *given)
    assert done.returncode == 2
    assert "add --overwrite" in done.stderr
    assert run_in(tree, NYSTRA, *given, "--overwrite").returncode == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("toy", "--replicas", "9"), "--replicas is 9, expected a whole number from 1 to 8"),
        (("triton", "--replicas", "2"), "--replicas does not apply to triton: it is for toy"),
        (("toy", "--gpu"), "--gpu does not apply to toy: it is for triton"),
        (("toy", "--tile", "x"), "--tile is 'x', expected a whole number of 0 or more"),
    ],
)
def test_options_that_do_not_fit(
    tree: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    server, *flags = arguments
    done = run_in(tree, NYSTRA, "deploy", server, "m.onnx", "-o", tmp_path / "out", *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_its_flags_are_in_the_help(tree: Path) -> None:
    usage = " ".join(run_in(tree, NYSTRA, "deploy", "--help").stdout.split())
    assert "toy: the toy server: a folder" in usage
    assert "--replicas N processes that answer, 1 to 8 (default: 2)" in usage
    assert "triton, toy, vapoursynth:" in usage, "what several have"
