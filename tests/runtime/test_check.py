"""``nystra check``: regressions exit 1, invalid input 2, a missing backend 3; its reports."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from checked_upscaler import check, damage, save_checked_upscaler
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime.checking.baseline import Accepted, Baseline, list_guarded_items, read_baseline
from nystra.runtime.checking.gate import CheckResult, check_measured
from nystra.runtime.checking.measured import Measured
from nystra.runtime.checking.report import github_annotations, junit, markdown
from nystra.runtime.model.onnx_graph import count_nodes
from nystra.runtime.model.references import read_references, write_references
from runtime_models import nystra_metadata, save_operator, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_checked_upscaler(tmp_path)


def test_accept_then_pass(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(model, "--update", "-q") == 0
    stored = json.loads(model.with_name("baseline.json").read_text())
    assert stored["schema_version"] == 1
    assert stored["items"]["nodes"] == {"accepted": 2.0, "tolerance": 0.0}
    assert stored["items"]["max_abs"] == {"accepted": 0.0, "tolerance": 2e-4}
    assert stored["items"]["bytes"]["accepted"] == model.stat().st_size
    assert check(model, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["passed"]
    assert not document["updated"]
    assert {item["state"] for item in document["items"]} == {"passed"}


def test_a_damaged_model_is_exit_code_1(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(model, "--update", "-q") == 0
    damage(model, 1.01)
    junit_file, summary = model.with_name("junit.xml"), model.with_name("summary.md")
    assert check(model, "--junit", str(junit_file), "--markdown", str(summary)) == 1
    out = capsys.readouterr().out
    assert "max_abs" in out
    assert "failed" in out
    cases = ElementTree.parse(junit_file).getroot().findall("testsuite/testcase")
    failed = {case.get("name") for case in cases if case.find("failure") is not None}
    assert failed == {"max_abs", "psnr", "outputs", "weights"}
    assert "4 of 9 items failed" in summary.read_text()


def record(model: Path, **meta: Any) -> None:
    """Write references of the original upscaler again, with these tolerances."""
    references = read_references(model.with_suffix(".npz"))
    write_references(model.with_suffix(".npz"), references.cases, meta)


def states(model: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert check(model, "--json", *arguments) in (0, 1)
    items = json.loads(capsys.readouterr().out)["items"]
    return {item["item"]: item["state"] for item in items}


def same_as_validate(model: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether the file passes; ``check`` and ``validate`` must agree."""
    verdict = states(model, capsys)["max_abs"] == "passed"
    assert main(["validate", str(model), "--threads", "1", "-q"]) == (0 if verdict else 1)
    return verdict


def test_each_size_has_the_tolerance_it_was_recorded_with(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(model, tolerances=[1e-4, 0.05])
    assert check(model, "--update", "-q") == 0
    damage(model, 1.01)  # 0.01 is within 0.05, and above what the first size may be
    assert not same_as_validate(model, capsys)
    assert check(model) == 1
    assert "at 16x16 it is 0.0" in capsys.readouterr().out
    record(model, tolerances=[0.05, 0.05])
    assert same_as_validate(model, capsys)
    baseline = model.with_name("baseline.json")
    stored = json.loads(baseline.read_text())
    for tolerance, state in ((1e-3, "failed"), (0.02, "passed"), (0.5, "passed")):
        stored["items"]["max_abs"]["tolerance"] = tolerance
        baseline.write_text(json.dumps(stored))
        assert states(model, capsys)["max_abs"] == state, "a smaller one holds for all sizes"
    record(model, tolerances=[1e-4, 1e-4])
    assert states(model, capsys)["max_abs"] == "passed", "a larger one takes their place"


def test_behind_a_seeded_search_the_mean_counts_as_in_validate(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(model, tolerances=[1e-4, 1e-4], mean_tolerances=[0.02, 0.02])
    assert check(model, "--update", "-q") == 0
    damage(model, 1.01)  # the mean is 0.005, the largest 0.01
    assert same_as_validate(model, capsys)
    verdicts = states(model, capsys)
    assert verdicts["psnr"] == "passed", "the matches that changed it are excused"
    assert {name for name, state in verdicts.items() if state == "failed"} == {"weights"}
    assert check(model) == 1
    out = capsys.readouterr().out
    assert "the mean 0.00" in out
    assert "allowed is 0.02" in out
    assert check(model, "--update", "-q") == 0, "and it can be accepted"
    damage(model, 1.05)
    assert not same_as_validate(model, capsys)
    assert states(model, capsys)["psnr"] == "failed"
    record(model, tolerances=[1e-4, 1e-4], mean_tolerances=[0.02, 0.04])
    assert not same_as_validate(model, capsys), "the other size is still wrong"
    record(model, tolerances=[1e-4], mean_tolerances=[0.02, 0.04])
    assert check(model) == 2
    assert "got 1 tolerances, expected one for 2 cases" in capsys.readouterr().err
    record(model, tolerances=["x", "y"])
    assert check(model) == 2
    assert "a tolerance is 'x', expected a number" in capsys.readouterr().err


@pytest.mark.parametrize("gain", [float("nan"), 0.0])
def test_nan_and_flat_outputs_fail_and_are_never_accepted(model: Path, gain: float) -> None:
    damage(model, gain)
    assert check(model, "--update", "-q") == 1
    assert not model.with_name("baseline.json").exists()


def test_a_rejected_update_keeps_the_baseline(model: Path) -> None:
    assert check(model, "--update", "-q") == 0
    before = model.with_name("baseline.json").read_bytes()
    damage(model, 1.5)
    assert check(model, "--update", "-q") == 1
    assert model.with_name("baseline.json").read_bytes() == before


@pytest.mark.full
def test_more_nodes_and_more_bytes_are_regressions(model: Path) -> None:
    assert check(model, "--update", "-q") == 0
    proto = onnx.load(model)
    proto.graph.output[0].name = "same"
    proto.graph.node.append(onnx.helper.make_node("Identity", ["output"], ["same"]))
    proto.graph.node.append(onnx.helper.make_node("Identity", ["same"], ["output2"]))
    del proto.graph.node[-1]
    proto.graph.node[1].output[0] = "inner"
    proto.graph.node[2].input[0] = "inner"
    proto.graph.node[2].output[0] = "output"
    proto.graph.output[0].name = "output"
    proto.doc_string = "x" * 2000
    onnx.save(proto, model)
    verdicts = run_json(model)
    assert {name for name, state in verdicts.items() if state == "failed"} == {"nodes", "bytes"}


def run_json(model: Path, *arguments: str) -> dict[str, str]:
    command = [sys.executable, "-m", "nystra.cli.main", "check", str(model), "--baseline"]
    command += [str(model.with_name("baseline.json")), "--threads", "1", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {item["item"]: item["state"] for item in json.loads(done.stdout)["items"]}


def test_node_count_is_onnx_own(model: Path) -> None:
    assert count_nodes(model) == len(onnx.load(model).graph.node)
    operator = save_operator(model.with_name("operator.onnx"), body=True)
    assert count_nodes(operator) == 1  # the body's node is not the graph's


def test_quality_and_speed(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    for folder, side in (("low", 16), ("high", 32)):
        (tmp_path / folder).mkdir()
        pixels = np.kron(np.arange(256).reshape(16, 16), np.ones((side // 16, side // 16)))
        restored = np.repeat(pixels.astype(np.uint8)[:, :, None], 3, 2)
        image.fromarray(restored).save(tmp_path / folder / "a.png")
    images = ["--images", str(tmp_path / "low"), "--truth", str(tmp_path / "high")]
    other = save_upscaler(tmp_path / "other.onnx", metadata=nystra_metadata())
    speed = ["--speed-against", str(other), "--speed-seconds", "0.2"]
    size = ["--speed-size", "24x40"]
    assert check(model, "--update", "-q", *images, *speed, *size) == 0
    path = model.with_name("baseline.json")
    stored = json.loads(path.read_text())
    assert stored["speed"] == {"against": "other.onnx", "size": [24, 40]}
    assert stored["quality"]["images"] == ["a.png"]
    assert 0.1 < stored["items"]["speed"]["accepted"] < 10

    assert check(model) == 2  # an accepted figure is not passed over in silence
    assert "has quality_psnr, which is not measured" in capsys.readouterr().err
    assert check(model, *images) == 2
    assert "has speed, which is not measured" in capsys.readouterr().err
    assert check(model, "--json", "--partial") == 0
    states = {item["item"]: item["state"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert states["speed"] == states["quality_ssim"] == "skipped"

    stored["items"]["speed"] = {"accepted": 1e6, "tolerance": 0.5}
    path.write_text(json.dumps(stored))
    assert check(model, *speed, "--partial") == 1
    assert "times as fast" in capsys.readouterr().out
    (tmp_path / "low" / "a.png").rename(tmp_path / "low" / "b.png")
    (tmp_path / "high" / "a.png").rename(tmp_path / "high" / "b.png")
    assert check(model, *images, "--partial") == 2
    assert "different settings (images)" in capsys.readouterr().err


def test_bad_baselines_are_exit_code_2(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model.with_name("baseline.json")
    assert check(model) == 2
    assert "--update" in capsys.readouterr().err
    assert check(model, "--update", "-q") == 0
    good = json.loads(path.read_text())
    accepted: dict[str, Any] = {"accepted": 1, "tolerance": 0}
    cases: list[tuple[Any, str]] = [
        ([], "schema_version"),
        ({**good, "schema_version": 2}, "schema_version 2, expected 1"),
        ({**good, "color": 1}, "unknown keys ['color']"),
        ({"schema_version": 1, "files": {}}, "is no baseline, since it has no items: name"),
        ({**good, "model": 3}, "model is 3, expected a string"),
        ({**good, "items": {"smell": accepted}}, "unknown keys ['smell']"),
        ({**good, "items": {"nodes": {"accepted": 1}}}, "missing keys ['tolerance']"),
        ({**good, "items": {"nodes": {"accepted": "2", "tolerance": 0}}}, "accepted is '2'"),
        ({**good, "items": {"nodes": {"accepted": 2, "tolerance": -1}}}, "tolerance is -1"),
        ({**good, "items": {"speed": accepted}}, "no 'speed' that says"),
        ({**good, "speed": {"against": "a.onnx", "size": [0, 1]}}, "size is [0, 1]"),
        ({**good, "items": {}}, "the baseline has no max_abs"),
    ]
    for value, message in cases:
        path.write_text(json.dumps(value))
        assert check(model) == 2, value
        assert message in capsys.readouterr().err, value
    path.write_text("{")
    assert check(model) == 2
    assert "not valid JSON" in capsys.readouterr().err
    assert check(model, "--update") == 2, "a file that is no baseline is never overwritten"
    assert path.read_text() == "{"


def test_bad_usage_is_exit_code_2(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(model, "--update", "-q") == 0
    for arguments, message in [
        (["--images", "x"], "are used together"),
        (["--speed-size", "8"], "--speed-size is '8', expected a height x width such as"),
        (["--speed-seconds", "0"], "--speed-seconds is 0.0, expected a number above 0"),
        (["--junit", str(model / "a.xml")], "is a file, expected a folder"),
        (["--references", "none.npz"], "no recorded references"),
        (["--speed-against", "none.onnx"], "cannot read"),
    ]:
        assert check(model, *arguments) == 2, arguments
        assert message in capsys.readouterr().err, arguments
    model.write_bytes(b"not onnx")
    assert check(model) == 2


def test_missing_backend_is_exit_code_3(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(model, "--update", "-q") == 0
    assert check(model, "--backend", "ort-cuda") == 3
    assert "ort-cuda" in capsys.readouterr().err
    for engine in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, engine, None)
    assert check(model) == 3
    assert "onnxruntime is not installed" in capsys.readouterr().err


def test_works_without_torch_and_onnx(model: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnxscript'): sys.modules[name] = None\n"
        "from nystra.cli.main import main\n"
        f"arguments = ['check', {str(model)!r}, '--threads', '1', '--baseline', {str(model)!r}[:-4]"
        " + 'json', '-q']\n"
        "sys.exit(main([*arguments, '--update']) or main(arguments))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_github_annotations_and_summary(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(model, "--update", "-q") == 0
    damage(model, 2.0)
    summary = model.with_name("summary")
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(model.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert check(model, "--json") == 1
    captured = capsys.readouterr()
    assert not json.loads(captured.out)["passed"], "annotations do not disturb the JSON"
    assert "::error file=model.onnx,title=nystra check%3A max_abs::largest" in captured.err
    assert summary.read_text().startswith("before\n### nystra check model.onnx: 4 of 9")
    assert check(model, "-q") == 1
    assert "::error" in capsys.readouterr().out
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert check(model) == 1
    assert "::error" not in capsys.readouterr().out


def test_reports_escape_what_they_hold() -> None:
    nasty = CheckResult("nodes", "failed", 3.0, 2.0, 2.0, "50 % <b> & | \x00\nsecond, line: 1")
    text = junit('a"b<c>.onnx', [nasty, CheckResult("psnr", "skipped", None, 1.0, 1.0, "no")])
    root = ElementTree.fromstring(text)
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("2", "1", "1")
    case = root.find("testsuite/testcase")
    assert case is not None
    assert case.get("classname") == 'a"b<c>.onnx'
    turned = junit("m", [replace(nasty, message="\u202e\x1b\ufffe")])
    failure = ElementTree.fromstring(turned).find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.text == failure.get("message") == "\\u202e\\x1b\\ufffe"
    (line,) = github_annotations(Path("a,b:c.onnx"), [nasty], {"GITHUB_ACTIONS": "true"})
    head, message = line.split("::")[1:]
    assert head == "error file=a%2Cb%3Ac.onnx,title=nystra check%3A nodes"
    assert message == "50 %25 <b> & | \x00%0Asecond, line: 1"
    table = markdown("a|b.onnx", [nasty])
    assert "a\\|b.onnx" in table
    assert "\\<b\\>" in table
    loud = markdown("@all.onnx", [replace(nasty, message="see https://a.b www.a.b a/b#1 &lt;\x1b")])
    assert not re.search(r"@\w|://|www\.|#1| &|\x1b", loud)


@pytest.mark.parametrize(
    ("name", "accepted", "tolerance", "just", "beyond"),
    [
        ("max_abs", 1e-6, 1e-4, 1e-4, 1.01e-4),
        ("psnr", 90.0, 6.0, 84.0, 83.9),
        ("nodes", 800.0, 0.0, 800.0, 801.0),
        ("bytes", 1000.0, 0.02, 1020.0, 1021.0),
        ("quality_ssim", 0.9, 0.001, 0.8991, 0.8989),
    ],
)
def test_limits(name: str, accepted: float, tolerance: float, just: float, beyond: float) -> None:
    baseline = Baseline("m", {name: Accepted(accepted, tolerance)})
    for value, state in ((just, "passed"), (beyond, "failed"), (float("nan"), "failed")):
        assert check_measured(Measured({name: value}), baseline)[0].state == state


def test_every_item_has_a_rule() -> None:
    rules = {item.rule for item in list_guarded_items().values()}
    assert rules == {"ceiling", "drop", "growth", "growth_share", "drop_share"}


def test_read_baseline_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NystraError, match="no baseline at"):
        read_baseline(tmp_path / "none.json")
    if os.name == "posix":
        with pytest.raises(NystraError, match="is a folder, expected a regular file"):
            read_baseline(tmp_path)
