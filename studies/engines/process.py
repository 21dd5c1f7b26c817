"""The process of an engine, from the side of the study."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class EngineError(Exception):
    """An engine failed; the text is its error."""


class Process:
    """A process that answers requests as `workers.protocol` says; a context manager that ends it.

    nystra's own `Child` starts the interpreter that runs it: here each engine has another.
    """

    def __init__(self, python: Path, worker: str, threads: int, seconds: float) -> None:
        """Start it.

        Args:
            python: Interpreter of the engine's environment.
            worker: A module in ``workers``.
            threads: OpenMP's, for engines that go by it.
            seconds: An answer that takes longer ends the process, where a request names no limit.
        """
        self._seconds = seconds
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        tools = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self._process = subprocess.Popen(
            [str(python), "-m", f"studies.engines.workers.{worker}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "PATH": tools},
            text=True,
        )

    def __enter__(self) -> Process:
        """Return the process itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()

    def ask(
        self, what: str, request: Mapping[str, Any] | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        """Send a request; return the answer, which may take so many seconds.

        Raises:
            EngineError: The engine reported an error, died, or took too long.
        """
        line = json.dumps({"do": what, **(request or {})}) + "\n"
        limit = self._seconds if seconds is None else seconds
        timer = threading.Timer(limit, self._process.kill)
        timer.start()
        text = ""
        if self._process.stdin is not None and self._process.stdout is not None:
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
                text = self._process.stdout.readline()
            except OSError:
                pass
        late = not timer.is_alive()
        timer.cancel()
        if not text.endswith("\n"):
            raise EngineError(f"{what}: longer than {limit:.0f} s" if late else self._death(what))
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer

    def close(self) -> None:
        """End it, by force where it does not end by itself."""
        try:
            self._process.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._printed.close()

    def _death(self, what: str) -> str:
        code = self._process.wait()
        self._printed.seek(0)
        last = self._printed.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"{what}: the process ended with {code}{': ' + last[0] if last else ''}"
