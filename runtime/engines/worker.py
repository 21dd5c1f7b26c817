"""The process that calls TensorRT: one request on stdin, one answer on stdout, both JSON.

Every request has ``backend``, ``model`` and ``library`` (a path or null), and ``do``:

- ``parse`` with ``cases``, a list of {input: shape} -> the network, or ``refusal``; the shapes
  of all outputs for each case;
- ``check`` with ``profile`` -> ``checked``, whether the checks that begin a build passed, or
  ``refusal``;
- ``build`` with ``profile``, ``targets``, ``seconds``, ``timing_cache`` and ``output`` -> the
  engine is in the file ``output``, or ``refusal``.

Every answer has ``version``. Progress comes in lines of its own before the answer. What goes wrong
is ``{"error": text, "exit_code": number}``. Whatever libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from ...core.errors import NystraError
from . import toolkit
from .building import RefusedError, build, configure, set_targets, start_build
from .network import Log, Network


def main() -> int:
    """Answer the one request; return the exit code."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        request = json.loads(sys.stdin.readline())
        answer = _Worker(request, say).answer()
    except NystraError as error:
        answer = {"error": str(error), "exit_code": error.exit_code}
    say(answer)
    return 0


class _Worker:
    def __init__(self, request: dict[str, Any], say: Any) -> None:
        self._request = request
        self._say = say
        if request["backend"] == toolkit.TENSORRT and isinstance(toolkit.find_device(), str):
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
        config = configure(network, request["profile"])
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
                progress=lambda *step: self._say({"progress": step}),
            )
        except RefusedError as error:
            return {**result, "refusal": network.blame(str(error))}
        Path(request["output"]).write_bytes(engine)
        return {**result, "refusal": None}

    def _passed(self, result: dict[str, Any]) -> NoReturn:
        """Answer and leave before the kernel timing that may end this process."""
        self._say({**result, "checked": True, "refusal": None})
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
