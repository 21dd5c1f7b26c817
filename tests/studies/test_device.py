"""``.ci/gpu`` on a machine without a GPU: packing, pruning, stages, merging, the page."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies.device import __main__ as command
from studies.device import engines, kernels, pieces, prune, running
from studies.device.page import page
from studies.device.result import Row, load, merge, save
from studies.device.running import Context, Settings, Step, StepError, run_stage

ROOT = Path(__file__).resolve().parents[2]

STEPS = """
import json, pathlib, subprocess, sys, time
from studies.device.running import StepError

def good(context):
    context.keep(facts={"answer": 42, "nan": float("nan")})

def wrong(context):
    context.keep(facts={"before": 1})
    raise StepError("the kernel is not here")

def broken(context):
    raise KeyError("boom")

def dies(context):
    import os
    print("last words", flush=True)
    os._exit(9)

def hangs(context):
    context.keep(times=[{"case": "first", "ms": [1.0], "bytes": 1}])
    subprocess.run(["sleep", "60"])

def waits_for_a_command(context):
    context.command(["sleep", "60"])
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "toy_steps.py").write_text(STEPS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    for name in ("store", "out"):
        (tmp_path / name).mkdir()
    return Settings(tmp_path / "store", tmp_path / "out", quick=True)


def _run(settings: Settings, *works: str, limit: float = 20.0, seconds: float = 60.0) -> list[Row]:
    steps = [Step(work, limit, f"toy_steps:{work}") for work in works]
    return run_stage("toy", steps, settings, seconds)


@pytest.mark.full
def test_a_step_that_fails_is_a_row_and_the_next_one_runs(settings: Settings) -> None:
    rows = _run(settings, "wrong", "broken", "dies", "good")
    assert [row.ok for row in rows] == [False, False, False, True]
    wrong, broken, dies, good = rows
    assert wrong.reason == "the kernel is not here"
    assert wrong.data == {"facts": {"before": 1}}
    assert broken.reason == "KeyError: 'boom'"
    assert "ended with 9: last words" in str(dies.reason)
    assert good.data == {"facts": {"answer": 42, "nan": None}}
    assert load(settings.out / "result.json") == rows
    assert "the kernel is not here" in (settings.out / "result.md").read_text()
    assert "KeyError" in (settings.out / "logs.txt").read_text()


@pytest.mark.full
def test_steps_and_stages_are_stopped_at_their_limits(settings: Settings) -> None:
    """Beside each other, since they wait."""

    def stage(*works: str, limit: float = 60, seconds: float = 60) -> tuple[list[Row], float]:
        own = replace(settings, store=settings.store / works[-1], out=settings.out / works[-1])
        for folder in (own.store, own.out):
            folder.mkdir()
        start = time.monotonic()
        return _run(own, *works, limit=limit, seconds=seconds), time.monotonic() - start

    with ThreadPoolExecutor() as pool:
        hanging = pool.submit(stage, "hangs", limit=8)
        waiting = pool.submit(stage, "waits_for_a_command", limit=8)
        ending = pool.submit(stage, "hangs", "good", seconds=8)
    ([row], took), ([command_row], _) = hanging.result(), waiting.result()
    assert took < 25
    assert not row.ok
    assert str(row.reason).startswith("stopped after 8 s")
    assert row.data["times"][0]["case"] == "first", "its data are kept"
    assert "took more than" in str(command_row.reason), "a command ends before its step"
    [stopped, left_out], _ = ending.result()
    assert "stopped after" in str(stopped.reason)
    assert left_out.reason == "not run: the stage's 8 s are over"


def test_a_step_writes_into_the_output_of_its_stage_alone(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("OUT", raising=False)
    assert [row.ok for row in _run(settings, "good")] == [True]
    assert list(here.iterdir()) == []


def test_a_long_reason_shows_how_it_ends() -> None:
    row = Row("ort", "probe", False, 1.0, "python ended with 1: " + "warning " * 200 + "\nno GPU")
    assert row.cause.startswith("python ended with 1: warning")
    assert row.cause.endswith("warning no GPU")
    assert len(row.cause) < 310
    assert row.cause in page([row])


def test_a_benchmark_without_any_figure_still_says_why(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"rows": [{"model": "m.onnx", "backend": "tensorrt", "measured": False,
                      "reason": "not available: no GPU"}]}  # fmt: skip
    texts = iter([json.dumps(said), "error: no such file"])
    codes: list[Any] = []

    def nystra(*arguments: Any) -> str:
        codes.append(arguments[-1])
        return next(texts)

    monkeypatch.setattr(engines, "nystra", nystra)
    context = Context(settings, time.monotonic() + 60, tmp_path / "data.json")
    files = [tmp_path / "m.onnx", tmp_path / "n.onnx"]
    with pytest.raises(StepError, match=r"n.onnx: error: no such.*tensorrt: not available: no GPU"):
        engines._bench(context, ["tensorrt"], {}, files)
    assert codes == [(0, 2, 3)] * 2
    assert context.data["bench"] == said["rows"]


def test_results_are_merged_over_stages_and_calls(tmp_path: Path) -> None:
    first = [Row("kernels", "host", False, 1.0, "no GPU"), Row("kernels", "table", True, 2.0)]
    second = [Row("ort", "probe", True, 1.0), Row("kernels", "host", True, 3.0)]
    for name, rows in (("a", first), ("b", second)):
        save(tmp_path / f"{name}.json", rows)
    output = tmp_path / "all.json"
    arguments = ["merge", *(str(tmp_path / f"{name}.json") for name in "ab"), "-o", str(output)]
    assert command.main(arguments) == 0
    assert [(row.stage, row.step, row.ok) for row in load(output)] == [
        ("kernels", "host", True),
        ("kernels", "table", True),
        ("ort", "probe", True),
    ]
    assert "| ort | probe | ok |" in output.with_suffix(".md").read_text()
    assert merge([*first, *first]) == first


@pytest.mark.full
def test_a_second_stage_keeps_the_rows_of_the_first(settings: Settings) -> None:
    _run(settings, "good")
    run_stage("later", [Step("good", 20, "toy_steps:good")], settings)
    assert [row.stage for row in load(settings.out / "result.json")] == ["toy", "later"]


def test_the_page_shows_times_and_tables() -> None:
    times = [
        {"case": "softmax", "ms": [2.0, 1.0, 4.0], "bytes": 2 * 10**9},
        {"case": "cluster", "reason": "refused: sizes"},
    ]
    failure = {"reason": "max error 3 of at most 1"}
    table = {"rows": 9, "failed": 1, "failures": [failure], "margins": {"a": 0.5, "b": 3.0}}
    bench = [
        {"model": "x/y.onnx", "backend": "ort-cuda", "size": [64, 32], "measured": False,
         "reason": "failed: no GPU"},
        {"model": "x/y.onnx", "backend": "tensorrt", "size": [64, 32], "measured": True,
         "p50": 2e-3, "p90": 3e-3, "device_p50": 5e-4},
        {"model": "x/y.onnx", "backend": "ort-cpu", "size": [64, 32], "measured": True,
         "p50": 2e-3, "p90": 3e-3, "device_p50": None},
    ]  # fmt: skip
    text = page([Row("kernels", "all", True, 1.0, None, {
        "times": times, "conformance": {"tight": table}, "bench": bench})])  # fmt: skip
    assert "| softmax | 2 | 1 to 4 | 1.000 |" in text
    assert "refused: sizes" in text
    assert "| tight | 9 | 1 | 3.00 (b) |" in text
    assert "- tight: max error 3 of at most 1" in text
    assert "| y.onnx | ort-cuda | 64x32 | - | - | - | failed: no GPU |" in text
    assert "| y.onnx | tensorrt | 64x32 | 2.00 | 3.00 | 0.50 |  |" in text
    assert "| y.onnx | ort-cpu | 64x32 | 2.00 | 3.00 | - |  |" in text


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "noise").write_bytes(random.Random(0).randbytes(40_000))
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o755)
    return folder


def test_pieces_travel_one_at_a_time_and_are_whole_again(bundle: Path, tmp_path: Path) -> None:
    made = pieces.cut(bundle, tmp_path / "packed", {"packed": "1"}, largest=15_000)
    assert [piece.name for piece in made] == ["kernels-1of3", "kernels-2of3", "kernels-3of3"]
    assert all((piece / "part").stat().st_size <= 15_000 for piece in made)
    store = tmp_path / "store"
    for piece in reversed(made):
        with pytest.raises(pieces.PieceError, match="kernels"):
            pieces.whole("kernels", store)
        pieces.keep([piece], store)
    folder = pieces.whole("kernels", store)
    assert (folder / "deep" / "noise").read_bytes() == (bundle / "deep" / "noise").read_bytes()
    assert os.access(folder / "program", os.X_OK)
    assert pieces.whole("kernels", store) == folder


def test_a_missing_piece_is_named(bundle: Path, tmp_path: Path) -> None:
    made = pieces.cut(bundle, tmp_path / "packed", {}, largest=15_000)
    store = tmp_path / "store"
    pieces.keep([made[0], made[2]], store)
    with pytest.raises(pieces.PieceError, match=r"missing of kernels: kernels-2of3$"):
        pieces.whole("kernels", store)


def test_a_damaged_piece_is_not_kept(bundle: Path, tmp_path: Path) -> None:
    made = pieces.cut(bundle, tmp_path / "packed", {})
    part = made[0] / "part"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    (record,) = pieces.keep([tmp_path / "packed"], tmp_path / "store")
    assert "is not what was packed" in record["reason"]
    with pytest.raises(pieces.PieceError, match="no piece of kernels"):
        pieces.whole("kernels", tmp_path / "store")


def test_pieces_of_two_packings_do_not_mix(bundle: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for packed, piece in (("1", 0), ("2", 1)):
        made = pieces.cut(bundle, tmp_path / packed, {"packed": packed}, largest=15_000)
        pieces.keep([made[piece]], store)
    with pytest.raises(pieces.PieceError, match="several packings"):
        pieces.whole("kernels", store)


def _entry(kind: int, architecture: int, code: bytes) -> bytes:
    head = struct.pack("<HHIQ", kind, 1, 64, len(code)) + bytes(12)
    return (head + struct.pack("<I", architecture)).ljust(64, b"\0") + code


def test_machine_code_of_other_gpus_is_made_zeros() -> None:
    entries = _entry(2, 80, b"A" * 96) + _entry(2, 90, b"B" * 64) + _entry(1, 80, b"ptx " * 8)
    binary = prune.MAGIC + struct.pack("<HHQ", 1, 16, len(entries)) + entries
    data = bytearray(b"head" + binary + b"between" + binary + prune.MAGIC)
    before = bytes(data)
    assert prune.prune(data, 90) == prune.Pruned(zeroed=192, kept=2 * (64 + 32))
    assert bytes(data) == before.replace(b"A" * 96, bytes(96))


def test_what_only_looks_like_a_fat_binary_stays() -> None:
    data = bytearray(prune.MAGIC + b"\xff" * 80)
    before = bytes(data)
    assert prune.prune(data, 90) == prune.Pruned(0, 0)
    assert bytes(data) == before


@pytest.mark.full
@pytest.mark.parametrize("stage", sorted(command.STAGES))
def test_without_pieces_every_stage_says_so(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.chdir(ROOT)
    store = tmp_path / "store"
    steps = "unpack,host,validate"
    assert command.main(["run", stage, "--store", str(store), "--steps", steps]) == 1
    rows = load(tmp_path / "out" / "result.json")
    assert len(rows) == 2
    for row in rows:
        assert not row.ok
        assert "no piece of" in str(row.reason)


def test_steps_fit_their_stage() -> None:
    assert running.STAGE_SECONDS <= 560
    for stage, steps in command.STAGES.items():
        assert len({step.name for step in steps}) == len(steps), stage
        assert max(step.limit for step in steps) <= 240
    early = [step.limit for step in kernels.STEPS[:5]]
    assert sum(early) <= 300, "an answer must come early"


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "gpu", "--help"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pieces" in done.stdout


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"schema_version": 7, "rows": []}))
    with pytest.raises(ValueError, match="no result of this version"):
        load(file)
