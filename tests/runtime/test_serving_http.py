"""The service from the view of its clients: answers, and the status of refusals."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")
pytest.importorskip("uvicorn", reason="the extra nystra[serve] is not installed")

from nystra.core.errors import NystraError
from nystra.runtime import run_images
from nystra.runtime.serving.limits import Limits
from nystra.runtime.serving.served_model import open_models
from nystra.runtime.session_spec import SessionSpec
from runtime_models import nystra_metadata, save_upscaler
from serving_tools import Service, enlarged, png

RESTORE = "/v1/restore"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_upscaler(made / "twice.onnx", metadata=nystra_metadata())
    save_upscaler(made / "thrice.onnx", 3, metadata=nystra_metadata(3))
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    limits = Limits(tile=16, workers=2, max_memory=1 << 20, max_bytes=20_000, max_pixels=4096)
    made = Service(folder / "twice.onnx", folder / "thrice.onnx", limits=limits)
    yield made
    made.close()


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


@pytest.mark.parametrize("how", ["body", "form"])
def test_an_image_comes_back(service: Service, how: str) -> None:
    given = png()
    if how == "body":
        reply = service.ask(RESTORE, given, {"content-type": "image/png"})
    else:
        reply = service.ask(RESTORE, parts=[("image", given)])
    assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
    assert reply.headers["x-nystra-tiles"] == "1"
    np.testing.assert_array_equal(pixels(reply.body), enlarged(given))


@pytest.mark.parametrize(
    ("format", "kind"), [("png", "PNG"), ("jpg", "JPEG"), ("tif", "TIFF"), ("webp", "WEBP")]
)
def test_formats(service: Service, format: str, kind: str) -> None:
    assert service.ask(f"{RESTORE}?format={format}", png()).image.format == kind
    kept = service.ask(RESTORE, png(format=kind)).image
    assert (kept.format, kept.size) == (kind, (24, 18))
    assert service.ask(RESTORE, png(format="BMP")).image.format == "PNG"


def test_it_answers_what_run_writes(service: Service, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.png").write_bytes(png(40, 51))
    run_images(folder / "thrice.onnx", tmp_path / "in.png", tmp_path / "out.png", threads=1)
    reply = service.ask(f"{RESTORE}?model=thrice&tile=16&overlap=4", png(40, 51))
    assert int(reply.headers["x-nystra-tiles"]) == 3 * 4
    np.testing.assert_array_equal(pixels(reply.body), pixels((tmp_path / "out.png").read_bytes()))
    assert service.ask(RESTORE, png(40, 51)).image.size == (102, 80)


def test_what_is_served_is_said(service: Service) -> None:
    model, other = service.ask("/v1/models").json["models"]
    assert (model["name"], model["route"], model["scale"]) == ("twice", RESTORE, 2)
    assert (other["name"], other["parts"], other["tile"]) == ("thrice", ["image"], 16)
    assert other["license"] == "CC0-1.0"
    assert service.ask("/healthz").json == service.ask("/readyz").json == {"status": "ok"}
    described = service.ask("/openapi.json").json["paths"][RESTORE]["post"]
    names = {parameter["name"] for parameter in described["parameters"]}
    assert names == {"model", "format", "quality", "tile", "overlap"}
    assert set(described["requestBody"]["content"]) == {"multipart/form-data", "image/*"}
    assert {"200", "413", "429"} <= set(described["responses"])


BAD: dict[str, tuple[str, bytes, int, str, str]] = {
    "empty": ("", b"", 400, "bad_request", "holds no image"),
    "noise": ("", b"no image", 400, "bad_request", "is not an image"),
    "cut short": ("", png()[:100], 400, "bad_request", "damaged or truncated"),
    "model": ("?model=x", png(), 404, "unknown_model", "expected twice, thrice"),
    "format": ("?format=bmp", png(), 422, "invalid", "format: Input should be 'png', 'jpg'"),
    "parameter": ("?sharpen=1", png(), 422, "invalid", "sharpen: Extra inputs"),
    "quality": (
        "?quality=0",
        png(),
        422,
        "invalid",
        "quality is 0, expected a whole number",
    ),
    "tile": ("?tile=17", png(), 422, "invalid", "expected at most 16, the tile of the service"),
    "overlap": ("?tile=8&overlap=9", png(20, 20), 422, "invalid", "leaves less than"),
    "pixels": ("", png(64, 65), 413, "too_large", "65x64, more than the 4096 pixels"),
    "bytes": ("", bytes(20_001), 413, "too_large", "and this service accepts 20000"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(service: Service, name: str) -> None:
    query, body, status, code, message = BAD[name]
    reply = service.ask(RESTORE + query, body)
    assert (reply.status, reply.code) == (status, code)
    assert message in reply.message


def test_a_mask_that_the_model_does_not_take(service: Service) -> None:
    reply = service.ask(RESTORE, parts=[("image", png()), ("mask", png())])
    assert reply.status == 422
    assert "has no mask input" in reply.message


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([("photo", png())], "got the part 'photo', expected files called image, mask"),
        ([("image", png()), ("image", png())], "'image' twice"),
        ([("mask", png())], "holds no image"),
    ],
)
def test_bad_forms(service: Service, parts: Any, message: str) -> None:
    reply = service.ask(RESTORE, parts=parts)
    assert (reply.status, reply.code) == (400, "bad_request")
    assert message in reply.message
    edge = {"content-type": "multipart/form-data; boundary=edge"}
    text = b'--edge\r\nContent-Disposition: form-data; name="image"\r\n\r\na.png\r\n--edge--\r\n'
    assert "curl takes -F image=@photo.png, with the @" in service.ask(RESTORE, text, edge).message
    broken = service.ask(RESTORE, b"--edge\r\nnothing", edge)
    assert broken.status == 400


def test_an_image_that_says_it_has_two_gigapixels(service: Service) -> None:
    head = bytearray(png())
    head[16:24] = (50_000).to_bytes(4, "big") + (40_000).to_bytes(4, "big")
    import zlib

    head[29:33] = zlib.crc32(bytes(head[12:29])).to_bytes(4, "big")
    reply = service.ask(RESTORE, bytes(head))
    assert (reply.status, reply.code) == (413, "too_large")
    assert "50000x40000" in reply.message


def test_an_announced_body_is_refused_before_it_is_read(service: Service) -> None:
    reply = service.ask(RESTORE, b"", {"content-length": "30000"})
    assert (reply.status, reply.headers["connection"]) == (413, "close")


def test_a_token(folder: Path) -> None:
    guarded = Service(folder / "twice.onnx", token="secret")
    for given in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic secret"}):
        reply = guarded.ask(RESTORE, png(), given)
        assert (reply.status, reply.code) == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert guarded.ask(RESTORE, png(), {"authorization": "Bearer secret"}).status == 200
    assert guarded.ask("/v1/models").status == 401
    assert guarded.ask("/healthz").status == 200
    guarded.close()


ADDRESS = "127.0.0.1:8000"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (ADDRESS, None, 200),
        (ADDRESS, f"http://{ADDRESS}", 200),
        ("[::1]:8000", "http://[::1]:8000", 200),
        ("localhost:8000", "http://LOCALHOST:8000", 200),
        ("nystra", None, 200),
        ("images.example.com", "https://images.example.com", 200),
        (ADDRESS, "http://evil.example", 403),
        (ADDRESS, "http://127.0.0.1:9000", 403),
        (ADDRESS, "null", 403),
        (ADDRESS, "http://[", 403),
        ("evil.example:8000", "http://evil.example:8000", 421),
        ("127.0.0.1.evil.example", None, 421),
    ],
)
def test_what_another_web_page_sends(
    folder: Path, host: str, origin: str | None, status: int
) -> None:
    headers = {"host": host, **({} if origin is None else {"origin": origin})}
    open_to_all = Service(folder / "twice.onnx", hosts=("Images.Example.com",))
    reply = open_to_all.ask(RESTORE, png(), headers)
    assert reply.status == status, reply.body
    if status != 200:
        assert reply.code == {403: "foreign_origin", 421: "unknown_host"}[status]
    assert open_to_all.ask("/healthz", None, headers).status == 200
    open_to_all.close()
    guarded = Service(folder / "twice.onnx", token="secret")
    assert guarded.ask(RESTORE, png(), {**headers, "authorization": "Bearer secret"}).status == 200
    guarded.close()


@pytest.mark.parametrize("path", ["/nowhere", "/v1/models/", "/healthz/", "/v1/%2e%2e/"])
def test_an_address_where_nothing_is(service: Service, path: str) -> None:
    """Also with a trailing slash: nobody is redirected to ``Host``."""
    reply = service.ask(path, None, {"host": "evil"})
    assert (reply.status, reply.code) == (404, "not_found")
    assert "location" not in reply.headers


def test_another_method(service: Service) -> None:
    for path, body, allowed in (("/v1/models", b"", "GET"), (RESTORE, None, "POST")):
        reply = service.ask(path, body)
        assert (reply.status, reply.code) == (405, "wrong_method")
        assert reply.headers["allow"] == allowed


def test_a_damaged_form_says_nothing_in_the_log(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    head = {"content-type": "multipart/form-data; boundary=edge"}
    assert service.ask(RESTORE, b"--wrong\r\n\r\nbody", head).status == 400
    assert capfd.readouterr().err == ""


def test_a_full_queue(folder: Path) -> None:
    limits = Limits(workers=1, queue=1, max_memory=1 << 28)
    busy = Service(folder / "twice.onnx", limits=limits)

    async def crowd() -> list[int]:
        replies = await asyncio.gather(*(busy.request(RESTORE, png(300, 300)) for _ in range(12)))
        refused = [reply for reply in replies if reply.status == 429]
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        return [reply.status for reply in replies]

    statuses = asyncio.run(crowd())
    assert set(statuses) == {200, 429}
    assert busy.ask(RESTORE, png()).status == 200
    busy.close()
    reply = busy.ask("/readyz")
    assert (reply.status, reply.code) == (503, "stopping")


def test_what_cannot_be_served(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NystraError, match="two models have the name twice"):
        open_models([SessionSpec(here / "twice.onnx") for here in (folder, tmp_path)], Limits())
    video = save_upscaler(
        tmp_path / "video.onnx", metadata=nystra_metadata(**{"nystra.task": "toy"})
    )
    with pytest.raises(NystraError, match="'toy'"):
        open_models([SessionSpec(video)], Limits())
    nan = save_upscaler(tmp_path / "nan.onnx", gain=float("nan"), metadata=nystra_metadata())
    with pytest.raises(NystraError, match=r"a trial run of .* failed"):
        open_models([SessionSpec(nan, threads=1)], Limits())


def test_what_is_costed_is_what_is_decoded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thumbnail on the first page was decoded instead of the image."""
    stream = io.BytesIO()
    values = np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8)
    with tifffile.TiffWriter(stream) as file:
        reduced = np.zeros((300, 200, 3), np.uint8)
        file.write(reduced, photometric="rgb", subfiletype=1, compression="zlib", metadata=None)
        file.write(values, photometric="rgb", subfiletype=0, metadata=None)
    reply = service.ask(f"{RESTORE}?format=png", stream.getvalue())
    np.testing.assert_array_equal(pixels(reply.body), values.repeat(2, 0).repeat(2, 1))
    monkeypatch.setattr(
        "nystra.runtime.serving.served_model.image_sizes",
        lambda files, most: dict.fromkeys(files, (1, 1)),
    )
    reply = service.ask(RESTORE, png(65, 64))
    assert (reply.status, reply.code) == (400, "bad_request")
    assert "64x65, more than 4096 pixels" in reply.message
