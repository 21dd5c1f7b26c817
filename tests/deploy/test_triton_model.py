"""The model of Triton's python backend, with a stand-in for the server's module."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from classifier_models import plain, save_classifier
from nystra.deploy.triton.python_model import TritonPythonModel
from nystra.runtime import ImageData, RunOptions, Session, classify_images, run_images
from nystra.runtime.images.images import encode_image
from runtime_models import nystra_metadata, save_upscaler


class TritonError(Exception):
    INVALID_ARG = "invalid argument"

    def __init__(self, text: str, kind: str = "internal") -> None:
        super().__init__(text)
        self.kind = kind


def input_tensor(request: Any, name: str) -> Any:
    return SimpleNamespace(as_numpy=lambda: np.array([request.files[name]], np.object_))


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(
        Tensor=lambda name, array: (name, array),
        InferenceResponse=lambda output_tensors=(), error=None: (dict(output_tensors), error),
        TritonError=TritonError,
        get_input_tensor_by_name=input_tensor,
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", module)


def opened(file: Path, **more: str) -> TritonPythonModel:
    """Return a model as the server opens it: ``<repository>/1/model.onnx``."""
    folder = file.parent / "repository" / "1"
    folder.mkdir(parents=True)
    file.rename(folder / "model.onnx")
    values = {"session_backend": "ort-cpu", "library": "none", "tile": "0", **more}
    stated = {key: {"string_value": value} for key, value in values.items()}
    model = TritonPythonModel()
    config = json.dumps({"parameters": stated})
    place = {"model_repository": str(folder.parent), "model_version": "1"}
    model.initialize({**place, "model_config": config})
    return model


def request(data: bytes, **asked: Any) -> Any:
    parameters = json.dumps(asked) if asked else ""
    return SimpleNamespace(files={"input": data}, parameters=lambda: parameters)


def test_images_are_those_of_nystra_run(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 8, 3)).astype(np.float32) / 255
    data = encode_image(ImageData(pixels), "PNG")
    (tmp_path / "in.png").write_bytes(data)
    file = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    options = RunOptions(tile=4, overlap=0, quality=70)
    run_images(file, tmp_path / "in.png", tmp_path / "out.webp", options, threads=1)
    model = opened(file, tile="4", overlap="0")
    good, bad, wrong = model.execute(
        [request(data, format="webp", quality=70), request(data[:50]), request(data, speed=1)]
    )
    assert list(good[0]["output"]) == [(tmp_path / "out.webp").read_bytes()]
    assert good[1] is None
    assert "the image" in str(bad[1])
    assert "unknown parameters speed" in str(wrong[1])
    assert bad[1].kind == wrong[1].kind == TritonError.INVALID_ARG


def test_classes_are_those_of_nystra_run(tmp_path: Path) -> None:
    data = encode_image(plain("green"), "PNG")
    (tmp_path / "green.png").write_bytes(data)
    file = save_classifier(tmp_path / "c.onnx")
    (result,) = classify_images(Session(file, threads=1), tmp_path / "green.png")
    ((arrays, error),) = opened(file).execute([request(data)])
    assert error is None
    expected = {entry.number: entry.probability for entry in result.classes}
    for place, share in expected.items():
        assert arrays["probabilities"][place] == np.float32(share)
    assert int(np.argmax(arrays["logits"])) == result.classes[0].number
