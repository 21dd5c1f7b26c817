"""Engines without TensorRT: shapes, the command's messages, and the process of a builder."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, ExportError, NystraError
from nystra.core.installation import is_installed
from nystra.core.ports.port import Port
from nystra.runtime import Session
from nystra.runtime.checking.dry_run import default_sizes
from nystra.runtime.compiled.cache import Engine, EngineRecord
from nystra.runtime.compiled.model import (
    DEFAULT_TILE,
    EngineModel,
    EngineShapes,
    make_profile,
)
from nystra.runtime.engines import builder as engine_builder
from nystra.runtime.engines.build import equal_commands
from nystra.runtime.engines.builder import RTX, TENSORRT, Builder
from nystra.runtime.machine.gpu import find_device
from nystra.runtime.model.model_facts import ModelFacts, TensorInfo, input_ports
from nystra.runtime.model.onnx_graph import domain_nodes
from runtime_models import save_operator, save_upscaler

IMAGE = Port("input", "image", lengths={"channels": 3})
MASK = Port("mask", "mask", lengths={"channels": 1})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))


def test_one_tile_is_the_default() -> None:
    side = DEFAULT_TILE
    profile = make_profile([IMAGE, MASK], EngineShapes())
    assert profile["input"] == ((1, 3, side, side),) * 3
    assert profile["mask"] == ((1, 1, side, side),) * 3
    assert make_profile([IMAGE], EngineShapes(), 64)["input"][1] == (1, 3, 64, 64)


def test_a_fixed_input_needs_no_profile() -> None:
    fixed = IMAGE.fix_lengths({"height": 8, "width": 8})
    assert make_profile([fixed], EngineShapes()) == {}


def test_shapes_as_trtexec_takes_them() -> None:
    flags = EngineShapes("input:1x3x16x16", None, "input:2x3x64x96")
    profile = make_profile([IMAGE], flags)
    assert profile == {"input": ((1, 3, 16, 16), (2, 3, 64, 96), (2, 3, 64, 96))}
    assert EngineShapes("a:1x2,b:3").min_shapes == {"a": (1, 2), "b": (3,)}
    assert EngineShapes({"a": (1, 2), "b": [3]}).min_shapes == {"a": (1, 2), "b": (3,)}
    only = make_profile([IMAGE], EngineShapes(opt_shapes="input:1x3x32x32"))
    assert only == {"input": ((1, 3, 32, 32),) * 3}


BAD_SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"opt_shapes": "input"}, "`opt_shapes` is 'input', expected shapes such as input:1x3x64x64"),
    ({"opt_shapes": "input:1x3x0x8"}, "expected shapes such as"),
    ({"opt_shapes": {"input": (1, 3, 0, 8)}}, "expected shapes such as"),
    ({"opt_shapes": {}}, "expected shapes such as"),
    ({"opt_shapes": "image:1x3x8x8"}, "has no input image; its inputs are input"),
    ({"opt_shapes": "input:1x3x8"}, r"\(1, 3, 8\) does not fit the input 'input'"),
    ({"opt_shapes": "input:1x4x8x8"}, r"\(1, 4, 8, 8\) does not fit"),
    ({"min_shapes": "input:1x3x9x8", "opt_shapes": "input:1x3x8x8"}, "are not in order"),
    ({"min_shapes": "mask:1x1x8x8"}, "has no input mask"),
]


@pytest.mark.parametrize(("shapes", "message"), BAD_SHAPES)
def test_bad_shapes(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        make_profile([IMAGE], EngineShapes(**shapes))


def test_shapes_must_be_given_for_every_open_input() -> None:
    with pytest.raises(NystraError, match=r"'mask' has the open shape .* give its shapes"):
        make_profile([IMAGE, MASK], EngineShapes(opt_shapes="input:1x3x8x8"))
    with pytest.raises(NystraError, match="exclude each other"):
        make_profile([IMAGE], EngineShapes(opt_shapes="input:1x3x8x8"), 64)
    (tokens,) = input_ports([TensorInfo("tokens", ("n",), "int64")], {})
    with pytest.raises(NystraError, match="'tokens' has the open shape"):
        make_profile([tokens], EngineShapes())


def test_the_sizes_of_a_dry_run() -> None:
    assert default_sizes(ModelFacts(window=(2, 16, 16))) == default_sizes(ModelFacts())
    sizes = [tuple(size.values()) for size in default_sizes(ModelFacts(window=(16, 16)))]
    assert len(set(sizes)) == 5
    assert any(h % 16 or w % 16 for h, w in sizes)
    assert any(h != w for h, w in sizes)
    assert all(min(size.values()) >= 20 for size in default_sizes(ModelFacts(size_minimum=20)))


def test_equal_commands() -> None:
    """Words that the shell reads; Polygraphy's are read by its own command in a further test."""
    model = EngineModel(Path("a; b $(c).onnx"), Path("/lib/libnystra_trt.so"), "")
    record = EngineRecord(
        backend="tensorrt", version="10.15.1.29", profile={"input": ((1, 3, 8, 8),) * 3}
    )
    built = Engine(Path("e.engine"), record, fresh=True)
    lines = equal_commands(model, built)
    words = shlex.split(lines["trtexec"])
    assert words[:3] == ["trtexec", f"--onnx={model.path}", "--saveEngine=e.engine"]
    assert {"--noTF32", "--stronglyTyped", "--dynamicPlugins=/lib/libnystra_trt.so"} < set(words)
    assert words[-2:] == ["--optShapes=input:1x3x8x8", "--maxShapes=input:1x3x8x8"]
    assert "/lib/libnystra_trt_register10.so" in shlex.split(lines["polygraphy"])
    newer = replace(built, record=replace(record, version="11.2.1.2"))
    assert "--stronglyTyped" not in equal_commands(model, newer)["trtexec"]
    rtx = replace(built, record=replace(record, backend="tensorrt-rtx"))
    assert equal_commands(model, rtx) == {}


def test_polygraphy_reads_the_equal_command(tmp_path: Path) -> None:
    """It writes the program that it would run; nothing of TensorRT is loaded for that."""
    pytest.importorskip("polygraphy", reason="polygraphy is not installed (nystra[tensorrt])")
    model = EngineModel.open(save_upscaler(tmp_path / "a model.onnx"))
    profile = {"input": ((1, 3, 1, 2), (1, 3, 3, 4), (1, 3, 5, 6))}
    record = EngineRecord(backend="tensorrt", version="11.2", profile=profile)
    built = Engine(tmp_path / "e.engine", record, fresh=True)
    command = shlex.split(equal_commands(model, built)["polygraphy"])
    main = [sys.executable, "-c", "import polygraphy.tools; polygraphy.tools.main()"]
    done = subprocess.run(
        [*main, *command[1:], "--gen-script", "-"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "strongly_typed=True" in done.stdout
    assert ".add('input', min=[1, 3, 1, 2], opt=[1, 3, 3, 4], max=[1, 3, 5, 6])" in done.stdout
    assert repr(str(model.path)) in done.stdout
    assert repr(str(tmp_path / "e.engine")) in done.stdout


def test_the_library_of_a_model(tmp_path: Path) -> None:
    plain = EngineModel.open(save_upscaler(tmp_path / "m.onnx"))
    assert plain.library is None
    assert "no nystra operators" in plain.library_reason
    with pytest.raises(NystraError, match="no plugin library at"):
        EngineModel.open(plain.path, tmp_path / "none.so")
    library = tmp_path / "libnystra_trt.so"
    library.write_bytes(b"")
    assert EngineModel.open(plain.path, library).library == library


def test_plugins_are_found_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_operator(tmp_path / "m.onnx", body=True)
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(tmp_path))
    library = tmp_path / "libnystra_trt.so"
    library.write_bytes(b"")
    assert EngineModel.open(model).library == library
    assert domain_nodes(model, "nystra") == [("", "NystraDouble")]


@pytest.mark.parametrize("backend", ["tensorrt", "tensorrt-rtx"])
def test_without_the_builder(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_installed(backend.replace("-", "_")):
        pytest.skip(f"{backend} is installed here")
    model = save_upscaler(tmp_path / "m.onnx")
    for more in ([], ["--dry-run"]):
        assert main(["build", str(model), "--backend", backend, *more]) == 3
        error = capsys.readouterr().err
        assert f"pip install '{backend}>=" in error
        assert backend != "tensorrt" or "--dry-run needs only the TensorRT package" in error


BAD_COMMANDS = [
    (["--backend", "abacus"], "unknown backend 'abacus'"),
    (["--backend", "ort-cpu"], "ort-cpu builds no engines: expected tensorrt or tensorrt-rtx or"),
    (["--target", "sm86"], "--target does not apply to tensorrt"),
    (["--target", "sm86", "--dry-run"], "--target does not apply to tensorrt"),
    (["--precision", "bf16"], "--precision does not apply to tensorrt"),
    (["--backend", "openvino", "--level", "2"], "--level does not apply to openvino"),
    (["--backend", "openvino:CPU", "-o", "here"], "--output does not apply to openvino:CPU"),
    (["--tile", "0"], "--tile is 0, expected a whole number of 1 or more"),
    (["--sizes", "8x8"], "--sizes is for --dry-run"),
    (["--trust"], "--trust is for --engine"),
    (["--library", "/nowhere.so"], "no plugin library at /nowhere.so"),
]


@pytest.mark.parametrize(("more", "message"), BAD_COMMANDS)
def test_bad_commands(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_upscaler(tmp_path / "m.onnx")
    assert main(["build", str(model), *more]) == 2
    assert message in capsys.readouterr().err


def test_rtx_gets_the_name_it_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "path" / "tensorrt_rtx_libs"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "libtensorrt_rtx.so.1").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    sys.modules.pop("tensorrt_rtx_libs", None)
    links = tmp_path / "links"
    links.mkdir()
    environment = RTX.links(links)
    assert environment["LD_LIBRARY_PATH"].split(":")[0] == str(links)
    assert (links / "libtensorrt_rtx.so").resolve() == package / "libtensorrt_rtx.so.1"
    assert TENSORRT.links(links) == {}


@pytest.mark.parametrize("backend", ["tensorrt", "tensorrt-rtx"])
def test_running_needs_a_gpu(backend: str, tmp_path: Path) -> None:
    if not isinstance(find_device(), str):
        pytest.skip("there is a GPU here")
    with pytest.raises(BackendUnavailableError, match=backend):
        Session(save_upscaler(tmp_path / "m.onnx"), backend=backend)


WORKER = """
import os, signal, sys, time
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime.workers.loop import answer_requests

def answer(request, send):
    do = request["do"]
    print("nystra: the plugin's reason", file=sys.stderr)
    if do == "build":
        return {"version": "1", "level": request["level"], "refusal": None}
    if do == "check":
        send({"version": "2", "refusal": None})
        os._exit(0)
    if do == "late":
        time.sleep(60)
    if do == "refuse":
        return {"refusal": ["n", "a\\n  b"]}
    if do == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "bad":
        raise NystraError("bad input")
    if do == "missing":
        raise BackendUnavailableError("no builder")
    raise RuntimeError("odd")

sys.exit(answer_requests(answer))
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "odd_builder.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(engine_builder, "WORKER", "odd_builder")
    monkeypatch.setattr(Builder, "require", lambda _self: None)
    model = EngineModel(tmp_path / "m.onnx", None, "")
    return lambda do, **how: TENSORRT.ask(model, do, **how)


def test_an_answer_has_what_was_asked_for(asked: Any) -> None:
    answer = asked("build", level=2)
    assert answer == {"version": "1", "level": 2, "refusal": None}


def test_an_answer_before_the_process_leaves(asked: Any) -> None:
    assert asked("check") == {"version": "2", "refusal": None}


def test_a_refusal_has_the_words_of_the_plugin(asked: Any) -> None:
    refusal = asked("refuse")["refusal"]
    assert str(refusal) == "node n is refused: a b The plugin says: the plugin's reason."


@pytest.mark.full
def test_an_answer_that_takes_too_long_is_a_refusal(asked: Any) -> None:
    assert "no answer to 'late' in 1 s" in str(asked("late", seconds=1.0)["refusal"])


def test_a_death_is_a_refusal(asked: Any) -> None:
    refusal = asked("die")["refusal"]
    assert "the process was ended by SIGSEGV" in refusal.reason
    assert "The plugin says: the plugin's reason." in refusal.reason


@pytest.mark.parametrize(
    ("do", "kind", "message"),
    [
        ("bad", NystraError, "bad input"),
        ("missing", BackendUnavailableError, "no builder"),
        ("odd", ExportError, "RuntimeError: odd"),
    ],
)
def test_errors_keep_their_kind(asked: Any, do: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        asked(do)
    assert type(caught.value) is kind
