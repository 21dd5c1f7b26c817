"""The progress output of an export, and its line on speed."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from nystra.cli.main import export_main
from nystra.export import ExportOptions, Plan, export_model
from nystra.export.attention.registry import mechanism
from nystra.export.report.figures import figures_of, speed_text
from nystra.export.validate import model_file, speed, stage
from nystra.export.validate.speed import Speed, choose_timed_size, compare_speed, describe_untimed
from nystra.models import load
from nystra.runtime import Session
from nystra.runtime.progress import step_bar
from nystra.runtime.timing.rows import Row
from runtime_models import nystra_metadata, save_upscaler
from small_swinir import state_of

ONE_SIZE = (1, 3, 16, 16)
"""Free sides take twice the time and no other steps."""

NYSTRA = Plan(mechanism("nystra", landmarks=(2, 2)))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.safetensors"
    save_file(state_of(window_size=8, depths=[1]), path)
    return path


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        ExportOptions(),
        ExportOptions(NYSTRA, speed=False, precision="bf16"),
        pytest.param(ExportOptions(NYSTRA), marks=pytest.mark.full),
        pytest.param(ExportOptions(NYSTRA, precision="fp16"), marks=pytest.mark.full),
        pytest.param(ExportOptions(NYSTRA, functions="none"), marks=pytest.mark.full),
        pytest.param(ExportOptions(hyper={"window_size": 4}), marks=pytest.mark.full),
    ],
    ids=("as trained", "bf16", "timed", "fp16", "no bodies", "window"),
)
def test_as_many_steps_come_as_were_announced(
    options: ExportOptions, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        speed, "bench", lambda *_, **__: [Row("a", "b", {}, reason="not timed")] * 2
    )
    steps: list[str] = []
    result = export_model(checkpoint, tmp_path, replace(options, static=ONE_SIZE), steps.append)
    kinds = {re.sub(r"^\d+/\d+ |:.*", "", step) for step in steps}
    assert set(result.seconds) == kinds
    (took,) = (text for name, text in figures_of(result) if name == "took")
    assert max(result.seconds, key=lambda step: result.seconds[step]) in took
    assert steps[0] == "load"
    assert steps[-1].endswith(" write")
    total = len(steps)
    assert [text.split()[0] for text in steps[1:]] == [f"{n}/{total}" for n in range(2, total + 1)]


@pytest.mark.full
def test_piped_output_has_a_line_a_step(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_main([str(checkpoint), "-o", str(tmp_path), "--static", "1x3x16x16"]) == 0
    said = capsys.readouterr().err.splitlines()
    steps = [line for line in said if "/" in line.split()[0]]
    assert steps[-1].split()[0] == f"{len(steps) + 1}/{len(steps) + 1}"


@pytest.mark.full
def test_a_step_moves_the_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with step_bar() as show:
        show("load")
        assert "load" in capsys.readouterr().err
        show("3/4 trace")
        time.sleep(1.3)
    shown = capsys.readouterr().err.split("\r")
    assert any(line.startswith("00:00 |##########          | 3/4 trace") for line in shown)
    assert any(line.startswith("00:01 |##########          | 3/4 trace") for line in shown)


@pytest.mark.full
def test_what_is_judged_runs_as_what_is_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    class Noted(Session):
        def __init__(self, path: Path, **more: Any) -> None:
            super().__init__(path, **more)
            seen.append(dict(self.metadata))

    monkeypatch.setattr(model_file, "Session", Noted)
    options = ExportOptions(speed=False, precision="fp16", static=ONE_SIZE)
    result = export_model(checkpoint, tmp_path, options)
    written = dict(Session(result.model).metadata)
    del written["nystra.psnr_vs_torch"]
    copies = len(seen) // 2
    assert seen[:copies] == [written] * copies
    assert seen[copies:] == [written | {"nystra.precision": "fp32"}] * copies


def test_what_is_timed_is_of_a_size_that_users_run(checkpoint: Path) -> None:
    facts = load(checkpoint).facts
    assert choose_timed_size(facts, 0.0, 0.0) == (256, 256)
    assert choose_timed_size(facts.fix_lengths((1, 3, 40, 56)), 0.0, 1.0) == (40, 56)
    assert "since a run takes 2240 s: `nystra bench`" in describe_untimed((40, 56), 1.0)
    assert not describe_untimed((40, 56), 1e-3)
    assert choose_timed_size(facts, 20.0, 0.0) == (64, 64)  # 20 B x 64^4 = 0.3 GB, 128^4 is 5 GB
    # 10 s and 20 s a run, 2.5 s and 5 s
    assert choose_timed_size(facts, 0.0, 10 / 256**2) == (128, 128)
    assert choose_timed_size(facts, 0.0, 1.0) == (32, 32)


def test_the_figures_are_those_of_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())

    def rows(configurations: Any, sizes: Any, runs: int, **_: Any) -> list[Row]:
        asked.append(runs)
        assert sizes == [{"height": 256, "width": 256}]
        assert [configuration.backend for configuration in configurations] == ["ort-cpu-bodies"] * 2
        return [Row("a", "b", sizes[0], [1.0] * 5), Row("c", "d", sizes[0], [1.0, 2, 3, 4, 5])]

    asked: list[int] = []
    monkeypatch.setattr(speed, "bench", rows)
    slow = compare_speed(path, path, (256, 256), library=False, seconds_per_pixel=1.0)
    measured = compare_speed(path, path, (256, 256), library=False, seconds_per_pixel=1e-9)
    assert (slow, asked) == (measured, [2, 20])
    assert measured == Speed(1.0, 3.0, 3.0, (2.0, 4.0), (256, 256), library=False)
    assert not measured.is_slower
    text = speed_text(measured)
    assert (
        "3.00x as fast as full attention at 256x256 (median of pairs, half of them 2.00x to 4.00x)"
        in text
    )


@pytest.mark.full
def test_a_plan_that_was_measured_to_be_slower_is_warned_of(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower = Speed(1.1, 1.0, 0.91, (0.88, 0.95), (64, 64), library=True)
    monkeypatch.setattr(stage, "compare_speed", lambda *_: slower)
    result = export_model(checkpoint, tmp_path, ExportOptions(NYSTRA, static=ONE_SIZE))
    (text,) = [text for text in result.warnings if "slower" in text]
    assert text == (
        "the plan is slower than full attention, 0.91x its speed at 64x64: "
        "`mechanism` full is exact and faster here"
    )
    unsure = replace(slower, spread=(0.88, 1.02))
    assert not unsure.is_slower, "the runs do not agree"
