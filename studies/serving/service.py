"""The throughput of a service under load, on this machine only.

Clients and service share the cores::

    python -m studies.serving.service model.onnx --size 64 --seconds 20 --clients 1 8 64
    python -m studies.serving.service model.onnx --size 16 --requests 10000 --clients 16

The second measures the memory, after a tenth and at the end; 1,000 invalid requests are mixed with
the valid ones, one client sends a byte per second, and another reads its response as slowly.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

BAD = (b"no image", b"", b"\x89PNG\r\n\x1a\n" + bytes(64))


class Service:
    """The process under load."""

    def __init__(self, model: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "nystra.cli.main", "serve", str(model), "--json"]
        self.process = subprocess.Popen(
            [*command, "--port", "0", *flags], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += self.process.stdout.readline()
        host, port = json.loads(text)["address"].removeprefix("http://").split(":")
        self.host, self.port = host, int(port)

    def memory(self) -> float:
        """Return the resident MiB of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> int:
        """Stop it and return its exit code."""
        self.process.terminate()
        return self.process.wait(60)


class Clients:
    """Threads that send requests one after another, each over a persistent connection."""

    def __init__(self, service: Service, body: bytes, count: int, bad: int = 0) -> None:
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self._service, self._body, self._count = service, body, count
        self._bad = bad
        self._lock = threading.Lock()

    def run(self, seconds: float = 1e9, requests: int = 1 << 60) -> float:
        """Send requests for a duration or a count; return the seconds."""
        begin = time.perf_counter()
        self._end, self._left, self._every = begin + seconds, requests, requests
        if self._bad:
            self._every = max(requests // self._bad, 1)
        threads = [threading.Thread(target=self._ask) for _ in range(self._count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin

    def _next(self) -> bytes | None:
        with self._lock:
            if self._left <= 0 or time.perf_counter() > self._end:
                return None
            self._left -= 1
            if self._bad and self._left % self._every == 0:
                return BAD[self._left // self._every % len(BAD)]
            return self._body

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._service.host, self._service.port)
        while (body := self._next()) is not None:
            begin = time.perf_counter()
            connection.request("POST", "/v1/restore", body)
            reply = connection.getresponse()
            reply.read()
            with self._lock:
                self.statuses[reply.status] += 1
                if reply.status == 200:
                    self.seconds.append(time.perf_counter() - begin)
            if reply.status == 429:
                time.sleep(0.2)
        connection.close()


def slow_clients(service: Service, body: bytes, over: threading.Event) -> list[threading.Thread]:
    """Start one client that sends slowly and one that reads slowly."""

    def send() -> None:
        with socket.create_connection((service.host, service.port)) as stream:
            head = f"POST /v1/restore HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            stream.sendall(head.encode())
            for byte in body:
                if over.wait(1.0):
                    return
                try:
                    stream.sendall(bytes([byte]))
                except OSError:
                    return

    def read() -> None:
        with socket.create_connection((service.host, service.port)) as stream:
            head = f"POST /v1/restore HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            stream.sendall(head.encode() + body)
            while not over.wait(1.0) and stream.recv(16):
                pass

    threads = [threading.Thread(target=work, daemon=True) for work in (send, read)]
    for thread in threads:
        thread.start()
    return threads


def make_image(side: int) -> bytes:
    """Return a PNG with smooth colors."""
    ramp = np.linspace(0, 255, side, dtype=np.uint8)
    values = np.stack([*np.meshgrid(ramp, ramp), np.full((side, side), 90, np.uint8)], axis=2)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "PNG")
    return stream.getvalue()


def main() -> None:
    """Print a row for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--requests", type=int, help="so many, with bad and slow ones beside")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--flags", default="", help="for nystra serve, such as '--batch 1'")
    args = parser.parse_args()
    body = make_image(args.size)
    service = Service(args.model, *args.flags.split())
    Clients(service, body, 2).run(1.0)
    print("| clients | requests/s | p50, ms | p99, ms | answers | MiB |")
    print("| ---: | ---: | ---: | ---: | --- | ---: |")
    for count in args.clients:
        if args.requests:
            soak(service, body, count, args.requests)
            continue
        clients = Clients(service, body, count)
        row(clients, count, clients.run(args.seconds), service)
    print("exit code", service.stop())


def row(clients: Clients, count: int, took: float, service: Service) -> None:
    """Print the results of a number of clients."""
    p50, p99 = np.percentile(clients.seconds, (50, 99)) * 1e3
    answers = ", ".join(f"{number} x {status}" for status, number in clients.statuses.items())
    rate = len(clients.seconds) / took
    memory = service.memory()
    print(
        f"| {count} | {rate:.1f} | {p50:.0f} | {p99:.0f} | {answers} | {memory:.0f} |", flush=True
    )


def soak(service: Service, body: bytes, count: int, requests: int) -> None:
    """Print the memory over many requests, some of them invalid or slow."""
    over = threading.Event()
    slow = slow_clients(service, body, over)
    for share in (requests // 10, requests - requests // 10):
        clients = Clients(service, body, count, bad=1000 * share // requests)
        row(clients, count, clients.run(requests=share), service)
        lost = share - sum(clients.statuses.values())
        print(f"lost: {lost}", flush=True)
    over.set()
    for thread in slow:
        thread.join(5)


if __name__ == "__main__":
    main()
