"""The parent's side of a benchmark's child process (`worker`)."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from .start import start_child

ANSWER_SECONDS = 900.0
"""A child that gives no answer for so long is ended."""


class ChildError(Exception):
    """What a child could not do.

    Attributes:
        exit_code: Of the error the child reported; 1 when it died without a word.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        """Keep the message and the exit code."""
        super().__init__(message)
        self.exit_code = exit_code


class Child:
    """One child process; a context manager that ends it."""

    def __init__(self, module: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Start a module that calls `worker.serve`."""
        self._limit = answer_seconds
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = start_child(module, self._words)

    def __enter__(self) -> Child:
        """Return the child itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        self.close()

    def ask(self, what: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and return the answer.

        Raises:
            ChildError: The child reported an error, died, or gave no answer in time.
        """
        line = json.dumps({"do": what, **(request or {})}) + "\n"
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(self._limit, end)
        timer.start()
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
            text = self._process.stdout.readline()
        except OSError:
            text = b""
        finally:
            timer.cancel()
        if late.is_set():
            raise ChildError(f"no answer to {what!r} in {self._limit:.0f} s")
        if not text.endswith(b"\n"):
            raise ChildError(self._death())
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise ChildError(answer["error"], answer["exit_code"])
        return answer

    def interrupt(self, *, force: bool = False) -> None:
        """Tell the child to end, from another thread; who asks it is told that it died.

        Args:
            force: It is not asked (SIGKILL).
        """
        if force:
            self._process.kill()
        else:
            self._process.terminate()

    def close(self) -> None:
        """End the child, by force where it does not end by itself."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._words.close()

    def _death(self) -> str:
        try:
            code = self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"ended with exit code {code}"
        if code < 0:
            name = signal.Signals(-code).name
            why = ": out of memory?" if name == "SIGKILL" else ""
            how = f"was ended by {name}{why}"
        self._words.seek(0)
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        last = f" (its last words: {lines[-1][:300]})" if lines else ""
        return f"the process {how}{last}"
