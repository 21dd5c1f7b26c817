"""``--backend fastest``: timed once, cached, and reported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime import Session, fastest
from nystra.runtime.fastest import choose_fastest
from nystra.runtime.session_spec import SessionSpec
from nystra.runtime.timing.rows import Row
from runtime_models import nystra_metadata, save_upscaler

pytest.importorskip("openvino", reason="nystra[openvino] is not installed")

SECONDS = {"ort-cpu": 0.3, "openvino": 0.2, "openvino-bf16": 0.1}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The sizes that were timed; the times are `SECONDS`."""
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    sizes: list[Any] = []

    def bench(configurations: Sequence[Any], given: Sequence[Any], **_: Any) -> list[Row]:
        sizes.append(tuple(given[0].values()))
        assert all(one.request["session"]["library"] == "auto" for one in configurations)
        return [
            Row(one.model, one.backend, given[0], times=[SECONDS[one.backend]])
            for one in configurations
        ]

    monkeypatch.setattr(fastest, "bench", bench)
    return sizes


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())


def test_it_is_timed_once_for_a_file_and_size_class(
    timed: list[Any], model: Path, tmp_path: Path
) -> None:
    choice = choose_fastest(SessionSpec(model))
    assert (choice.spec.backend, choice.spec.precision) == ("openvino", None)
    assert choice.reason == "fastest at 128x128: openvino 200 ms, ort-cpu 300 ms (timed now)"
    assert choose_fastest(SessionSpec(model)).reason.endswith("(remembered)")
    assert timed == [(128, 128)]
    for side in (100, 64, 20, 300, 256):
        choose_fastest(SessionSpec(model), side=side)
    assert timed == [(128, 128), (64, 64), (256, 256)]
    fixed = save_upscaler(tmp_path / "f.onnx", size=(8, 16), metadata=nystra_metadata())
    choose_fastest(SessionSpec(fixed))
    choose_fastest(SessionSpec(model, threads=1))
    assert timed[3:] == [(8, 16), (128, 128)]


def test_a_home_that_cannot_be_written(
    timed: list[Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: what was timed is used, and not kept."""
    for place in ("/proc/none", None):
        if place is None:
            monkeypatch.delenv("NYSTRA_CACHE_DIR")
            monkeypatch.setenv("XDG_CACHE_HOME", "relative")

            def nowhere() -> Path:
                raise RuntimeError("Could not determine home directory.")

            monkeypatch.setattr(Path, "home", nowhere)
        else:
            monkeypatch.setenv("NYSTRA_CACHE_DIR", place)
        choice = choose_fastest(SessionSpec(model))
        assert choice.reason.endswith(
            "(timed now, and not kept: set NYSTRA_CACHE_DIR to a folder for that)"
        )
    assert len(timed) == 2


def test_bfloat16_takes_part_where_it_is_asked_for(timed: list[Any], model: Path) -> None:
    choice = choose_fastest(SessionSpec(model, precision="bf16"))
    assert (choice.spec.backend, choice.spec.precision) == ("openvino", "bf16")
    assert "openvino-bf16 100 ms, openvino 200 ms, ort-cpu 300 ms" in choice.reason
    assert choose_fastest(SessionSpec(model, precision="fp32")).spec.precision is None
    assert len(timed) == 2
    with pytest.raises(NystraError, match="`precision` fp16 does not apply to fastest"):
        choose_fastest(SessionSpec(model, precision="fp16"))


def test_what_is_remembered_may_be_damaged(timed: list[Any], model: Path, tmp_path: Path) -> None:
    for text in ("", "[]", '{"figures": {"openvino": "x"}}', '{"figures": {}}'):
        choose_fastest(SessionSpec(model))
        (record,) = (tmp_path / "cache" / "figures").glob("*.json")
        assert json.loads(record.read_text())["figures"]["openvino"] == 0.2
        record.write_text(text)
    assert choose_fastest(SessionSpec(model)).spec.backend == "openvino"
    assert len(timed) == 5


def test_what_is_not_here_is_not_timed(
    timed: list[Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only(*names: str) -> None:
        class Kind:
            precisions = frozenset({"fp32"})

            def __init__(self, name: str) -> None:
                self.available = lambda: (name in names, f"{name} is not installed")

        monkeypatch.setattr(fastest, "list_timed_backends", lambda: ("ort-cpu", "openvino"))
        monkeypatch.setattr(fastest, "find_backend", Kind)

    only("ort-cpu")
    choice = choose_fastest(SessionSpec(model))
    assert choice.reason == "fastest: ort-cpu, the only one installed (openvino is not installed)"
    only()
    with pytest.raises(
        BackendUnavailableError, match="no backend is installed to choose from: ort-c"
    ):
        choose_fastest(SessionSpec(model))
    assert timed == []


def test_nothing_runs_it(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))

    def bench(configurations: Sequence[Any], given: Sequence[Mapping[str, int]], **_: Any) -> Any:
        return [
            Row(one.model, one.backend, given[0], reason="failed: no") for one in configurations
        ]

    monkeypatch.setattr(fastest, "bench", bench)
    with pytest.raises(
        NystraError, match="not run on any of ort-cpu, openvino: ort-cpu failed: no; op"
    ):
        choose_fastest(SessionSpec(model))
    assert not (tmp_path / "cache").exists()


def test_commands_say_what_was_chosen(
    timed: list[Any], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "a.png"
    Image.new("RGB", (16, 16)).save(image)
    given = ["run", str(model), "-i", str(image), "-o", str(tmp_path / "b.png")]
    assert main([*given, "--backend", "fastest", "-t", "8", "--threads", "1"]) == 0
    assert "note: fastest at 64x64: openvino 200 ms, ort-cpu 300 ms" in capsys.readouterr().err
    fastest = choose_fastest(SessionSpec(model, "fastest", threads=1))
    assert "fastest at 128x128: openvino 200 ms" in fastest.reason
    session = Session.open(fastest.spec)
    assert session.backend == "openvino"
    assert session(np.zeros((1, 3, 8, 8), np.float32)).shape == (1, 3, 16, 16)
    assert timed == [(64, 64), (128, 128)]


def test_nothing_is_timed_where_a_session_is_made(timed: list[Any], model: Path) -> None:
    spec = SessionSpec(model, "fastest")
    for opening in (lambda: Session(model, "fastest"), lambda: Session.open(spec)):
        with pytest.raises(NystraError, match=r"fastest is not a backend: call nystra\.runtime"):
            opening()
    assert timed == []


def test_inspect_says_it_too(
    timed: list[Any], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(model), "--backend", "fastest"]) == 0
    assert "note: fastest at 128x128: openvino 200 ms" in capsys.readouterr().err
    assert timed == [(128, 128)]


@pytest.mark.full
def test_it_is_really_timed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    choice = choose_fastest(SessionSpec(model, threads=1, precision="bf16"), side=8)
    assert all(way in choice.reason for way in ("ort-cpu", "openvino ", "openvino-bf16"))
