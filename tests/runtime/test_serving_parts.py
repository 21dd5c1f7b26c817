"""Models of ``nystra serve`` with more inputs than an image, or other outputs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")

from auxiliary_models import COPIER, FILLER, hole, make_image, save
from classifier_models import plain, save_classifier
from nystra.runtime import ImageData, RunOptions, Session, classify_images, run_images
from nystra.runtime.images.images import encode_image
from serving_tools import Service

SECOND = {"mask": hole(), "reference": np.full((5, 4, 3), (0.1, 0.2, 0.3), np.float32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save(made / "mask.onnx", FILLER.format(c=3, h="h", w="w"), "mask", 3)
    save(made / "reference.onnx", COPIER, "reference", 3, input_channels="1")
    save_classifier(made / "colors.onnx")
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    made = Service(*(folder / f"{name}.onnx" for name in ("mask", "reference", "colors")))
    yield made
    made.close()


def png(pixels: np.ndarray) -> bytes:
    return encode_image(ImageData(pixels, bits=16), "PNG")


@pytest.mark.parametrize("part", ["mask", "reference"])
def test_what_goes_beside_an_image(
    part: str, service: Service, folder: Path, tmp_path: Path
) -> None:
    given = {"image": png(make_image() * 0.5), part: png(SECOND[part])}
    for name, data in given.items():
        (tmp_path / f"{name}.png").write_bytes(data)
    options = RunOptions(**{part: tmp_path / f"{part}.png"})
    out = tmp_path / "out.png"
    run_images(folder / f"{part}.onnx", tmp_path / "image.png", out, options, threads=1)
    reply = service.ask(f"/v1/restore?model={part}", parts=given.items())
    assert (reply.status, reply.body) == (200, out.read_bytes())
    missing = service.ask(f"/v1/restore?model={part}", parts=[("image", given["image"])])
    assert (missing.status, missing.code) == (422, "invalid")
    assert f"needs a {part}" in missing.message


def test_classes(service: Service, folder: Path, tmp_path: Path) -> None:
    data = encode_image(plain("green"), "PNG")
    (tmp_path / "green.png").write_bytes(data)
    session = Session(folder / "colors.onnx", threads=1)
    (expected,) = classify_images(session, tmp_path / "green.png")
    reply = service.ask("/v1/classify?top=2", data, {"content-type": "image/png"})
    assert reply.status == 200
    assert reply.json["model"] == "colors"
    assert reply.json["classes"] == [each.as_dict() for each in expected.classes[:2]]
    assert reply.json["classes"][0]["label"] == "green"
    assert service.ask("/v1/classify?top=0", data).status == 422
    assert service.ask("/v1/classify", b"no image").code == "bad_request"
