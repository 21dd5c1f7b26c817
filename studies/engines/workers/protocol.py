"""The protocol of an engine's process: JSON, one line each, on stdin and stdout.

It needs numpy alone, since each engine has an environment of its own. Requests are answered in
order; a request that fails is answered by ``{"error": text}``. Whatever libraries print goes to
stderr.

``{"do": "convert", "source": path, "target": path, ...}`` -> ``{"seconds": ...}``;
``{"do": "open", "path": path, "image": path, "precision": ..., "threads": ...}`` ->
``{"seconds": ..., "version": ...}``, the import of the engine included;
``{"do": "first", "output": path}`` -> ``{"seconds": ...}`` of the first run, whose output is kept
there;
``{"do": "run"}`` -> ``{"seconds": ..., "processor": ...}``;
``{"do": "forget"}`` -> ``{}``: the peak of the memory begins anew;
``{"do": "memory"}`` -> ``{"peak": bytes}``, resident.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Request = Mapping[str, Any]
Run = Callable[[np.ndarray], np.ndarray]
Opener = Callable[[Request], Run]
Converter = Callable[[Request], None]


class Worker:
    """The state of an engine's process: the opened engine and its image.

    Attributes:
        package: The distribution whose version the study notes.
    """

    def __init__(self, package: str, opener: Opener, converter: Converter | None) -> None:
        """Store how the engine opens and converts."""
        self.package, self._opener, self._converter = package, opener, converter
        self._run: Run | None = None
        self._image = np.zeros((1, 3, 1, 1), np.float32)

    def answer(self, request: Request) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            ValueError: It is none of the protocol, or comes before ``open``.
        """
        what = request["do"]
        start = time.perf_counter()
        if what == "convert" and self._converter is not None:
            self._converter(request)
            return {"seconds": time.perf_counter() - start}
        if what == "open":
            self._image = np.load(request["image"])
            self._run = self._opener(request)
            return {"seconds": time.perf_counter() - start, "version": version(self.package)}
        if what == "forget":
            forget_peak_memory()
            return {}
        if what == "memory":
            return {"peak": peak_memory()}
        if self._run is None:
            raise ValueError(f"got the request {what!r} before an engine was open")
        if what == "first":
            output = self._run(self._image)
            seconds = time.perf_counter() - start
            np.save(request["output"], np.asarray(output, np.float32))
            return {"seconds": seconds}
        if what == "run":
            used = time.process_time()
            self._run(self._image)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, "processor": time.process_time() - used}
        raise ValueError(f"got the request {what!r}")


def serve(package: str, opener: Opener, converter: Converter | None = None) -> None:
    """Answer requests until stdin ends.

    Args:
        package: The distribution whose version is noted.
        opener: Returns what runs the engine on an image (1, 3, H, W).
        converter: Makes the engine's own file, where it has one.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(package, opener, converter)
    for line in sys.stdin:
        try:
            reply = worker.answer(json.loads(line))
        except Exception as error:  # the study writes the reason into the row
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def peak_memory() -> int:
    """Return the largest resident bytes of this process since they were last forgotten."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("/proc/self/status names no VmHWM: the study needs Linux")
    return int(found[1]) * 1024


def forget_peak_memory() -> None:
    """Reset the largest resident memory (proc(5))."""
    Path("/proc/self/clear_refs").write_text("5")
