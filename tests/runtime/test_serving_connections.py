"""Connections that are slow, broken off or ambiguous, on a running service."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")
pytest.importorskip("uvicorn", reason="the extra nystra[serve] is not installed")

from runtime_models import nystra_metadata, save_upscaler
from serving_tools import form, png

CONNECTIONS = 6


@contextmanager
def service(model: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """Yield a process that serves a model, and its address."""
    command = [sys.executable, "-m", "nystra.cli.main", "serve", str(model), "--json"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--threads", "1", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        text += line
    host, port = json.loads(text)["address"].removeprefix("http://").split(":")
    try:
        yield process, (host, int(port))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_upscaler(tmp_path_factory.mktemp("m") / "twice.onnx", metadata=nystra_metadata())


@pytest.fixture(scope="module")
def place(model: Path) -> Iterator[tuple[str, int]]:
    limits = ("--max-bytes", "2M", "--max-memory", "4M")
    with service(model, *limits) as (process, address):
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def head(path: str, length: int | None = None, **headers: str) -> bytes:
    """Return the header of a request: a POST if there is a body."""
    given = {"Host": "127.0.0.1", **headers}
    if length is not None:
        given["Content-Length"] = str(length)
    lines = (f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"{'GET' if length is None else 'POST'} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def asked(place: tuple[str, int], request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send everything, then read the answer, like a client that does not read while it sends."""
    with socket.create_connection(place, 60) as client:
        client.sendall(request)
        return answer(client)


def answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    text = b""
    while b"\r\n\r\n" not in text:
        piece = client.recv(1 << 16)
        assert piece, text
        text += piece
    start, _, body = text.partition(b"\r\n\r\n")
    first, *lines = start.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += client.recv(1 << 16)
    return int(first.split()[1]), headers, body


def open_all(stack: ExitStack, place: tuple[str, int], count: int, sent: bytes) -> list[Any]:
    clients = [stack.enter_context(socket.create_connection(place, 10)) for _ in range(count)]
    for client in clients:
        client.sendall(sent)
    time.sleep(0.1)
    return clients


def test_two_lengths_of_one_body_close_the_connection(place: tuple[str, int]) -> None:
    smuggled = head("/healthz")
    chunked = head("/v1/restore", len(smuggled), Transfer_Encoding="chunked")
    with socket.create_connection(place, 10) as client:
        client.sendall(chunked + b"0\r\n\r\n" + smuggled)
        status, headers, body = answer(client)
        assert (status, headers["connection"]) == (400, "close")
        assert "both Content-Length and Transfer-Encoding" in json.loads(body)["error"]["message"]
        assert client.recv(1 << 16) == b"", "the second request is answered"


def test_a_client_that_sends_first_reads_why_it_was_refused(place: tuple[str, int]) -> None:
    """Uploads above a limit get an answer, never a reset."""
    large = bytes(20 << 20)
    status, _, body = asked(place, head("/v1/restore", len(large)) + large)
    assert (status, json.loads(body)["error"]["code"]) == (413, "too_large")
    image, headers = form([("image", bytes(1_500_000))])
    given = {"Content_Type": headers["content-type"]}
    request = head("/v1/restore", len(image), **given) + image
    with ExitStack() as stack:
        clients = open_all(stack, place, CONNECTIONS, request[:500_000])
        rest = [
            threading.Thread(target=client.sendall, args=(request[500_000:],)) for client in clients
        ]
        for thread in rest:
            thread.start()
        for thread in rest:
            thread.join()
        statuses = [answer(client)[0] for client in clients]
    assert set(statuses) == {400, 429}, statuses


@pytest.mark.full
def test_good_clients_among_bad_ones(model: Path) -> None:
    """310 half headers, 155 disconnects, 20 that read nothing: 52 images are answered."""
    small, large = png(), png(500, 500)
    limits = ("--upload-timeout", "3")
    with service(model, *limits) as (process, address), ExitStack() as stack:
        for number in range(310):
            client = stack.enter_context(socket.create_connection(address, 10))
            client.sendall(b"" if number % 2 else b"POST /v1/restore HTTP/1.1\r\nHost: x\r\n")
            if number % 2:
                with socket.create_connection(address, 10) as leaving:
                    leaving.sendall(head("/v1/restore", len(small)) + small[: number % 40])
            if number < 20:
                slow = stack.enter_context(socket.create_connection(address, 10))
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.sendall(head("/v1/restore", len(large)) + large)
            if number % 6 == 0:
                assert asked(address, head("/healthz"))[0] == 200
                assert asked(address, head("/v1/restore", len(small)) + small)[0] == 200
        end = time.monotonic() + 20
        held = "nystra_memory_held_bytes 0.0", "nystra_requests_under_way 0.0"
        text = ""
        while not all(line in text for line in held) and time.monotonic() < end:
            time.sleep(0.2)
            text = asked(address, head("/metrics"))[2].decode()
        assert all(line in text for line in held), text
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.full
def test_the_end_of_patience(model: Path) -> None:
    """A slow image and a stalled upload are both answered in time."""
    image = png(3000, 3000, flat=True)
    limits = ("--patience", "2", "--tile", "16")
    with service(model, *limits) as (process, address), ExitStack() as stack:
        clients = open_all(stack, address, 1, head("/v1/restore", len(image)) + image)
        clients += open_all(stack, address, 1, head("/v1/restore", 100) + b"half")
        time.sleep(1.0)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        for client in clients:
            status, _, body = answer(client)
            assert (status, json.loads(body)["error"]["code"]) == (503, "stopping")
        assert process.wait(20) == 0
        assert 1.9 < time.monotonic() - begin < 6
