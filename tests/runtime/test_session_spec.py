"""The record that a session is opened from."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.runtime import Session, SessionSpec
from runtime_models import nystra_metadata, save_upscaler


def test_it_opens_what_a_session_opens(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    spec = SessionSpec(path, "ort-cpu", threads=2, library=None)
    session = Session.open(spec)
    assert session.spec == spec == Session(path, "ort-cpu", 2, None).spec
    assert (session.path, session.backend) == (path, "ort-cpu")
    single = Session.open(replace(session.spec, threads=1))
    assert (single.spec.threads, spec.threads) == (1, 2)
    image = np.ones((1, 3, 2, 2), np.float32)
    np.testing.assert_array_equal(single(image), session(image))


def test_auto_is_resolved_in_the_session(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    assert Session.open(SessionSpec(path)).spec.backend == "ort-cpu"


def test_a_device_is_taken_off_the_name() -> None:
    spec = SessionSpec(Path("m.onnx"), "openvino:AUTO:GPU,CPU")
    assert (spec.backend, spec.device) == ("openvino", "AUTO:GPU,CPU")
    assert spec.backend_name == "openvino:AUTO:GPU,CPU"
    assert spec == SessionSpec(Path("m.onnx"), "openvino", device="AUTO:GPU,CPU")
    assert SessionSpec(Path("m.onnx"), "openvino:GPU", device="GPU").device == "GPU"
    with pytest.raises(NystraError, match="got the backend 'openvino:GPU' and the device 'CPU'"):
        SessionSpec(Path("m.onnx"), "openvino:GPU", device="CPU")
    with pytest.raises(NystraError, match="`threads` is 0, expected a whole number of 1 or more"):
        SessionSpec(Path("m.onnx"), threads=0)


def test_it_goes_to_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = SessionSpec(
        Path("m.onnx"), "openvino:GPU", 3, Path("lib.so"), "bf16", options={"key": [1, "a"]}
    )
    document = json.loads(json.dumps(spec.as_dict()))
    absolute = SessionSpec.from_dict(document)
    here = Path(os.path.realpath(tmp_path))
    assert absolute == replace(spec, model=here / "m.onnx", library=here / "lib.so")
    assert SessionSpec.from_dict(absolute.as_dict()) == absolute
    assert pickle.loads(pickle.dumps(spec)) == spec
    for library in ("auto", "none", None):
        assert replace(spec, library=library).as_dict()["library"] == (library or "none")
    for wrong in ({}, {**document, "tile": 3}):
        with pytest.raises(NystraError, match="expected the keys"):
            SessionSpec.from_dict(wrong)
