"""The child process of a benchmark: loads one model in one backend and runs it when asked.

Requests and answers are JSON, one line each, on stdin and stdout:

``{"do": "load", ...}`` with what the opener needs -> ``{"library_reason": text}``;
``{"do": "prepare", "size": [height, width]}`` -> ``{}``, and the memory is counted from here;
``{"do": "run"}`` -> ``{"seconds": time of the run alone}``;
``{"do": "device"}`` -> ``{"above": bytes or null}``, what the GPU's memory in use grew by since
before the ``load``, where that said ``"device": true``;
``{"do": "memory"}`` -> ``{"before": bytes, "peak": bytes, "above": bytes, "exact": bool}``.

A request that fails is answered by ``{"error": text, "exit_code": number}``. The process ends
when stdin does. Whatever libraries print goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from ..model.model_facts import TensorInfo
from .device_memory import DeviceMemory
from .process_memory import PeakMemory

if TYPE_CHECKING:
    from ..session import Session

Feeds = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Opened:
    """A model that is loaded.

    Attributes:
        run: Runs it once on what `feeds` made.
        feeds: (height, width) -> input name -> array.
        notes: What the parent is told about it, in JSON form.
    """

    run: Callable[[Feeds], object]
    feeds: Callable[[int, int], Feeds]
    notes: dict[str, Any] = field(default_factory=dict)


def serve(opener: Callable[[Mapping[str, Any]], Opened]) -> int:
    """Answer requests until stdin ends; return the exit code.

    Args:
        opener: Loads what a ``load`` request describes; may raise `NystraError`.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _offer_to_the_memory_killer()
    server = _Server(opener)
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except NystraError as error:
            answer = {"error": str(error), "exit_code": error.exit_code}
        except ModuleNotFoundError as error:
            answer = {"error": f"{error.name} is not installed", "exit_code": 3}
        except MemoryError:
            answer = {"error": "the memory does not suffice", "exit_code": 1}
        except Exception as error:  # the parent makes a row of it, whatever it was
            answer = {"error": f"{type(error).__name__}: {error}", "exit_code": 1}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def open_session(request: Mapping[str, Any]) -> Opened:
    """Load a model file with `Session`: keys ``model``, ``backend``, ``library``, ``threads``.

    With ``needs_library`` a session without the operator library is an error.

    Raises:
        NystraError: The model cannot be used.
        BackendUnavailableError: The backend or the library is missing.
    """
    from ...plugins.errors import BackendUnavailableError
    from ..session import Session

    session = Session(
        request["model"], request["backend"], request.get("threads"), request.get("library")
    )
    if request.get("needs_library") and session.library is None:
        raise BackendUnavailableError(session.library_reason)
    return Opened(
        session.run, partial(example_feeds, session), {"library_reason": session.library_reason}
    )


def example_feeds(session: Session, height: int, width: int) -> Feeds:
    """Return inputs for a session: noise in the image's range at this size, zeros for integers.

    An input whose role is ``mask`` gets a hole in the middle.

    Raises:
        NystraError: The image input has another, fixed size.
    """
    facts = session.facts
    low, high = facts.range
    masks = {entry.get("name") for entry in facts.io if entry.get("role") == "mask"}
    feeds = {}
    for tensor in session.inputs:
        if tensor.name in masks:
            feeds[tensor.name] = example_mask(height, width).astype(tensor.dtype)
            continue
        fixed = tensor.fixed_size if tensor.name == facts.image_input else None
        if fixed is not None and fixed != (height, width):
            raise NystraError(
                f"{session.path} has the fixed input size {fixed[0]}x{fixed[1]}, "
                f"got {height}x{width}: time it at its own"
            )
        array = example_input(tensor, height, width, facts.input_channels or 3)
        feeds[tensor.name] = low + (high - low) * array if array.dtype.kind == "f" else array
    return feeds


def example_mask(height: int, width: int) -> npt.NDArray[np.float32]:
    """Return a mask (1, 1, height, width) with a hole in the middle, a ninth of the picture."""
    mask = np.zeros((1, 1, height, width), np.float32)
    rows, columns = (slice(side // 3, side // 3 + -(-side // 3)) for side in (height, width))
    mask[:, :, rows, columns] = 1.0
    return mask


def example_input(tensor: TensorInfo, height: int, width: int, channels: int) -> npt.NDArray[Any]:
    """Return noise in 0..1 for a floating input, zeros for any other.

    Args:
        tensor: The input; fixed dimensions are kept, the last two dynamic ones of 3 or more
            become height and width, that before them the channels, the others 1.
        height: In pixels.
        width: In pixels.
        channels: Of the image.
    """
    wanted = [1] * len(tensor.shape)
    if len(wanted) >= 3:
        wanted[-3:] = [channels, height, width]
    shape = [
        fixed if isinstance(fixed, int) else size
        for fixed, size in zip(tensor.shape, wanted, strict=True)
    ]
    if tensor.dtype in ("float16", "float32", "float64"):
        return np.random.default_rng(0).random(shape).astype(tensor.dtype)
    return np.zeros(shape, tensor.dtype)


class _Server:
    def __init__(self, opener: Callable[[Mapping[str, Any]], Opened]) -> None:
        self._opener = opener
        self._opened = Opened(lambda _: None, lambda _height, _width: {})
        self._feeds: Feeds = {}
        self._memory: PeakMemory | None = None
        self._device: DeviceMemory | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        what = request["do"]
        if what == "load":
            self._device = DeviceMemory.start() if request.get("device") else None
            self._opened = self._opener(request)
            return self._opened.notes
        if what == "prepare":
            self._feeds = self._opened.feeds(*request["size"])
            self._memory = PeakMemory()
            return {}
        if what == "run":
            start = time.perf_counter()
            self._opened.run(self._feeds)
            return {"seconds": time.perf_counter() - start}
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


def _offer_to_the_memory_killer() -> None:
    """Let Linux end this process, not its parent, when the memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(serve(open_session))
