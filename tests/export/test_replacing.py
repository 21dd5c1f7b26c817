"""What an export prints if it needs too much memory, or would replace another file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from nystra.cli.main import export_main
from nystra.export import Plan
from nystra.export.auto_options import Proposal
from nystra.export.plan.settings import Settings
from nystra.export.plan.stage import Planned
from nystra.export.validate.fidelity import Fidelity
from nystra.export.validate.stage import _below
from nystra.runtime.model.manifest import Manifest
from small_swinir import state_of


def test_a_window_that_ruins_the_image_fails_though_the_plan_is_exact() -> None:
    exact = {"a": float("inf")}
    fidelity = Fidelity(plan=exact, as_trained={"a": 10.0, "b": 11.8})
    network = torch.nn.Identity()
    planned = Planned(Plan(), {}, Path("m.onnx"), {}, (), Proposal(Plan()), Settings({}))
    (warning,) = _below(fidelity, None, network, planned)
    assert "10.9 dB against the network at its trained window, below 45.0 dB" in warning
    assert "`window_size`" in warning
    (failure,) = _below(fidelity, 60.0, network, planned)
    assert "below 60.0 dB" in failure
    assert _below(fidelity, 10.0, network, planned) == ()
    assert _below(Fidelity(plan=exact), 60.0, network, planned) == ()


ONE_SIZE = ["--static", "1x3x8x8"]
"""Free sides take twice the time of an export."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.safetensors"
    save_file(state_of(window_size=8, depths=[1]), path)
    return path


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    arguments = ["-o", str(folder / "m.onnx"), "-q", "--no-speed", *ONE_SIZE]
    assert export_main([str(checkpoint), *arguments]) == 0
    return folder / "m.onnx"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--inline"], "with functions attached, now inline"),
        (["--no-functions"], "with functions attached, now none"),
        (["--window", "4"], "at window [8, 8], now [4, 4]"),
        (["--attn", "nystra", "--landmarks", "2x2"], "with another plan"),
        (["--opset", "18"], "with opset 20, now 18"),
        (["--static", "1x3x16x16"], "with static [1, 3, 8, 8], now [1, 3, 16, 16]"),
        (["--precision", "fp16"], "with precision fp32, now fp16"),
    ],
)
def test_another_export_is_not_replaced(
    checkpoint: Path,
    exported: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    before = contents(exported.parent)
    size = [] if "--static" in arguments else ONE_SIZE
    assert export_main([str(checkpoint), "-o", str(exported), *size, *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "--overwrite" in said
    assert contents(exported.parent) == before


def test_another_checkpoint_is_not_replaced(
    tmp_path: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.safetensors"
    save_file(state_of(window_size=8, depths=[1], mlp_ratio=3.0), other)
    assert export_main([str(other), "-o", str(exported)]) == 2
    assert "from another checkpoint (tiny.safetensors)" in capsys.readouterr().err


@pytest.mark.full
def test_the_same_again_and_another_with_overwrite(checkpoint: Path, exported: Path) -> None:
    before = contents(exported.parent)
    again = ["-o", str(exported), "-q", "--no-speed", *ONE_SIZE]
    assert export_main([str(checkpoint), *again]) == 0
    after = contents(exported.parent)
    assert {**after, "m.json": b""} == {**before, "m.json": b""}
    manifest = Manifest.read(exported.with_suffix(".json"))
    assert manifest.problems(exported.parent) == []
    assert manifest.form["functions"] == "attached"
    assert manifest.facts["precision"] == "fp32"


@pytest.mark.parametrize(
    ("name", "content"),
    [("m.json", '{"color": 3}'), ("m.plan.json", "{}"), ("m.onnx", "mine"), ("m.npz", "mine")],
)
def test_files_of_others_are_not_replaced(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str,
) -> None:
    (tmp_path / name).write_text(content)
    assert export_main([str(checkpoint), "-o", str(tmp_path / "m.onnx")]) == 2
    assert name in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: content}


def test_default_names_say_what_differs(checkpoint: Path, tmp_path: Path) -> None:
    from nystra.export import pipeline
    from nystra.export.options import ExportOptions
    from nystra.export.plan.stage import make_plan

    def name(**options: Any) -> str:
        prepared = pipeline.prepare(checkpoint, ExportOptions(**options), lambda _: None)
        return make_plan(prepared, tmp_path, lambda _: None).target.name

    plain = "tiny_2x_dynamic_fp32_op20_full"
    assert name() == f"{plain}.onnx"
    assert name(functions="inline") == f"{plain}_inline.onnx"
    assert name(functions="none") == f"{plain}_bare.onnx"
    assert name(hyper={"window_size": 4}) == f"{plain}_w4.onnx"
    assert name(hyper={"window_size": 8}) == f"{plain}.onnx"


@pytest.mark.full
def test_an_older_file_beside_a_failure_is_named(
    checkpoint: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = exported.read_bytes()
    arguments = ["--attn", "nystra", "--min-psnr", "200", "--no-speed", "--overwrite", *ONE_SIZE]
    assert export_main([str(checkpoint), "-o", str(exported), *arguments]) == 1
    assert "m.onnx, of an earlier export, is unchanged" in capsys.readouterr().err
    assert exported.read_bytes() == before
    failed = json.loads(exported.with_suffix(".failed.json").read_text())
    assert "below 200.0 dB" in failed["validation"]["failures"][0]
