"""The benchmark: interleaved child processes, plausible figures, and children that die."""

import gc
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from benchmark_worker import worker
from exported_files import swinir_files
from nystra.cli.commands.bench import ratio_text
from nystra.cli.dispatch import build_parsers
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.files.reading import file_sha256
from nystra.core.ports.port import image_size
from nystra.plugins.native import available
from nystra.runtime import Session
from nystra.runtime.backends import backend_names
from nystra.runtime.machine.memory import PeakMemory, release_free_memory
from nystra.runtime.timing.bench import Configuration, bench, session_configuration, session_spec
from nystra.runtime.timing.rows import Row, compare_models
from nystra.runtime.workers.child import Child, ChildError
from runtime_models import nystra_metadata, save_operator, save_upscaler
from small_swinir import state_of

QUICK = ["--seconds", "0.05", "--runs", "5", "--threads", "1"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "two.onnx", metadata=nystra_metadata())


@pytest.mark.full
def test_two_models_at_two_sizes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = save_upscaler(tmp_path / "three.onnx", 3, metadata=nystra_metadata(3))
    arguments = ["bench", str(model), str(other), "--sizes", "16x16,16x24", "--json", *QUICK]
    assert main([*arguments, "--backends", "ort-cpu,ort-cuda"]) == 0
    document = json.loads(capsys.readouterr().out)
    machine = document["machine"]
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert machine["threads"] == 1
    assert machine["onnxruntime"]
    rows = document["rows"]
    assert [row["size"] for row in rows] == [[16, 16]] * 4 + [[16, 24]] * 4
    assert [row["measured"] for row in rows] == [True, False] * 4
    for row in rows[::2]:
        assert 3 <= row["runs"] <= 5
        assert 0 < row["p50"] <= row["p90"] <= row["p99"]
        assert row["ratio"] > 0
        assert row["ratio_to"] == f"{model} ort-cpu"
        assert row["images_per_second"] > 0
        assert row["memory"]["above"] >= 0
        assert row["memory"]["peak"] >= row["memory"]["before"]
    assert [row["ratio"] for row in rows if row["model"] == str(model) and row["measured"]] == [
        1,
        1,
    ]
    for row in rows[1::2]:
        assert row["reason"].startswith("not available: ")
        assert "ort-cuda" in row["reason"]


def test_models_are_compared_in_the_same_backend() -> None:
    size, other_size = image_size(16, 16), image_size(16, 24)
    rows = [
        Row("a.onnx", "ort-cpu", size, [2.0, 4.0, 6.0]),
        Row("a.onnx", "openvino", size, [1.0, 1.0, 1.0]),
        Row("b.onnx", "ort-cpu", size, [1.0, 2.0, 3.0]),
        Row("b.onnx", "openvino", size, [3.0, 3.0, 3.0]),
        Row("b.onnx", "ort-cpu", other_size, [1.0]),
        Row("c.onnx", "openvino", size, reason="failed: it"),
    ]
    compared = [(c.model, c.first, c.backend, c.ratio) for c in compare_models(rows)]
    assert compared == [
        ("b.onnx", "a.onnx", "ort-cpu", 0.5),
        ("b.onnx", "a.onnx", "openvino", 3.0),
    ]


@pytest.mark.parametrize("spelling", [["--backends", "x,y"], ["--backend", "x", "--backend", "y"]])
def test_backends_are_a_list_in_both_spellings(
    spelling: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(model), *spelling, "--json", *QUICK]) != 0
    assert "x" in capsys.readouterr().err
    arguments = build_parsers(["bench"])[0].parse_args(["bench", str(model), *spelling])
    assert arguments.backends == ("x", "y")


@pytest.mark.full
def test_the_table_says_what_is_missing_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = save_operator(tmp_path / "operator.onnx", body=True)
    (tmp_path / "libnystra_onnxruntime.so").write_bytes(b"not a library")
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(tmp_path))
    assert main(["bench", str(operator), "--sizes", "8x8", *QUICK]) == 0
    out = capsys.readouterr().out
    assert f"faster, slower: relative to {operator} ort-cpu-bodies, median" in out
    assert "operator.onnx ort-cpu: the operator library" in out
    assert "does not support this model" in out
    assert [line.split()[:3] for line in out.splitlines()[:3]] == [
        ["model", "backend", "operators"],
        [str(operator), "ort-cpu-bodies", "bodies"],
        [str(operator), "ort-cpu", "bodies"],
    ]
    assert main(["bench", str(operator), "--backends", "tensorrt", *QUICK]) == 3
    assert "not available: " in capsys.readouterr().out


@pytest.mark.full
def test_bad_input_is_exit_code_2(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no protobuf")
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(broken.read_bytes())
    fixed = save_upscaler(tmp_path / "fixed.onnx", size=(16, 16), metadata=nystra_metadata())
    for arguments, message in [
        ([str(model), "--sizes", "16"], "--sizes is '16', expected a height x width such as"),
        ([str(model), "--sizes", "0x16"], "--sizes is '0x16', expected a height x width such as"),
        ([str(model), "--backends", "abacus"], "unknown backend 'abacus'"),
        ([str(model), "--checkpoint", str(tmp_path / "no.pth")], "No such file"),
        ([str(model), "--threads", "0"], "expected a whole number of 1 or more"),
        ([str(model), "--seconds", "0"], "--seconds is 0.0, expected a number above 0"),
        ([str(model), "--plot", str(tmp_path / "plot.txt")], "is not a .png"),
        ([str(tmp_path / "none.onnx")], "cannot read the model"),
        ([str(broken)], "is not an ONNX file"),
        ([str(weights)], "`nystra-export " + str(weights) + " --attn full -o weights.onnx` writes"),
    ]:
        assert main(["bench", *arguments]) == 2, arguments
        assert message in capsys.readouterr().err, arguments
    assert main(["bench", str(fixed), "--sizes", "8x8", "--backends", "ort-cpu"]) == 2
    assert "has the fixed size 16x16, got 8x8" in capsys.readouterr().out
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(model.read_bytes().replace(b"Resize", b"Resigh"))
    assert main(["bench", str(damaged), "--backends", "ort-cpu"]) == 2
    assert "damaged.onnx has the operator ai.onnx::Resigh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL: out of memory?"),
        ("print('last words', file=sys.stderr); os._exit(7)", "exit code 7.*last words"),
        ("raise MemoryError", "not enough memory"),
        ("raise ValueError('odd')", "ValueError: odd"),
    ],
)
def test_a_child_that_fails_is_a_row(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    name = worker(tmp_path, monkeypatch, body)
    odd = Configuration("odd.onnx", "odd", name)
    good = session_configuration(model, "ort-cpu", 1)
    rows = bench([odd, good], [image_size(16, 16)], seconds=0.05, runs=3)
    assert rows[0].reason is not None
    with pytest.raises(NystraError, match=reason):
        raise NystraError(rows[0].reason)
    assert rows[0].as_dict()["measured"] is False
    assert rows[1].ratio == 1.0, "the ratio is to the first that runs"


@pytest.mark.full
def test_a_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = worker(tmp_path, monkeypatch, "time.sleep(60)")
    with Child(name, answer_seconds=1.5) as child:
        child.ask("load")
        with pytest.raises(ChildError, match="no answer to 'run' in 2 s"):
            child.ask("run")


def test_what_a_worker_prints_does_not_disturb_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = worker(tmp_path, monkeypatch, "print('noise', flush=True); os.write(1, b'more')")
    with Child(name) as child:
        child.ask("load")
        child.ask("prepare", {"size": {"height": 4, "width": 4}})
        assert child.ask("run")["seconds"] >= 0
        assert child.ask("memory")["peak"] > 0
        with pytest.raises(ChildError, match="got the request"):
            child.ask("dance")


def test_rows_compare_the_rounds_both_took_part_in() -> None:
    first = Row("a.onnx", "ort-cpu", image_size(100, 200), [1.0, 2.0, 4.0])
    second = Row("b.onnx", "ort-cpu", image_size(100, 200), [2.0, 4.0, 8.0, 100.0])
    second.compare(first)
    assert (second.ratio, second.pairs) == (2.0, 3)
    assert first.percentile(50) == 2.0
    assert first.images_per_second == pytest.approx(3 / 7)
    assert first.megapixels_per_second == pytest.approx(3 / 7 * 0.02)


@pytest.mark.full
def test_a_fixed_model_is_timed_at_its_own_size(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed = save_upscaler(tmp_path / "fixed.onnx", size=(13, 17), metadata=nystra_metadata())
    arguments = [str(model), str(fixed), "--backends", "ort-cpu", "--json", *QUICK]
    assert main(["bench", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["size"], row["measured"]) for row in rows] == [([13, 17], True)] * 2


def test_peak_memory_sees_what_was_freed() -> None:
    gc.collect()  # what other tests left is not freed meanwhile
    release_free_memory()
    memory = PeakMemory()
    np.ones(64 << 20, np.uint8)
    if not memory.exact:
        pytest.skip("the system's high-water mark cannot be set back here")
    assert memory.above is not None
    assert (48 << 20) < memory.above < (160 << 20)


@pytest.mark.full
def test_runs_without_torch_and_onnx(model: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in ("torch", "onnx", "onnxscript", "matplotlib"):
        (blocked / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})\n")
    path = os.pathsep.join(filter(None, [str(blocked), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "nystra.cli.main", "bench", str(model), *QUICK]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, check=False, env=environment
        )

    done = run("--sizes", "16x16", "--checkpoint", str(model), "--json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    assert [row["measured"] for row in rows] == [True, True, False]
    assert rows[2]["reason"].startswith("not available: torch is not installed: pip install ")
    done = run("--plot", str(tmp_path / "plot.png"))
    assert done.returncode == 3
    assert re.search("pip install .*'matplotlib>=", done.stderr)


@pytest.mark.full
def test_torch_beside_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = tmp_path / "tiny.safetensors"
    save_file(state_of(window_size=8, embed_dim=8), checkpoint)
    plan = {"schema_version": 1, "default": {"mechanism": "nystra", "landmarks": [2, 2]}}
    models = []
    for sha in (file_sha256(checkpoint), "0" * 64):
        text = json.dumps({**plan, "source_sha256": sha})
        metadata = nystra_metadata(**{"nystra.attention": text})
        models.append(str(save_upscaler(tmp_path / f"{sha[:4]}.onnx", metadata=metadata)))
    bench_it = ["bench", *models, "--checkpoint", str(checkpoint), "--sizes", "16x16"]
    assert main([*bench_it, "--backends", "torch-cpu", "--json", *QUICK]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["measured"] for row in rows] == [True, False], rows
    assert "PyTorch" in rows[0]["note"]
    assert "exported from another checkpoint" in rows[1]["reason"]


@pytest.mark.full
def test_one_table_of_what_is_here_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "tiny.safetensors"
    save_file(state_of(window_size=8, embed_dim=8), checkpoint)
    plan = {"schema_version": 1, "source_sha256": file_sha256(checkpoint)}
    metadata = nystra_metadata(**{"nystra.attention": json.dumps(plan)})
    model = save_upscaler(tmp_path / "m.onnx", metadata=metadata)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the same on a machine that has a GPU
    backends = ["torch-cuda", "ort-cuda", "tensorrt", "ort-cpu"]
    command = ["bench", str(model), "--backends", ",".join(backends), "--sizes", "16x16", *QUICK]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["backend"]: row for row in document["rows"]}
    assert list(rows) == backends
    assert [rows[name]["measured"] for name in backends] == [False, False, False, True]
    for name in backends[:3]:
        assert rows[name]["reason"].startswith("not available: "), rows[name]
    assert "give `checkpoint`" in rows["torch-cuda"]["reason"]
    assert rows["ort-cpu"]["device_memory"] is rows["ort-cpu"]["device_p50"] is None
    assert "gpu" in document["machine"]
    plot = tmp_path / "plot.svg"
    drawn = ["--plot", str(plot)] if find_spec("matplotlib") else []
    assert main([*command, "--checkpoint", str(checkpoint), *drawn]) == 0
    out = capsys.readouterr().out
    assert "torch-cuda: not available: PyTorch" in out
    assert "finds no GPU" in out
    assert "GPU" not in out.splitlines()[0]
    if drawn:
        assert "m.onnx tensorrt" in plot.read_text()
        assert plot.read_text().count("<!--  not available -->") == 3


def test_the_help_names_every_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert all(name in re.sub(r"- +", "-", re.sub(" +", " ", shown)) for name in backend_names())


@pytest.mark.full
def test_plot(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="nystra[report] is not installed")
    plot = tmp_path / "plot.png"
    assert main(["bench", str(model), "--sizes", "16x16,32x32", "--plot", str(plot), *QUICK]) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_bare_name_is_a_shipped_checkpoint(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def none(configurations: Any, *_: object, **__: object) -> list[Any]:
        asked.extend(configurations)
        return []

    monkeypatch.setattr("nystra.runtime.timing.bench.bench", none)
    main(["bench", str(model), "--backends", "torch-cpu", "--checkpoint", "swinir_x2_w16"])
    assert asked[0].request["checkpoint"].endswith("swinir_x2_w16.safetensors")
    assert main(["bench", str(model), "--checkpoint", "swinir_x9"]) == 2
    assert "shipped checkpoints: hat_x2_w16, sst_x2_w64" in capsys.readouterr().err


def test_speed_in_words() -> None:
    first, other = Row("a.onnx", "cpu", {}), Row("b.onnx", "cpu", {})
    assert ratio_text(first) == "-"
    for seconds, text in (
        ([2.0, 1.0], "2.00x faster"),
        ([1.0, 1.5], "1.50x slower"),
        ([1, 1], "1x"),
    ):
        first.times, other.times = [seconds[0]], [seconds[1]]
        for row in (first, other):
            row.compare(first)
        assert (ratio_text(first), ratio_text(other)) == ("1x", text)


@pytest.mark.full
def test_ort_cpu_is_what_it_is_everywhere_else(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not available():
        pytest.skip("the operator library is not built")
    model = swinir_files(tmp_path_factory) / "model.onnx"
    backends = ["ort-cpu", "ort-cpu-bodies"]
    command = ["bench", str(model), "--backends", ",".join(backends), "--sizes", "16x16", *QUICK]
    assert main([*command, "--json"]) == 0
    rows = {row["backend"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert [rows[name]["operators"] for name in backends] == ["kernels", "bodies"]
    assert rows["ort-cpu"]["note"] == Session(model, "ort-cpu").library_reason
    plain = save_upscaler(tmp_path / "plain.onnx")
    assert main(["bench", str(plain), "--backends", "ort-cpu", "--sizes", "16x16", *QUICK]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == [str(plain), "ort-cpu", "-"]
    assert main(["bench", str(plain), "--backends", "ort-cpu-library"]) == 2
    assert "expected one of auto, fastest, ort-cpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "backend", "library", "precision"),
    [
        ("tensorrt-bodies", "tensorrt", "none", None),
        ("tensorrt-rtx-bodies", "tensorrt-rtx", "none", None),
        ("tensorrt-rtx", "tensorrt-rtx", "auto", None),
        ("openvino-bf16", "openvino", "auto", "bf16"),
        ("ort-cpu-bf16", "ort-cpu-bf16", "auto", None),
    ],
)
def test_names_of_a_benchmark(
    name: str, backend: str, library: str, precision: str | None, tmp_path: Path
) -> None:
    """A precision only after the name of a backend that can choose it."""
    spec = session_spec(tmp_path / "m.onnx", name)
    assert (spec.backend_name, spec.library, spec.precision) == (backend, library, precision)
