"""Requests to a process that calls TensorRT.

TensorRT ends its process in unexpected situations: a plugin without a format, a convolution to be
timed without a GPU. So every call has a separate process, and one that dies is an answer too.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ...core.files.scratch import scratch_folder
from ..workers.child import Child, ChildError, Progress
from . import toolkit

WORKER = f"{__package__}.worker"
_GRACE_SECONDS = 60.0
"""TensorRT needs time to release its resources, and logs while it does."""

_ADDR_NO_RANDOMIZE = 0x0040000

_ERRORS = {1: ExportError, 3: BackendUnavailableError}


@dataclass
class BuilderAnswer:
    """The answer of a process.

    Attributes:
        values: The answer; empty if it died.
        death: How it died, or None.
        output: What it and the libraries in it printed, line by line.
    """

    values: dict[str, Any] = field(default_factory=dict)
    death: str | None = None
    output: list[str] = field(default_factory=list)

    @property
    def plugin_output(self) -> list[str]:
        """The output of nystra's plugins, without the prefix."""
        return [line[len("nystra: ") :] for line in self.output if line.startswith("nystra: ")]


def ask(
    request: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = 900.0,
    progress: Progress = lambda _what, _done, _total: None,
) -> BuilderAnswer:
    """Send one request to a fresh process of `worker` and return its answer.

    Args:
        request: With ``do`` and ``backend``, see `worker`.
        environment: Added to the environment of a child process.
        seconds: The process is ended when it has not answered by then.
        progress: Is called while the process works.

    Raises:
        NystraError: The process reported bad input.
        ExportError: It reported that a build failed.
        BackendUnavailableError: The builder is not installed there.
    """
    backend = str(request["backend"])
    toolkit.require(backend)
    answer = BuilderAnswer()
    with scratch_folder() as folder:
        links = toolkit.loader_links(backend, folder)
        child = Child(
            WORKER,
            seconds,
            environment={**links, "PYTHONHASHSEED": "0", **(environment or {})},
            before=_same_addresses,
            grace=_GRACE_SECONDS,
        )
        with child:
            try:
                answer.values = child.ask(str(request["do"]), request, progress)
            except ChildError as error:
                if error.death is None:
                    raise _ERRORS.get(error.exit_code, NystraError)(str(error)) from error
                answer.death = error.death
        answer.output = child.output
    return answer


def _same_addresses() -> None:
    """Turn address randomization off: TensorRT-RTX numbers symbolic sizes in address order.

    With randomization the bytes of an engine of free sizes differ from build to build. If the
    system forbids turning it off, they do.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.personality(libc.personality(0xFFFFFFFF) | _ADDR_NO_RANDOMIZE)
