"""The folder that ``nystra deploy triton`` writes, served by a real Triton server.

Images come out equal to the byte to those of ``nystra run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classifier_models import COLORS, plain, save_classifier
from nystra.deploy.triton.options import TritonOptions
from nystra.deploy.triton.repository import write_repository
from nystra.runtime import ImageData, RunOptions, Session, classify_images, run_images
from nystra.runtime.images.images import encode_image
from runtime_models import nystra_metadata, save_upscaler
from triton_server import triton_server

pytestmark = pytest.mark.full

KINDS = {"deep.png": ("PNG", 16), "plain.jpg": ("JPEG", 8), "deep.tif": ("TIFF", 16)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "double": save_upscaler(folder / "double.onnx", metadata=nystra_metadata()),
        "colors": save_classifier(folder / "colors.onnx"),
    }


@pytest.fixture(scope="module")
def server(
    models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    pytest.importorskip("tritonclient.grpc", reason="no tritonclient[grpc]")
    pytest.importorskip("tritonclient.http", reason="no tritonclient[http]")
    repository = tmp_path_factory.mktemp("repository")
    for model in models.values():
        tile = 32 if model.stem == "double" else 0
        write_repository(model, repository, TritonOptions(threads=1, tile=tile))
    with triton_server(repository, tmp_path_factory.mktemp("server")) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(5)
    for name, (kind, bits) in KINDS.items():
        alpha = None if kind == "JPEG" else random.random((70, 50), np.float32)
        image = ImageData(random.random((70, 50, 3), np.float32), alpha, bits)
        (folder / name).write_bytes(encode_image(image, kind))
    return folder


def ask(
    protocol: str, address: str, model: str, data: bytes, output: str, **more: Any
) -> np.ndarray[Any, Any]:
    client = import_module(f"tritonclient.{protocol}")
    sent = client.InferInput("input", [1], "BYTES")
    sent.set_data_from_numpy(np.array([data], np.object_))
    wanted = [client.InferRequestedOutput(output, class_count=more.pop("classes", 0))]
    with client.InferenceServerClient(address) as connection:
        answer = connection.infer(model, [sent], outputs=wanted, **more)
    return answer.as_numpy(output)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_images_are_those_of_nystra_run(
    protocol: str,
    server: dict[str, str],
    models: dict[str, Path],
    images: Path,
    tmp_path: Path,
) -> None:
    run_images(models["double"], images, tmp_path, RunOptions(tile=32, quiet=True), threads=1)
    for name in KINDS:
        data = (images / name).read_bytes()
        (got,) = ask(protocol, server[protocol], "double", data, "output")
        assert got == (tmp_path / name).read_bytes(), name


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_parameters_of_a_request(
    protocol: str, server: dict[str, str], models: dict[str, Path], images: Path, tmp_path: Path
) -> None:
    options = RunOptions(tile=48, overlap=8, quality=70, quiet=True)
    run_images(models["double"], images / "plain.jpg", tmp_path / "a.webp", options, threads=1)
    data = (images / "plain.jpg").read_bytes()
    asked = {"tile": 48, "overlap": 8, "format": "webp", "quality": 70}
    (got,) = ask(protocol, server[protocol], "double", data, "output", parameters=asked)
    assert got == (tmp_path / "a.webp").read_bytes()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bad_requests_stop_nothing(protocol: str, server: dict[str, str], images: Path) -> None:
    address = server[protocol]
    good = (images / "plain.jpg").read_bytes()
    for data, asked, message in (
        (b"no image", {}, "is not an image in a supported format"),
        (good[:200], {}, "damaged or truncated"),
        (b"", {}, "is empty"),
        (good, {"tile": "x"}, "`tile` is 'x', expected a whole number"),
        (good, {"speed": 1}, "unknown parameters speed"),
    ):
        with pytest.raises(Exception, match=message):
            ask(protocol, address, "double", data, "output", parameters=asked)
        assert len(ask(protocol, address, "double", good, "output")) == 1


def test_thirty_two_clients_with_bad_ones_among_them(
    server: dict[str, str], models: dict[str, Path], images: Path, tmp_path: Path
) -> None:
    run_images(models["double"], images, tmp_path, RunOptions(tile=32, quiet=True), threads=1)
    names = list(KINDS)

    def client(number: int) -> bool:
        protocol = ("http", "grpc")[number % 2]
        right = True
        for turn in range(4):
            name = names[(number + turn) % len(names)]
            data = (images / name).read_bytes()
            if number % 8 == 0:
                with pytest.raises(Exception, match="damaged or truncated"):
                    ask(protocol, server[protocol], "double", data[:100], "output")
            (got,) = ask(protocol, server[protocol], "double", data, "output")
            right = right and got == (tmp_path / name).read_bytes()
        return right

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(client, range(32))) == [True] * 32


def test_classes_are_those_of_nystra_run(
    server: dict[str, str], models: dict[str, Path], tmp_path: Path
) -> None:
    for color in COLORS:
        (tmp_path / f"{color}.png").write_bytes(encode_image(plain(color), "PNG"))
    results = classify_images(Session(models["colors"], threads=1), tmp_path)
    for result in results:
        data = Path(result.input).read_bytes()
        got = ask("http", server["http"], "colors", data, "probabilities")
        expected = [0.0] * len(COLORS)
        for entry in result.classes:
            expected[entry.number] = entry.probability
        np.testing.assert_array_equal(got, np.float32(expected))
        (best,) = ask("grpc", server["grpc"], "colors", data, "probabilities", classes=1)
        _, place, label = best.decode().split(":")
        assert (int(place), label) == (result.classes[0].number, Path(result.input).stem)
