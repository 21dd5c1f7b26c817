"""The study of engines: its tables are consistent, its processes answer, its page gives reasons."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from shared import ROOT
from studies.engines import environments, page
from studies.engines.__main__ import read
from studies.engines.engines import ENGINES, GROUPS
from studies.engines.files import FORMS
from studies.engines.measuring import FILES, psnr, short
from studies.engines.process import EngineError, Process

WORKERS = ROOT / "studies" / "engines" / "workers"


def started(worker: str = "plain_onnxruntime", seconds: float = 60) -> Process:
    return Process(Path(sys.executable), worker, 1, seconds)


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """The request that opens a file that doubles an image."""

    def write() -> dict[str, Any]:
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
        node = helper.make_node("Add", ["x", "x"], ["y"])
        opset = [helper.make_opsetid("", 20)]
        graph = helper.make_graph([node], "double", values[:1], values[1:])
        save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
        np.save(tmp_path / "image.npy", np.full((1, 3, 4, 4), 0.25, np.float32))
        return {
            "path": str(tmp_path / "m.onnx"),
            "image": str(tmp_path / "image.npy"),
            "threads": 1,
            "precision": "f32",
        }

    return write


def test_tables_fit_together() -> None:
    for name, engine in ENGINES.items():
        assert (WORKERS / f"{engine.worker}.py").is_file(), name
        assert engine.environment in environments.ENVIRONMENTS, name
        assert engine.group in GROUPS, name
        assert engine.file in {*FILES, "module"}, name
    assert FILES.keys() == FORMS.keys()


def test_every_package_is_pinned() -> None:
    for row in environments.ENVIRONMENTS.values():
        for pin in (*row.pins, *row.without_dependencies):
            assert pin.count("==") == 1, pin


def test_an_environment_without_its_interpreter_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = environments.Environment(("nothing==1",), python="python0.0")
    monkeypatch.setitem(environments.ENVIRONMENTS, "none", row)
    with pytest.raises(environments.NoEnvironmentError, match="is not on the PATH"):
        environments.interpreter("none", tmp_path)


def test_a_process_runs_its_engine(
    tmp_path: Path, request_of: Callable[[], dict[str, Any]]
) -> None:
    pytest.importorskip("onnxruntime")
    with started() as process:
        assert process.ask("open", request_of())["version"]
        process.ask("first", {"output": str(tmp_path / "out.npy")})
        run = process.ask("run")
        assert run["seconds"] > 0 <= run["processor"]
        assert process.ask("forget") == {}
        assert process.ask("memory")["peak"] > 1 << 20
    assert np.all(np.load(tmp_path / "out.npy") == 0.5)


def test_a_process_says_what_it_could_not_do(tmp_path: Path) -> None:
    with started() as process:
        with pytest.raises(EngineError, match="before an engine was open"):
            process.ask("run")
        with pytest.raises(EngineError, match="No such file"):
            process.ask("open", {"image": str(tmp_path / "none.npy")})


def test_a_process_that_ends_or_is_late_is_told_apart() -> None:
    with started("no_such_worker") as process, pytest.raises(EngineError, match="ended with 1"):
        process.ask("open")
    with started(seconds=0.0) as process, pytest.raises(EngineError, match="longer than 0 s"):
        process.ask("open")
    with started() as process, pytest.raises(EngineError, match="run: longer than 0 s"):
        process.ask("run", seconds=0.0)


def test_psnr_and_reasons() -> None:
    image = np.linspace(0, 2, 100)
    assert psnr(image, image) is None
    assert psnr(image + 0.02, image) == pytest.approx(40)
    assert short("\x1b[31mFailed\x1b[0m to read\n /some/folder/a.onnx") == "Failed to read a.onnx"


def outcome(*seconds: float, others: float = 0.0) -> dict[str, Any]:
    return {
        "seconds": list(seconds),
        "processor": list(seconds),
        "others": others,
        "peak": 10**8,
        "open": 1.0,
        "first": 1.0,
        "psnr": 60.0,
        "threads": 2,
    }


def test_the_page_compares_with_the_fastest_of_the_others() -> None:
    rows = {
        "onnxruntime": outcome(0.4, 0.6, 0.4),
        "openvino": outcome(0.2, 0.3, 0.2),
        "nystra-ort": outcome(0.1, 0.15, 0.1),
        "ncnn": {"reason": "a layer | is missing"},
    }
    text = page.table("swinir_light", rows)
    assert "| **nystra**, `ort-cpu` | 100 (100 to 150) | 0.50 |" in text
    assert "| onnxruntime, plain export | 400 (400 to 600) | 4.00 |" in text
    assert "| OpenVINO, plain export | 200 (200 to 300) | 2.00 |" in text
    assert "does not run: a layer / is missing" in text
    assert "| float32 | 100 | OpenVINO, plain export | 200 | 2.00 | 100 | 100 |" in page.summary(
        {"swinir_light": rows}
    )


def test_busy_rows_are_marked_and_compared_by_processor_time() -> None:
    rows = {"openvino": outcome(9.0, others=0.5), "nystra-openvino": outcome(0.1, others=0.5)}
    rows["openvino"]["processor"] = [0.2]
    text = page.table("swinir_light", rows)
    assert "| OpenVINO, plain export | 9000 (9000 to 9000)\\* | 2.00 | 200 |" in text
    assert "| 100\\* | OpenVINO, plain export | 200\\* | 2.00 |" in page.summary(
        {"swinir_light": rows}
    )


def test_busy_rows_beside_others_are_ranked_by_processor_time() -> None:
    rows = {name: outcome(0.2) for name in ("openvino", "nystra-openvino", "eager")}
    rows["openvino"]["processor"] = [0.4]
    rows["litert"] = outcome(0.3, others=0.5)
    text = page.table("swinir_light", rows)
    assert "| LiteRT by onnx2tf | 300 (300 to 300)\\* | 1.50 |" in text
    assert "| PyTorch eager | 200 (200 to 200) | 1.00 |" in text
    rows["nystra-openvino"]["processor"] = [0.1]
    assert "| 200 | PyTorch eager | 200 | 1.00 |" in page.summary({"swinir_light": rows})
    rows["litert"]["processor"] = [0.15]
    assert "| 100\\* | LiteRT by onnx2tf | 150\\* | 1.50 |" in page.summary({"swinir_light": rows})


def test_a_network_that_only_others_run_is_no_line_of_the_summary() -> None:
    rows = {"onnxruntime": outcome(0.4), "nystra-ort": {"reason": "too large"}}
    assert page.summary({"span": rows}).count("\n") == 2
    assert "does not run: too large" in page.table("span", rows)


def test_the_page_shows_the_results() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(text, read()) == text


def test_the_readme_shows_the_results() -> None:
    """The first table: exact attention in float32, and the fastest other engine."""
    results = read()

    def of(network: str, *, ours: bool) -> dict[str, Any]:
        found = page.fastest(page.ran(results[network], "f32", ours=ours))
        assert found is not None
        return dict(found)

    def faster(network: str) -> str:
        own, other = (of(network, ours=ours) for ours in (True, False))
        return f"{1 / page.ratio(own, other):.1f} times as fast"

    light, readme = "swinir_light", (ROOT / "README.md").read_text(encoding="utf-8")
    words = " ".join(readme.split())
    others = (results[light][name] for name in ("nystra-ort", "onnxruntime"))
    for row in (of(light, ours=True), of(light, ours=False), *others):
        time = page.milliseconds(row, page.basis(row))
        figures = f"| {time:,.0f} ms | {row['peak'] / 1e6:,.0f} MB |"
        assert figures in words, figures
    assert f"SwinIR-M is {faster('swinir_m')}" in words
    assert f"windows of 32 is {faster('swinir_w32')}" in words
