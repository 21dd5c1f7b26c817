"""Models of a service whose result depends on the whole image, or on other images of a batch."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")

from nystra.runtime import ImageData
from nystra.runtime.images.images import encode_image
from nystra.runtime.serving.limits import Limits
from runtime_models import nystra_metadata, save_upscaler
from serving_tools import Service

RESTORE = "/v1/restore"

OF_BATCH = """
    <ir_version: 10, opset_import: ["": 20]>
    agraph (float[batch, 3, height, width] input) => (float[batch, 3, height, width] output)
    <int64[3] axes = {0, 2, 3}, float half = {0.5}>
    {
        mean = ReduceMean (input, axes)
        sum = Add (input, mean)
        output = Mul (sum, half)
    }
"""
"""Half of an image and of the mean of all images of the batch."""


def png(height: int, width: int, level: float = 1.0) -> bytes:
    pixels = level * np.random.default_rng(0).random((height, width, 3), np.float32)
    return encode_image(ImageData(pixels), "PNG")


def opened(path: Path, **limits: int) -> Service:
    return Service(path, limits=Limits(**{"max_memory": 1 << 28, **limits}))


@pytest.fixture
def of_batch(tmp_path: Path) -> Iterator[Service]:
    model = onnx.parser.parse_model(OF_BATCH)
    onnx.helper.set_model_props(model, nystra_metadata(1))
    onnx.save(model, tmp_path / "of_batch.onnx")
    service = opened(tmp_path / "of_batch.onnx", batch=8, workers=4)
    yield service
    service.close()


def test_requests_do_not_change_each_others_answers(of_batch: Service) -> None:
    assert of_batch.models.served[0].facts()["batch"] == 1
    images = [png(32, 32, 0.1 + 0.1 * level) for level in range(8)]
    alone = [of_batch.ask(RESTORE, image).body for image in images]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            together = list(pool.map(lambda image: of_batch.ask(RESTORE, image).body, images))
            assert together == alone


def test_a_model_of_single_images_has_batches(tmp_path: Path) -> None:
    service = opened(save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()), batch=8)
    try:
        assert service.models.served[0].facts()["batch"] == 8
    finally:
        service.close()


@pytest.fixture
def of_image(tmp_path: Path) -> Iterator[Service]:
    """A service of a model whose export found that tiles change the result."""
    found = {"nystra.tiling": "discouraged", "nystra.tile_psnr": "[[128, 31.5]]"}
    model = save_upscaler(tmp_path / "of_image.onnx", metadata=nystra_metadata() | found)
    service = opened(model, tile=96)
    yield service
    service.close()


def test_tiles_are_used_only_if_a_request_asks(
    of_image: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = png(200, 300)
    whole = of_image.ask(RESTORE, image)
    assert (whole.status, whole.headers["x-nystra-tiles"]) == (200, "1")
    monkeypatch.setattr("nystra.runtime.tiling.memory_meter.available_memory", lambda: 1 << 29)
    refused = of_image.ask(RESTORE, image)
    assert refused.status == 422
    assert "tiles change the result of this model" in refused.body.decode()
    cut = of_image.ask(f"{RESTORE}?tile=96", image)
    assert cut.status == 200
    assert int(cut.headers["x-nystra-tiles"]) > 1
    assert "31.5 dB in tiles of 128" in cut.headers["x-nystra-warnings"]
