"""``nystra deploy triton``: the contents of the folder, and refusals before it is created."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from classifier_models import save_classifier
from image_files import png_header
from nystra.cli.main import main
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.core.files.reading import file_sha256
from nystra.core.files.writing import atomic_folder
from nystra.deploy.triton.config import block, quote
from nystra.deploy.triton.options import TritonOptions
from nystra.deploy.triton.repository import write_repository
from nystra.plugins.library import is_supported, library_path
from nystra.runtime.compiled.cache import EngineRecord
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import encode_image
from nystra.runtime.session import Session
from nystra.runtime.tasks.handler import read_parameters
from nystra.runtime.tasks.restoration.handler import RestorationHandler, RestoreParameters
from runtime_models import nystra_metadata, save_operator, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "double.onnx", metadata=nystra_metadata())


def parsed(folder: Path) -> Any:
    """Return the folder's configuration, parsed with Triton's protobufs."""
    config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="no tritonclient")
    from google.protobuf.text_format import Parse

    return Parse((folder / "config.pbtxt").read_text(), config_pb2.ModelConfig())


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_texts_of_a_file_stay_texts() -> None:
    assert quote('a "b"\\\n\x1bé\u202e') == '"a \\042b\\042\\134\\012\\033é\\342\\200\\256"'
    assert block("a", "b: 1", block("c", "d: 2")) == "a {\n  b: 1\n  c {\n    d: 2\n  }\n}"


def test_image_files_for_the_python_backend(model: Path, tmp_path: Path) -> None:
    folder = write_repository(model, tmp_path / "repository", TritonOptions(tile=64, threads=2))
    assert folder == tmp_path / "repository" / "double"
    assert files(folder) == {
        "config.pbtxt",
        "1/model.py",
        "1/model.onnx",
    }
    config = parsed(folder)
    assert (config.name, config.backend, config.max_batch_size) == ("double", "python", 0)
    assert [(port.name, port.data_type, list(port.dims)) for port in config.input] == [
        ("input", 13, [1])  # TYPE_STRING
    ]
    values = {key: value.string_value for key, value in config.parameters.items()}
    assert (values["tile"], values["threads"], values["scale"]) == ("64", "2", "2")
    assert values["nystra.model.sha256"] == file_sha256(model)
    assert config.version_policy.latest.num_versions == 1


def test_tensors_for_onnxruntime(tmp_path: Path) -> None:
    model = save_operator(tmp_path / "operator.onnx", body=True)
    options = TritonOptions("onnxruntime", instances=2, max_batch=4, threads=3, server_path="/srv/")
    folder = write_repository(model, tmp_path / "repository", options)
    config = parsed(folder)
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 4)
    assert config.default_model_filename == "model.onnx"
    assert list(config.input[0].dims) == [3, -1, -1]
    assert config.input[0].data_type == 11  # TYPE_FP32
    assert list(config.output[0].dims) == [3, -1, -1]
    assert config.dynamic_batching.max_queue_delay_microseconds > 0
    assert (config.instance_group[0].count, config.instance_group[0].kind) == (2, 2)  # KIND_CPU
    assert config.parameters["intra_op_thread_count"].string_value == "3"
    if is_supported():
        name = library_path().name
        assert list(config.model_operations.op_library_filename) == [f"/srv/operator/1/{name}"]
        assert (folder / "1" / name).read_bytes() == library_path().read_bytes()


def test_a_fixed_batch_is_no_batch_of_triton(tmp_path: Path) -> None:
    model = save_upscaler(
        tmp_path / "m.onnx", size=(8, 9), batch=2, dtype=TensorProto.FLOAT16, metadata=None
    )
    config = parsed(write_repository(model, tmp_path / "r", TritonOptions("onnxruntime")))
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert (list(config.input[0].dims), config.input[0].data_type) == ([2, 3, 8, 9], 10)


def test_labels_of_a_classifier(tmp_path: Path) -> None:
    model = save_classifier(tmp_path / "c.onnx")
    for backend in ("python", "onnxruntime"):
        folder = write_repository(model, tmp_path / backend, TritonOptions(backend))
        config = parsed(folder)
        assert {port.label_filename for port in config.output} == {"labels.txt"}
        assert (folder / "labels.txt").read_text() == "red\ngreen\nblue\n"
        assert list(config.output[0].dims) == [3]
    (tmp_path / "two.txt").write_text("a\nb\n")
    with pytest.raises(NystraError, match="has 2 labels, the model has 3 classes"):
        write_repository(model, tmp_path / "r", TritonOptions(labels=tmp_path / "two.txt"))


def test_an_engine_for_tensorrt(model: Path, tmp_path: Path) -> None:
    engine = tmp_path / "double.engine"
    engine.write_bytes(b"engine")
    record = EngineRecord(
        "tensorrt",
        "10.13.3",
        model.name,
        {"model": file_sha256(model)},
        profile={"input": ((1, 3, 64, 64), (2, 3, 64, 64), (4, 3, 64, 64))},
        device={"name": "a GPU"},
    )
    EngineRecord.path_for(engine).write_bytes(record.as_json())
    options = TritonOptions("tensorrt", engine=engine)
    folder = write_repository(model, tmp_path / "r", options)
    config = parsed(folder)
    assert (config.backend, config.max_batch_size) == ("tensorrt", 4)
    assert config.instance_group[0].kind == 1  # KIND_GPU
    assert (folder / "1" / "model.plan").read_bytes() == b"engine"
    assert not (folder / "1" / "model.onnx").exists()
    other = save_upscaler(tmp_path / "other.onnx", scale=3)
    with pytest.raises(NystraError, match="is of another model"):
        write_repository(other, tmp_path / "r", options)
    with_plugins = replace(record, plugins=["attention"])
    EngineRecord.path_for(engine).write_bytes(with_plugins.as_json())
    with pytest.raises(BackendUnavailableError, match=r"1 plugins of nystra, and .*register10.so"):
        write_repository(model, tmp_path / "r2", options)
    library = tmp_path / "libnystra_trt_register10.so"
    library.write_bytes(b"library")
    folder = write_repository(model, tmp_path / "r2", replace(options, library=str(library)))
    assert (folder / "1" / library.name).read_bytes() == b"library"
    with pytest.raises(NystraError, match="tensorrt needs an engine: build one"):
        TritonOptions("tensorrt")


def test_openvino_takes_no_operators(model: Path, tmp_path: Path) -> None:
    config = parsed(write_repository(model, tmp_path / "r", TritonOptions("openvino")))
    assert (config.backend, config.default_model_filename) == ("openvino", "model.onnx")
    operator = save_operator(tmp_path / "operator.onnx", body=True)
    with pytest.raises(NystraError, match="export it with `inline`"):
        write_repository(operator, tmp_path / "r", TritonOptions("openvino"))
    assert not (tmp_path / "r" / "operator").exists()


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
def test_a_model_whose_library_is_not_there(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = save_operator(tmp_path / "bare.onnx", body=False)
    given = ["deploy", "triton", str(bare), "-o", str(tmp_path / "r"), "--backend", backend]
    assert main([*given, "--library", "none"]) == 3
    assert "needs the operator library" in capsys.readouterr().err
    assert not (tmp_path / "r" / "bare").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "torch"}, "`backend` is 'torch', expected python"),
        ({"name": "a/b"}, "`name` is 'a/b'"),
        ({"instances": 0}, "`instances` is 0, expected a whole number of 1"),
        ({"backend": "openvino", "gpu": True}, "`gpu` does not apply"),
        ({"backend": "onnxruntime", "tile": 64}, "`tile` and `overlap` are for `backend` python"),
        ({"server_path": "models"}, "expected an absolute path"),
    ],
)
def test_options_that_no_server_takes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        TritonOptions(**options)


def test_a_folder_that_exists_stays(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["deploy", "triton", str(model), "-o", str(tmp_path / "r")]
    assert main([*command, "--json"]) == 0
    assert "1/model.py" in json.loads(capsys.readouterr().out)["files"]
    (tmp_path / "r" / "double" / "mine").touch()
    assert main(command) == 2
    assert "double exists: choose another output or add --overwrite" in capsys.readouterr().err
    assert (tmp_path / "r" / "double" / "mine").exists()
    assert main([*command, "--overwrite"]) == 0
    assert not (tmp_path / "r" / "double" / "mine").exists()
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["double"]


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").touch()

    def fill(name: str) -> None:
        with atomic_folder(tmp_path / name, overwrite=True) as folder:
            (folder / "new").touch()
            raise NystraError("half-way")

    for name in ("there", "other"):
        with pytest.raises(NystraError, match="half-way"):
            fill(name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there" / "old").exists()
    (tmp_path / "file").touch()
    with (
        pytest.raises(NystraError, match="is a file, expected a folder"),
        atomic_folder(tmp_path / "file", overwrite=True),
    ):
        pass


def test_the_next_writer_removes_the_folder_of_a_killed_one(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom nystra.core.files.writing import atomic_folder\n"
        "with atomic_folder(sys.argv[1] + '/a') as folder:\n"
        "    (folder / 'half').touch()\n    os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    with atomic_folder(tmp_path / "b"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_answers_to_requests(model: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (9, 8, 3)).astype(np.float32) / 65535
    sent = encode_image(ImageData(pixels, bits=16), "TIFF")
    answer = RestorationHandler.open(Session(model, threads=1), "double")
    own = RestoreParameters(tile=4, overlap=0)
    got = answer({"image": sent}, own)
    expected = encode_image(ImageData(pixels.repeat(2, 0).repeat(2, 1), bits=16), "TIFF")
    assert (got.content, got.media_type) == (expected, "image/tiff")
    assert list(got.tensors["output"]) == [expected]
    asked = read_parameters(own, {"format": "jpg", "quality": "80", "tile": 0})
    assert asked == RestoreParameters("jpg", 80, 0, 0)
    assert answer({"image": sent}, asked).content[:2] == b"\xff\xd8"
    for given, values, message in (
        ({"image": b"no"}, {}, "the image is not an image in a supported format"),
        ({"image": png_header(50_000, 40_000)}, {}, "50000x40000, more than 500000000 pixels"),
        ({}, {}, r"got \[\], expected the image too"),
        ({"image": sent, "mask": sent}, {}, "the model has no mask input"),
        (
            {"image": sent},
            {"color": 1},
            "unknown parameters color: expected one or more of format",
        ),
        ({"image": sent}, {"tile": "x"}, "`tile` is 'x', expected a whole number"),
        ({"image": sent}, {"format": "exe"}, "`format` is 'exe', expected png"),
        ({"image": sent}, {"quality": 101}, "`quality` is 101"),
    ):
        with pytest.raises(NystraError, match=message):
            answer(given, read_parameters(own, values))
