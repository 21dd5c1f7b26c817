"""The child process of a benchmark: loads one model in one backend and runs it on request.

Requests and answers are JSON, one line each, on stdin and stdout:

``{"do": "load", ...}`` with what the opener needs -> what is known of the session, such
as ``{"library_reason": text, "operators": "kernels"}``;
``{"do": "prepare", "size": {"height": 64, ...}}`` -> ``{}``, the memory is counted from here;
``{"do": "run"}`` -> ``{"seconds": time of the run alone, "device_seconds": of another run on the
device without copies, or null}``;
``{"do": "device"}`` -> ``{"above": bytes or null}``, what the GPU's memory in use grew by since
before the ``load``, where that said ``"device": true``;
``{"do": "memory"}`` -> ``{"before": bytes, "peak": bytes, "above": bytes, "exact": bool}``.

A request that fails is answered as described in `answer_requests`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.ports.examples import example_arrays
from ...core.ports.port import Port
from ..machine.gpu import DeviceMemory
from ..machine.memory import PeakMemory
from ..session import Session
from ..session_spec import SessionSpec
from ..workers.loop import Send, answer_requests

Feeds = dict[str, Array]


@dataclass(frozen=True)
class Opened:
    """A model that is loaded.

    Attributes:
        run: Runs it once on named arrays.
        device_seconds: Runs it once and tells what the device took, as `Session.device_seconds`.
        inputs: Its inputs.
        notes: Details for the parent process, in JSON form.
    """

    run: Callable[[Feeds], object]
    device_seconds: Callable[[Feeds], float | None] = lambda _: None
    inputs: Sequence[Port] = ()
    notes: dict[str, Any] = field(default_factory=dict)


def serve(opener: Callable[[Mapping[str, Any]], Opened]) -> int:
    """Answer requests until stdin ends; return the exit code.

    Args:
        opener: Loads the model of a ``load`` request; may raise `NystraError`.
    """
    return answer_requests(_BenchmarkWorker(opener).answer)


def open_session(request: Mapping[str, Any]) -> Opened:
    """Load the session in ``session`` (`SessionSpec.as_dict`).

    Raises:
        NystraError: The model cannot be used.
        BackendUnavailableError: The backend is missing.
    """
    session = Session.open(SessionSpec.from_dict(request["session"]))
    notes: dict[str, Any] = {
        "library_reason": session.library_reason,
        "operators": session.operators,
    }
    if session.assignment is not None:
        notes["library_reason"] += f"; {session.assignment.describe()}"
        notes["assignment"] = session.assignment.as_dict()
    return Opened(session.run, session.device_seconds, session.facts.inputs, notes)


class _BenchmarkWorker:
    def __init__(self, opener: Callable[[Mapping[str, Any]], Opened]) -> None:
        self._opener = opener
        self._opened = Opened(lambda _: None)
        self._feeds: Feeds = {}
        self._memory: PeakMemory | None = None
        self._device: DeviceMemory | None = None

    def answer(self, request: Mapping[str, Any], _send: Send) -> dict[str, Any]:
        what = request["do"]
        if what == "load":
            self._device = DeviceMemory.start() if request.get("device") else None
            self._opened = self._opener(request)
            return self._opened.notes
        if what == "prepare":
            self._feeds = example_arrays(self._opened.inputs, request["size"])
            self._memory = PeakMemory()
            return {}
        if what == "run":
            start = time.perf_counter()
            self._opened.run(self._feeds)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, "device_seconds": self._opened.device_seconds(self._feeds)}
        if what == "device":
            return {"above": None if self._device is None else self._device.above}
        if what == "memory" and self._memory is not None:
            memory = self._memory
            return {
                "before": memory.before,
                "peak": memory.peak,
                "above": memory.above,
                "exact": memory.exact,
            }
        raise NystraError(f"a benchmark process got the request {request!r}")


if __name__ == "__main__":
    sys.exit(serve(open_session))
