"""The parent's side of a process that calls TensorRT.

TensorRT ends the process it is in when it meets what it did not expect: a plugin without a
format, a convolution to be timed where no GPU is. So every call has a process of its own, and a
process that dies is an answer too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ..workers.start import start_child
from . import toolkit

WORKER = f"{__package__}.worker"
_ADDR_NO_RANDOMIZE = 0x0040000

_ERRORS = {1: ExportError, 3: BackendUnavailableError}

Progress = Callable[[str, int, int], None]
"""(what is going on, steps done, steps in all)."""


@dataclass
class Answer:
    """What a process said.

    Attributes:
        values: Its answer; empty when it died.
        death: How it died, or None.
        words: What it and the libraries in it printed, line by line.
    """

    values: dict[str, Any] = field(default_factory=dict)
    death: str | None = None
    words: list[str] = field(default_factory=list)

    @property
    def plugin_words(self) -> list[str]:
        """What our own plugins printed, without the prefix."""
        return [line[len("nystra: ") :] for line in self.words if line.startswith("nystra: ")]


def ask(
    request: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = 900.0,
    progress: Progress = lambda _what, _done, _total: None,
) -> Answer:
    """Send one request to a fresh process of `worker` and return its answer.

    Args:
        request: With ``do`` and ``backend``, see `worker`.
        environment: Added to what a child process gets.
        seconds: The process is ended when it has not answered by then.
        progress: Is called while the process works.

    Raises:
        NystraError: The process reported bad input.
        ExportError: It gave a build up.
        BackendUnavailableError: The builder is not installed there.
    """
    backend = str(request["backend"])
    toolkit.require(backend)
    with tempfile.TemporaryDirectory(prefix="nystra-") as folder, tempfile.TemporaryFile() as words:
        links = toolkit.loader_links(backend, Path(folder))
        process = start_child(
            WORKER,
            words,
            {**links, "PYTHONHASHSEED": "0", **(environment or {})},
            before=_same_addresses,
        )
        answer = _converse(process, request, seconds, progress)
        words.seek(0)
        answer.words = words.read().decode("utf-8", "replace").splitlines()
    error = answer.values.get("error")
    if error is not None:
        raise _ERRORS.get(answer.values["exit_code"], NystraError)(error)
    return answer


def _converse(
    process: subprocess.Popen[bytes], request: Mapping[str, Any], seconds: float, progress: Progress
) -> Answer:
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    answer = Answer()
    assert process.stdin is not None  # both are pipes
    assert process.stdout is not None
    try:
        with contextlib.suppress(OSError), process.stdin:
            process.stdin.write(json.dumps(request).encode() + b"\n")
        with process.stdout:
            for line in process.stdout:
                message = json.loads(line)
                if "progress" in message:
                    progress(*message["progress"])
                else:
                    answer.values = message
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if late.is_set():
        answer.death = f"gave no answer in {seconds:.0f} s"
    elif not answer.values:
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        answer.death = f"was ended by {how}"
    return answer


def _same_addresses() -> None:
    """Turn address randomisation off: TensorRT-RTX numbers symbolic sizes in address order.

    With it the bytes of an engine of open sizes differ from build to build. Where the system
    forbids it, they do.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.personality(libc.personality(0xFFFFFFFF) | _ADDR_NO_RANDOMIZE)
