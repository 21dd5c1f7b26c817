"""The backend ``openvino``: nystra's files in OpenVINO, with the operators of libnystra_cpu."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.torch import save_file

from conformance_cases import CASES
from conformance_models import node_model
from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.plugins import native
from nystra.plugins.library import CPU_LIBRARY, library_path
from nystra.runtime import Session
from nystra.runtime.backends import find_backend
from nystra.runtime.checking.measured import bodies_of
from nystra.runtime.model.references import read_references
from runtime_models import nystra_metadata, save_upscaler
from small_swinir import state_of

openvino = pytest.importorskip("openvino", reason="nystra[openvino] is not installed")
built = pytest.mark.skipif(not native.available(), reason="libnystra_cpu.so is not built")


@pytest.fixture
def rounding() -> None:
    """Skip where OpenVINO computes in float32 although bfloat16 is asked for."""
    capabilities = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if "BF16" not in capabilities:
        pytest.skip("this CPU has no bfloat16 instructions")


def exported(folder: Path, **options: Any) -> Path:
    checkpoint = folder / "tiny.safetensors"
    save_file(state_of(window_size=8, embed_dim=8), checkpoint)
    plan = Plan(mechanism("cluster", clusters=(2, 2)))
    return export_model(checkpoint, folder, ExportOptions(plan, speed=False, **options)).model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("openvino"))


@built
def test_it_gives_what_onnxruntime_gives_at_every_size(model: Path) -> None:
    ours, theirs = Session(model, "openvino", threads=1), Session(model, "ort-cpu", threads=1)
    assert (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs)
    assert ours.facts == theirs.facts
    assert ours.library is not None
    rng = np.random.default_rng(0)
    for batch, height, width in ((1, 16, 24), (2, 8, 8), (1, 16, 24), (1, 5, 9), (1, 8, 40)):
        image = rng.random((batch, 3, height, width), np.float32)
        np.testing.assert_allclose(ours(image), theirs(image), atol=1e-5)


@built
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process has one CPU")
def test_no_thread_is_kept_to_one_cpu(model: Path) -> None:
    """OpenVINO pins its threads by default, which ours would inherit."""
    tasks, allowed, seen = Path("/proc/self/task"), os.sched_getaffinity(0), set()
    others = set(tasks.iterdir()) - {tasks / str(threading.get_native_id())}
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for task in set(tasks.iterdir()) - others:
                with contextlib.suppress(ProcessLookupError):
                    seen.add(frozenset(os.sched_getaffinity(int(task.name))))

    session = Session(model, "openvino", threads=2)
    image = np.zeros((1, 3, 64, 64), np.float32)
    session(image)  # compiled now, for which OpenVINO has threads of its own
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for _ in range(5):
            session(image)
        over.set()
        looking.result()
    assert seen == {frozenset(allowed)}


def decibels(got: np.ndarray, expected: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((got - expected) ** 2)))


@pytest.mark.full
def test_the_bodies_run_without_the_library(model: Path) -> None:
    session = Session(model, "openvino", 1, None)
    assert session.library is None
    image = np.random.default_rng(0).random((1, 3, 8, 16), np.float32)
    np.testing.assert_allclose(session(image), Session(model, "ort-cpu", 1)(image), atol=1e-5)


def test_the_body_of_a_search_is_refused(tmp_path: Path) -> None:
    """OpenVINO computes Div and Mod of int64 in float32, exact below 2**24 only."""
    searching = tmp_path / "search.onnx"
    case = next(case for case in CASES if case.operator == "NystraPatchMatch")
    onnx.save(node_model(case), searching)
    with pytest.raises(BackendUnavailableError, match="divides integers in float32"):
        Session(searching, "openvino", 1, "none")
    if native.available():  # then the file is validated without them
        assert bodies_of(Session(searching, "openvino", 1)) is None
        assert bodies_of(Session(searching, "ort-cpu", 1)) is not None


@built
def test_the_library_may_be_named(model: Path) -> None:
    """Like the child processes of a folder."""
    named = Session(model, "openvino", 1, library_path(CPU_LIBRARY))
    assert named.library == library_path(CPU_LIBRARY)


@built
@pytest.mark.usefixtures("rounding")
def test_bfloat16_is_asked_for(model: Path) -> None:
    exact, low = Session(model, "openvino", 1), Session(model, "openvino", 1, precision="bf16")
    assert (exact.precision, low.precision) == (None, "bf16")
    image = np.random.default_rng(0).random((1, 3, 16, 24), np.float32)
    again = low(image)
    assert 30 < decibels(again, exact(image)) < 80
    np.testing.assert_array_equal(low(image), again)
    with pytest.raises(
        NystraError, match="`precision` fp16 does not apply to openvino: expected bf"
    ):
        Session(model, "openvino", precision="fp16")
    with pytest.raises(
        NystraError, match=r"`precision` bf16 does not apply to ort-cpu: .*openvino can"
    ):
        Session(model, "ort-cpu", precision="bf16")


@built
@pytest.mark.usefixtures("rounding")
def test_no_node_converts_beside_ours_in_bfloat16(model: Path) -> None:
    session = Session(model, "openvino", 1, precision="bf16")
    kept: Any = session._backend
    kept.settings |= {"PERF_COUNT": True}
    session(np.zeros((1, 3, 8, 8), np.float32))
    (network,) = kept._compiled.values()
    ours = beside = 0
    for node in network.compiled.get_runtime_model().get_ordered_ops():
        if said(node, "layerType") != "Reference":
            continue
        ours += 1
        assert said(node, "outputPrecisions") == "bf16"
        (taker,) = node.output(0).get_target_inputs()
        for other in (before(node), after(taker.get_node())):
            beside += 1
            assert said(other, "layerType") == "Convolution"
            assert said(other, "outputPrecisions") == "bf16"
    assert (ours > 0, beside) == (True, 2 * ours)


def before(node: Any) -> Any:
    """The node before one, skipping those that do nothing."""
    source = node.input_value(0).get_node()
    return before(source) if said(source, "execTimeMcs") == "not_executed" else source


def after(node: Any) -> Any:
    """The node, or the first after it that does something."""
    if said(node, "execTimeMcs") != "not_executed":
        return node
    (taker,) = node.output(0).get_target_inputs()
    return after(taker.get_node())


def said(node: Any, what: str) -> str:
    """OpenVINO's information on a node that it runs."""
    return str(node.get_rt_info()[what].value)


@built
@pytest.mark.usefixtures("rounding")
def test_it_is_judged_by_a_tolerance_of_its_own(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = read_references(model.with_suffix(".npz")).meta
    pairs = list(zip(recorded["tolerances_in"]["bf16"], recorded["tolerances"], strict=True))
    assert all(low > 4 * exact for low, exact in pairs)
    given = ["validate", str(model), "--backend", "openvino", "--precision", "bf16"]
    monkeypatch.setattr(find_backend("openvino"), "_has_bfloat16", lambda _: False)
    assert main(given) == 0
    said = capsys.readouterr()
    assert "this CPU has no bfloat16 instructions: bfloat16 is emulated" in said.out
    assert "note: this CPU has no bfloat16 instructions: bfloat16 is emulated" in said.err
    assert main([*given, "-q", "--tolerance", str(pairs[0][1])]) == 1


def test_runs_share_the_memory_of_one_request_and_no_result(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(model, "openvino", threads=1)
    images = np.random.default_rng(0).random((3, 1, 3, 16, 16), np.float32)
    expected = [Session(model, "openvino", threads=1)(image) for image in images]
    made = []
    create = openvino.CompiledModel.create_infer_request
    monkeypatch.setattr(
        openvino.CompiledModel, "create_infer_request", lambda one: made.append(1) or create(one)
    )
    results = [session(image) for image in images]
    assert len(made) == 1
    with ThreadPoolExecutor(3) as pool:
        results += pool.map(session, images)
    for result, right in zip(results, [*expected, *expected], strict=True):
        np.testing.assert_array_equal(result, right)


@pytest.mark.full
@built
def test_the_last_four_sizes_are_kept(model: Path) -> None:
    assert find_backend("openvino").measures_memory
    assert not find_backend("openvino:GPU").measures_memory
    kind = find_backend("openvino")
    session = Session(model, "openvino", threads=1)
    assert isinstance(session._backend, kind)
    kept: Any = session._backend
    for width in (8, 16, 24, 8, 32, 40):
        session(np.zeros((1, 3, 8, width), np.float32))
    assert [shapes[0][1][3] for shapes in kept._compiled] == [24, 8, 32, 40]


@built
@pytest.mark.full
def test_the_file_is_validated(model: Path) -> None:
    assert main(["validate", str(model), "--backend", "openvino", "-q"]) == 0


@built
@pytest.mark.full
def test_fp16_files_are_computed_in_float32(tmp_path: Path) -> None:
    half = exported(tmp_path, precision="fp16")
    assert main(["validate", str(half), "--backend", "openvino", "-q"]) == 0


@pytest.mark.full
def test_a_file_without_operators_needs_no_library(tmp_path: Path) -> None:
    inlined = exported(tmp_path, functions="inline")
    image = np.random.default_rng(0).random((1, 3, 16, 8), np.float32)
    ours = Session(inlined, "openvino", threads=1, library=None)
    assert ours.library is None
    np.testing.assert_allclose(ours(image), Session(inlined, "ort-cpu")(image), atol=1e-5)


def test_what_is_wrong_is_said(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare.onnx"
    bare.write_bytes(node_model(CASES[0], functions=False).SerializeToString())
    with pytest.raises(BackendUnavailableError, match="operators without ONNX bodies"):
        Session(bare, "openvino", library=None)
    with pytest.raises(
        NystraError, match="unknown backend 'vino': expected one of auto, fastest, "
    ):
        Session(model, "vino")
    with pytest.raises(NystraError, match=r"`library` other\.so is for onnxruntime: openvino ta"):
        Session(model, "openvino", library="other.so")
    half = save_upscaler(
        tmp_path / "half.onnx", metadata=nystra_metadata() | {"nystra.precision": "bf16"}
    )
    with pytest.raises(BackendUnavailableError, match="openvino has no arithmetic of that type"):
        Session(half, "openvino")
    monkeypatch.setitem(sys.modules, "openvino", None)
    for given in (["run", str(model), "-i", "a.png", "-o", "b.png"], ["build", str(model)]):
        assert main([*given, "--backend", "openvino"]) == 3
        assert re.search("pip install .*'openvino>=", capsys.readouterr().err)


@built
@pytest.mark.full
def test_a_size_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    fixed = exported(tmp_path, static=(1, 3, 16, 16))
    session = Session(fixed, "openvino", threads=1)
    assert session(np.zeros((1, 3, 16, 16), np.float32)).shape == (1, 3, 32, 32)
    with pytest.raises(NystraError, match=r"got the shape \(1, 3, 8, 8\), expected \(1, 3, 16,"):
        session(np.zeros((1, 3, 8, 8), np.float32))
