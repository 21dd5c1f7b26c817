"""Clients that disconnect, stall or send too much, and a process that is stopped."""

import asyncio
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")
pytest.importorskip("prometheus_client", reason="the extra nystra[serve] is not installed")

from nystra.cli.main import main
from nystra.runtime.serving.limits import Limits
from runtime_models import nystra_metadata, save_operator, save_upscaler
from serving_tools import Service, png

RESTORE = "/v1/restore"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_upscaler(
        tmp_path_factory.mktemp("models") / "twice.onnx", metadata=nystra_metadata()
    )


@pytest.fixture
def slow(model: Path) -> Iterator[Service]:
    """A service whose model takes 20 ms a tile of 16 pixels."""
    limits = Limits(
        tile=16, workers=2, queue=8, max_memory=1 << 26, timeout=0.2, upload_timeout=0.3
    )
    made = Service(model, limits=limits)
    batcher: Any = made.models.served[0]._batcher  # type: ignore[attr-defined]
    quick = batcher._function
    made.runs = 0  # type: ignore[attr-defined]

    def function(images: np.ndarray) -> np.ndarray:
        made.runs += 1  # type: ignore[attr-defined]
        time.sleep(0.02)
        return quick(images)

    batcher._function = function
    yield made
    made.close()


def idle(service: Service) -> None:
    """Wait until no work is in progress."""
    end = time.monotonic() + 5
    while service.queue.under_way or service.queue.waiting:
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize(("how", "status"), [({}, 504), ({"leave_after": 0.05}, 499)])
def test_nothing_is_run_for_nobody(slow: Service, how: Any, status: int) -> None:
    reply = slow.ask(RESTORE, png(400, 400), **how)
    assert reply.status == status
    runs = slow.runs  # type: ignore[attr-defined]
    idle(slow)
    assert slow.runs <= runs + 1  # type: ignore[attr-defined]
    assert runs < 20  # of 26 x 26 tiles and more
    assert slow.queue.bytes_used == 0
    assert slow.ask(RESTORE, png()).status == 200


def test_an_upload_that_stops_in_the_middle(slow: Service) -> None:
    begin = time.monotonic()
    reply = slow.ask(RESTORE, png(100, 100), piece=2000, stall=True)
    assert (reply.status, reply.code) == (408, "upload_stopped")
    assert 0.2 < time.monotonic() - begin < 2
    assert slow.ask(RESTORE, png()).status == 200


def test_uploads_share_a_bound(model: Path) -> None:
    limits = Limits(max_memory=100_000, upload_timeout=0.5)
    crowded = Service(model, limits=limits)

    async def crowd() -> list[int]:
        stalled = crowded.request(RESTORE, bytes(150_000), piece=20_000, stall=True)
        waiting = asyncio.ensure_future(stalled)
        await asyncio.sleep(0.05)
        second = await crowded.request(RESTORE, bytes(30_000))
        return [(await waiting).status, second.status]

    assert asyncio.run(crowd()) == [408, 429]
    assert crowded.ask(RESTORE, png()).status == 200
    crowded.close()


def test_metadata_counts(model: Path) -> None:
    """A PNG of 245 kB, all of it packed texts, was answered with 839 MB."""
    limits = Limits(tile=16, workers=1, max_memory=1 << 21)
    service = Service(model, limits=limits)
    try:
        plain = png(12, 12)
        described = with_texts(plain, 900_000)
        assert service.ask(RESTORE, plain).status == 200
        refused = service.ask(RESTORE, described)
        assert refused.status == 413
        bomb = service.ask(RESTORE, with_texts(plain, 8 << 20, 30))
        assert bomb.status == 200
        assert len(bomb.body) < 10_000
        assert "metadata in zTXt beyond 1 MiB" in bomb.headers["x-nystra-warnings"]
    finally:
        service.close()


def with_texts(content: bytes, size: int, count: int = 1) -> bytes:
    """Return a PNG with packed texts."""
    packed = zlib.compress(b"a" * size, 9)
    chunks = b""
    for number in range(count):
        body = b"zTXtk%d\0\0" % number + packed
        chunks += struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return content[:33] + chunks + content[33:]


def test_figures_for_prometheus(slow: Service) -> None:
    slow.ask(RESTORE, png(16, 16))
    slow.ask(RESTORE, b"noise")
    slow.ask(f"{RESTORE}?model=x", png())
    slow.ask("/nowhere/at/all")
    text = slow.ask("/metrics").body.decode()
    for line in (
        'nystra_requests_total{model="twice",route="/v1/restore",status="200"} 1.0',
        'nystra_requests_total{model="twice",route="/v1/restore",status="400"} 1.0',
        'nystra_requests_total{model="",route="/v1/restore",status="404"} 1.0',
        'nystra_requests_total{model="",route="other",status="404"} 1.0',
        'nystra_pixels_total{model="twice"} 256.0',
        'nystra_request_seconds_count{model="twice",route="/v1/restore"} 1.0',
        "nystra_queue_waiting 0.0",
        "nystra_memory_limit_bytes 6.7108864e+07",
    ):
        assert line in text, line


def test_the_page_loads_nothing_from_elsewhere(slow: Service) -> None:
    reply = slow.ask("/")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    text = reply.body.decode()
    assert "http" not in text.replace("X-Nystra", "")
    assert "//" not in text.replace("// The browser", "")


def test_commands_that_cannot_be(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path / "missing.onnx"), "--port", str(port)]) == 2
        assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err
    bare = save_operator(tmp_path / "bare.onnx", body=False)
    for arguments, code, message in (
        ([str(tmp_path / "missing.onnx")], 2, "missing.onnx"),
        ([str(bare), "--library", "none"], 3, "needs the operator library"),
        ([str(model), "--host", "no.such.host.invalid"], 2, "is no address"),
        ([str(model), "--batch", "0"], 2, "--batch is 0, expected a whole number of 1 or more"),
        ([str(model), "--max-bytes", "much"], 2, "--max-bytes is 'much'"),
    ):
        assert main(["serve", "--port", "0", *arguments]) == code
        assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def process(model: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "nystra.cli.main", "serve", str(model), "--json"]
    limits = ["--port", "0", "--tile", "64", "--threads", "1", "--upload-timeout", "2"]
    started = subprocess.Popen(
        [*command, *limits], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = started.stdout.readline()
        assert line, started.stderr and started.stderr.read()
        text += line
    yield started, json.loads(text)["address"]
    started.kill()
    started.communicate()


def post(address: str, body: bytes) -> int:
    request = urllib.request.Request(address + RESTORE, body)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            reply.read()
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_memory_does_not_grow_with_requests_of_many_sizes(
    process: tuple[subprocess.Popen[str], str],
) -> None:
    started, address = process
    random = np.random.default_rng(0)
    memory: list[int] = []
    for _ in range(3):
        for height, width in random.integers(8, 160, (25, 2)):
            assert post(address, png(int(height), int(width))) == 200
        status = Path(f"/proc/{started.pid}/status").read_text(encoding="utf-8")
        memory.append(next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line))
    assert memory[2] < 1.1 * memory[0], memory


@pytest.mark.full
def test_a_process_and_its_end(process: tuple[subprocess.Popen[str], str]) -> None:
    started, address = process
    small, large = png(), png(700, 700)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as stalled, ThreadPoolExecutor(8) as pool:
        stalled.sendall(b"POST /v1/restore HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nabc")
        bodies = [small, b"noise"] * 8
        assert list(pool.map(lambda body: post(address, body), bodies)) == [200, 400] * 8
        assert stalled.recv(4096).startswith(b"HTTP/1.1 408")
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(post(address, large)))
    client.start()
    time.sleep(0.3)
    started.send_signal(signal.SIGTERM)
    client.join()
    _, errors = started.communicate(timeout=30)
    assert (answers, started.returncode, errors) == ([200], 0, "")
