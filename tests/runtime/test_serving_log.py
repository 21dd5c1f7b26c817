"""The access log of a service, and the hint at what curl -d sends."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")
pytest.importorskip("uvicorn", reason="the extra nystra[serve] is not installed")

from runtime_models import nystra_metadata, save_upscaler
from serving_tools import Service, png

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "twice.onnx"
    return save_upscaler(path, metadata=nystra_metadata())


@pytest.fixture
def service(model: Path) -> Iterator[Service]:
    made = Service(model, log=True, token="secret-1")
    yield made
    made.close()


def test_each_request_is_a_line(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    token = {"authorization": "Bearer secret-1"}
    service.ask("/v1/restore?tile=64&x=secret-2", png(), token)
    service.ask("/v1/restore?tile=64", png(), token)
    service.ask("/a\nb \x1b[2J" + "c" * 999 + "?y=secret-3")
    service.ask("/healthz")
    lines = capsys.readouterr().err.splitlines()
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S+"
    assert len(lines) == 3
    assert re.fullmatch(rf"{when} POST /v1/restore 4\d\d \d+ bytes \d+ ms", lines[0])
    assert re.fullmatch(rf"{when} POST /v1/restore 200 [1-9]\d+ bytes \d+ ms", lines[1])
    assert re.fullmatch(rf"{when} GET /a\\nb%20\\x1b\[2Jc+\.\.\. 401 \d+ bytes \d+ ms", lines[2])
    assert len(lines[2]) < 300
    assert not any("secret" in line for line in lines)


def test_none_is_printed_unless_it_is_asked_for(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(model)
    service.ask("/v1/models")
    service.close()
    assert not capsys.readouterr().err


def test_what_curl_sends_with_d(model: Path) -> None:
    service = Service(model)
    stripped = png().replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")
    refused = service.ask("/v1/restore", stripped, FORM)
    assert refused.status == 400
    assert "use curl --data-binary @photo.png" in refused.body.decode()
    assert service.ask("/v1/restore", png(), FORM).status == 200, "--data-binary says so too"
    other = service.ask("/v1/restore", stripped, {"content-type": "image/png"})
    assert "--data-binary" not in other.body.decode()
    service.close()
