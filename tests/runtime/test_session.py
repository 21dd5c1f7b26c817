"""Sessions: what is loaded, reported and refused."""

import json
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.core.ports.port import Port
from nystra.plugins.library import LibraryChoice
from nystra.runtime import Session, SessionSpec
from nystra.runtime.backends import backend_names
from nystra.runtime.model.onnx_header import read_onnx_header
from runtime_models import nystra_metadata, save_operator, save_upscaler


def test_runs_named_arrays(tmp_path: Path) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()), threads=1)
    image = np.random.default_rng(0).random((2, 3, 4, 5), dtype=np.float32)
    expected = np.repeat(np.repeat(image, 2, axis=2), 2, axis=3)
    np.testing.assert_array_equal(session.run({"input": image})["output"], expected)
    np.testing.assert_array_equal(session(image.astype(np.float64)), expected)
    strided = np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 1, 3)), 3, 1)
    np.testing.assert_array_equal(session(strided), expected)


def test_says_what_it_is(tmp_path: Path) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()), threads=1)
    facts = session.facts
    assert (facts.architecture, facts.scale, facts.window) == ("nearest", 2, (8, 8))
    image, restored = facts.image, facts.output_image
    assert image == Port("input", "image", lengths={"channels": 3})
    assert restored == Port("output", "picture", lengths={"channels": 3})
    assert not facts.foreign
    assert session.inputs[0].shape == ("batch", 3, "height", "width")
    assert session.inputs[0].dtype == "float32"
    assert session.library is None
    assert "no nystra operators" in session.library_reason


def test_foreign_model_is_inferred(tmp_path: Path) -> None:
    facts = Session(save_upscaler(tmp_path / "m.onnx"), threads=1).facts
    assert (facts.foreign, facts.scale, facts.image.name) == (True, None, "input")
    assert (facts.image.role, facts.image.channels, facts.output_image.role) == (
        "image",
        3,
        "picture",
    )


def test_float16_input(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx", dtype=onnx.TensorProto.FLOAT16)
    assert Session(path, threads=1)(np.ones((1, 3, 2, 2), np.float32)).dtype == np.float16


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"input": np.zeros((1, 3, 4, 4), np.uint8)}, "got uint8, expected float32"),
        ({"input": np.zeros((1, 1, 4, 4), np.float32)}, r"got the shape \(1, 1, 4, 4\)"),
        ({"input": np.zeros((3, 4, 4), np.float32)}, "got the shape"),
        ({"input": np.zeros((1, 3, 0, 4), np.float32)}, "is empty"),
        ({"image": np.zeros((1, 3, 4, 4), np.float32)}, r"expected \['input'\]"),
        ({}, r"expected \['input'\]"),
    ],
)
def test_wrong_inputs(tmp_path: Path, feeds: dict[str, np.ndarray], message: str) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx"), threads=1)
    with pytest.raises(NystraError, match=message):
        session.run(feeds)


def test_failure_inside_onnxruntime(tmp_path: Path) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>'
        "f (float[1,3,h,w] input) => (float[1,3,h,w] output)"
        "<float[1,3,7,7] c = {" + ",".join(["0"] * 147) + "}> {output = Add(input, c)}"
    )
    onnx.save(graph, tmp_path / "m.onnx")
    session = Session(tmp_path / "m.onnx", threads=1)
    with pytest.raises(NystraError, match=r"onnxruntime cannot run .*m\.onnx"):
        session(np.zeros((1, 3, 4, 4), np.float32))


@pytest.mark.parametrize(
    ("opset", "node", "message"),
    [
        ('"" : 18, "my" : 1', "my.Roi", "has the operator my::Roi, which onnxruntime does not"),
        ('"" : 18', "my.Roi", "has the operator my::Roi, which onnxruntime does not have"),
        ('"" : 18', "Roi", "has the operator ai.onnx::Roi, which onnxruntime does not have"),
        ('"" : 999', "Relu", "onnxruntime cannot load .*: ONNX Runtime only"),
    ],
)
def test_failure_to_load(opset: str, node: str, message: str, tmp_path: Path) -> None:
    """Without codes and names of onnxruntime's own files."""
    model = onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: [{opset}]>"
        f"f (float[1,3,h,w] input) => (float[1,3,h,w] output) {{output = {node}(input)}}"
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(NystraError, match=message) as caught:
        Session(tmp_path / "m.onnx", threads=1)
    assert not re.search("ONNXRuntimeError|onnxruntime_src", str(caught.value))


def test_not_a_model(tmp_path: Path) -> None:
    good = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()).read_bytes()
    cases = {
        "empty": (b"", "is empty"),
        "text": (b"hello, this is no model at all", "not an ONNX file"),
        "png": (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an ONNX file"),
        "zip": (b"PK\x03\x04" + bytes(100), "not an ONNX file"),
        "cut": (good[: len(good) // 3], "truncated"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(NystraError, match=message) as caught:
            Session(tmp_path / name)
        assert caught.value.exit_code == 2, name
    with pytest.raises(NystraError, match="cannot read the model"):
        Session(tmp_path / "absent.onnx")
    with pytest.raises(NystraError, match="is a folder"):
        Session(tmp_path)


def test_every_truncation_is_a_clear_error(tmp_path: Path) -> None:
    good = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()).read_bytes()
    for length in range(0, len(good) - 700, 7):
        (tmp_path / "cut").write_bytes(good[:length])
        with pytest.raises(NystraError):
            Session(tmp_path / "cut")


def test_header_reads_what_onnx_wrote(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    header = read_onnx_header(path)
    assert header.ir_version == 10
    assert header.opsets == {"": 20, "nystra": 1}
    assert header.functions == (("nystra", "NystraDouble"),)
    assert header.metadata == nystra_metadata(1)


def test_bad_metadata_is_named(tmp_path: Path) -> None:
    for key, value in {
        "scale": "two",
        "nystra.io": "{",
        "nystra.range": "[1, 0]",
        "nystra.size_multiple": "-1",
    }.items():
        path = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata(**{key: value}))
        with pytest.raises(NystraError, match=key):
            Session(path)


def test_operator_with_body_needs_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    image = np.ones((1, 3, 2, 2), np.float32)
    session = Session(path, threads=1, library=None)
    np.testing.assert_array_equal(session(image), 2 * image)
    assert "the operator library is disabled" in session.library_reason
    choice = LibraryChoice(tmp_path / "broken.so", "found")
    (tmp_path / "broken.so").write_bytes(b"no library")
    patched = "nystra.runtime.backends._onnxruntime.choose_library"
    monkeypatch.setattr(patched, lambda *a, **k: choice)
    session = Session(path, threads=1)
    assert session.library is None
    assert "bodies are used" in session.library_reason
    np.testing.assert_array_equal(session(image), 2 * image)


def test_operator_without_body_names_the_library(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "m.onnx", body=False)
    with pytest.raises(BackendUnavailableError, match="libnystra_onnxruntime") as caught:
        Session(path, library="none")
    assert caught.value.exit_code == 3


def test_library_that_was_asked_for_must_work(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    with pytest.raises(NystraError, match="no operator library at"):
        Session(path, library=tmp_path / "absent.so")
    (tmp_path / "broken.so").write_bytes(b"no library")
    with pytest.raises(NystraError, match=r"broken.so does not support"):
        Session(path, library=tmp_path / "broken.so")


def test_backends_by_name(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx")
    first = ("ort-cpu", "tensorrt", "tensorrt-rtx", "ort-cuda", "ort-tensorrt", "openvino")
    assert backend_names() == (*first, "ort")
    assert Session(path, backend="ort-cpu", threads=1).backend == "ort-cpu"
    with pytest.raises(NystraError, match="unknown backend 'cuda'") as caught:
        Session(path, backend="cuda")
    assert caught.value.exit_code == 2
    with pytest.raises(NystraError, match="`threads` is 0"):
        Session(path, threads=0)


def test_missing_onnxruntime_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_upscaler(tmp_path / "m.onnx")
    for engine in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, engine, None)
    for backend in ("auto", "ort-cpu"):
        with pytest.raises(BackendUnavailableError, match=r"pip install .*'onnxruntime[!>]="):
            Session(path, backend=backend)


def test_threads_share_a_session(tmp_path: Path) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx"), threads=1)
    images = [np.full((1, 3, 3 + i % 4, 5), i, np.float32) for i in range(64)]
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(session, images))
    for index, (image, output) in enumerate(zip(images, outputs, strict=True)):
        assert output.shape == (1, 3, 2 * image.shape[2], 10)
        assert np.all(output == index)


@pytest.mark.full
def test_runs_without_torch_and_onnx(tmp_path: Path) -> None:
    from PIL import Image

    save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    Image.new("RGB", (5, 4), (9, 8, 7)).save(tmp_path / "in.png")
    program = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnxscript', 'scipy'): sys.modules[name] = None\n"
        "import nystra.runtime as r\n"
        "heavy = {'onnxruntime', 'PIL', 'numpy', 'pyvips', 'tqdm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from pathlib import Path; here = Path(sys.argv[1])\n"
        "done = r.run_images(here / 'm.onnx', here / 'in.png', here / 'out.png', threads=1)\n"
        "assert done[0].output_size == (10, 8), done\n"
        "assert 'nystra.models' not in sys.modules and 'nystra.export' not in sys.modules\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_face_is_what_all_says() -> None:
    import nystra.runtime

    for name in nystra.runtime.__all__:
        assert getattr(nystra.runtime, name) is not None
    with pytest.raises(AttributeError, match=r"No nystra\.runtime attribute nothing"):
        _ = nystra.runtime.nothing


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
