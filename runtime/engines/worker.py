"""The process that calls TensorRT, which answers requests as described in `answer_requests`.

Every request has ``backend``, ``model`` and ``library`` (a path or null), and ``do``:

- ``parse`` with ``cases``, a list of {input: shape} -> the network, or ``refusal``; the shapes
  of all outputs for each case;
- ``check`` with ``profile`` -> ``checked``, whether the checks that begin a build passed, or
  ``refusal``;
- ``build`` with ``profile``, ``targets``, ``seconds``, ``level``, ``threads``, ``timing_cache``
  and ``output`` -> the engine is in the file ``output``, or ``refusal``.

Every answer has ``version``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..machine import gpu
from ..workers.loop import Send, answer_requests
from . import toolkit
from .building import RefusedError, build, configure, set_targets, start_build
from .network import Log, Network


class _EngineWorker:
    def __init__(self, request: Mapping[str, Any], send: Send) -> None:
        self._request = request
        self._send = send
        if request["backend"] == toolkit.TENSORRT and isinstance(gpu.find_device(), str):
            for name, value in toolkit.CPU_ONLY.items():
                os.environ.setdefault(name, value)
        self._toolkit = toolkit.load(request["backend"])
        self._log = Log(self._toolkit)

    def answer(self) -> dict[str, Any]:
        request = self._request
        network = Network(self._toolkit, self._log, request["model"], request["library"])
        result = {"version": self._toolkit.version, "warnings": self._log.warnings[:20]}
        if network.refusal is not None:
            return {**result, "refusal": network.refusal}
        if request["do"] == "parse":
            shapes = network.output_shapes(request["cases"], self._log)
            refusal = network.blame(self._log.errors[0]) if self._log.errors else None
            return {**result, **network.describe(), "shapes": shapes, "refusal": refusal}
        config = configure(
            network, request["profile"], request.get("level"), request.get("threads")
        )
        if self._toolkit.name == toolkit.RTX:
            set_targets(self._toolkit, config, request["targets"])
        if request["do"] == "check":
            start_build(network, self._log, config, lambda: self._passed(result))
            refusal = network.blame(self._log.errors[0]) if self._log.errors else None
            return {**result, "checked": refusal is None, "refusal": refusal}
        try:
            engine = build(
                network,
                self._log,
                config,
                seconds=request["seconds"],
                timing_cache=Path(request["timing_cache"]) if request["timing_cache"] else None,
                progress=lambda *step: self._send({"progress": step}),
            )
        except RefusedError as error:
            return {**result, "refusal": network.blame(str(error))}
        Path(request["output"]).write_bytes(engine)
        return {**result, "refusal": None}

    def _passed(self, result: dict[str, Any]) -> NoReturn:
        """Answer and leave before the kernel timing that may end this process."""
        self._send({**result, "checked": True, "refusal": None})
        os._exit(0)


def _answer(request: Mapping[str, Any], send: Send) -> dict[str, Any]:
    return _EngineWorker(request, send).answer()


if __name__ == "__main__":
    sys.exit(answer_requests(_answer))
