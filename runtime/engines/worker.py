"""The process that calls TensorRT, which answers requests as described in `answer_requests`.

Every request has ``backend``, ``model`` and ``library`` (a path or null), and ``do``:

- ``parse`` with ``cases``, a list of {input: shape} -> the network, or ``refusal``; the shapes
  of all outputs for each case;
- ``check`` with ``profile`` -> ``checked``, whether the checks that begin a build passed, or
  ``refusal``;
- ``build`` with ``profile``, ``targets``, ``seconds``, ``level``, ``threads``, ``timing_cache``
  and ``output`` -> the engine is in the file ``output``, or ``refusal``.

Every answer has ``version``. Polygraphy parses, configures and builds; the rest is what it lacks.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ...core.errors import ExportError, NystraError
from ..machine import gpu
from ..workers.loop import Send, answer_requests
from . import toolkit

CPU_ONLY = {"TRT_INTERNAL_OPTIONS": "--cpu_only=1"}
"""Builder and parser of TensorRT without a driver, as NVIDIA's own ``trtexec --cpuOnly``."""

CPU_ONLY_REFUSED = "CPU-only builder"
"""In the reason of a TensorRT that cannot begin a build without a GPU."""

_PARSER_ERROR = re.compile(
    r"In node -?\d+ with name: (?P<node>.*) and operator: (?P<operator>\S+) \(.*?\): "
    r"(?P<reason>.*)",
    re.DOTALL,
)


class _EngineWorker:
    def __init__(self, request: Mapping[str, Any], send: Send) -> None:
        self._request, self._send = request, send
        if request["backend"] == toolkit.TENSORRT and isinstance(gpu.find_device(), str):
            for name, value in CPU_ONLY.items():
                os.environ.setdefault(name, value)
        self._toolkit = toolkit.load(request["backend"])
        self._failed = import_module("polygraphy.exception").PolygraphyException
        self._log = self._toolkit.keep_log()

    def answer(self) -> dict[str, Any]:
        result = {"version": self._toolkit.version, "refusal": None}
        library = self._request["library"]
        if library is not None:
            try:
                self._toolkit.load_plugins(Path(library))
            except NystraError as error:
                raise NystraError(": ".join([str(error), *self._log.errors[:1]])) from error
        try:
            self._builder, self._network, self._parser = parsed(
                self._toolkit, self._request["model"]
            )
        except self._failed as error:
            return {**result, "refusal": self._parser_refusal(str(error))}
        if self._log.errors:  # the parser may be content with what it reported as an error
            return {**result, "refusal": self._blame(self._log.errors[0])}
        return {**result, **getattr(self, f"_{self._request['do']}")(result)}

    def _parse(self, _result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the network and its output shapes."""
        shapes = self._output_shapes(self._request["cases"])
        refusal = self._blame(self._log.errors[0]) if self._log.errors else None
        return {**self._describe(), "shapes": shapes, "refusal": refusal}

    def _check(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a build, and leave after the checks that precede the kernel timing.

        TensorRT checks the profile and asks the plugins for formats only there. Without a GPU the
        timing itself fails, and may end the process.
        """

        def passed(line: str) -> None:
            if "Computing costs for" in line:
                leave()

        def leave() -> NoReturn:
            self._send({**result, "checked": True})
            os._exit(0)

        self._log.watch = passed
        refusal = self._engine(None)[1]
        return {"checked": refusal is None, "refusal": refusal}

    def _build(self, _result: Mapping[str, Any]) -> dict[str, Any]:
        """Write the engine."""
        request = self._request
        monitor = _monitor(self._toolkit.module, request["seconds"], self._send)
        engine, refusal = self._engine(monitor)
        if monitor.late:
            raise ExportError(
                f"the engine was not built in {request['seconds']:.0f} s: allow more time "
                "(`seconds`) or fewer shapes; see docs/gpu.md"
            )
        if engine is not None:
            Path(request["output"]).write_bytes(engine)
        return {"refusal": refusal}

    def _engine(self, monitor: Any) -> tuple[bytes | None, Any]:
        """Return the engine, or the refusal."""
        request, network = self._request, (self._builder, self._network, self._parser)
        if request.get("threads") is not None:  # Polygraphy's configuration has none
            self._builder.max_threads = request["threads"]
        cache = request.get("timing_cache")
        try:
            config = configuration(
                self._toolkit,
                network,
                request["profile"],
                request.get("targets") or (),
                builder_optimization_level=request.get("level"),
                load_timing_cache=cache,
                progress_monitor=monitor,
            )
        except self._failed as error:
            raise NystraError(
                f"{self._toolkit.name} {self._toolkit.version} cannot be configured for the "
                f"profile {request['profile']}: {error}"
            ) from error
        try:
            build = self._toolkit.polygraphy.engine_bytes_from_network
            return bytes(build(network, config, save_timing_cache=cache)), None
        except self._failed:
            reason = self._log.errors[0] if self._log.errors else "no reason was logged"
            return None, self._blame(reason)

    def _parser_refusal(self, text: str) -> dict[str, str]:
        """Return the refusal in the log; Polygraphy's exceptions do not name the node."""
        for line in self._log.errors:
            if found := _PARSER_ERROR.fullmatch(line):
                return found.groupdict()
        return {"node": "", "operator": "", "reason": next(iter(self._log.errors), text)}

    def _blame(self, reason: str) -> dict[str, str]:
        """Return a refusal for a logged error, with the layer that is named in it."""
        names = (layer.name for layer in self._network)
        node = max((name for name in names if name in reason), key=len, default="")
        return {"node": node, "operator": "", "reason": reason}

    def _describe(self) -> dict[str, Any]:
        """Return inputs, outputs and layers, in JSON form."""
        net = self._network
        return {
            "layers": net.num_layers,
            "plugins": [layer.name for layer in net if "PLUGIN" in str(layer.type)],
            "inputs": [_tensor(net.get_input(i)) for i in range(net.num_inputs)],
            "outputs": [_tensor(net.get_output(i)) for i in range(net.num_outputs)],
        }

    def _output_shapes(self, cases: Sequence[Mapping[str, Sequence[int]]]) -> list[Any]:
        """Return the shapes of all outputs for each case of input shapes.

        The shapes of the network's inputs are set: TensorRT infers all shapes again, with the
        plugins' shape functions. It stops at the first shape that cannot be inferred, which is
        then the first error of the log.
        """
        net, shapes = self._network, []
        inputs = {net.get_input(i).name: net.get_input(i) for i in range(net.num_inputs)}
        for case in cases:
            for name, shape in case.items():
                inputs[name].shape = tuple(shape)
            try:
                shapes.append([list(net.get_output(i).shape) for i in range(net.num_outputs)])
            except (RuntimeError, ValueError) as error:  # an invalid shape, in the bindings' words
                reason = next(iter(self._log.errors), str(error))
                text = f"{self._first_without_shape()}: no shape for {case}: {reason}"
                self._log.errors.insert(0, text)
                break
        return shapes

    def _first_without_shape(self) -> str:
        for layer in self._network:
            try:
                for index in range(layer.num_outputs):
                    list(layer.get_output(index).shape)
            except (RuntimeError, ValueError):
                return str(layer.name)
        return "an output"


def parsed(found: toolkit.Toolkit, model: str) -> Any:
    """Return builder, network and parser of a model file; the types are those of the file."""
    strongly = hasattr(found.module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    return found.polygraphy.network_from_onnx_path(model, strongly_typed=strongly)


def configuration(
    found: toolkit.Toolkit,
    network: Any,
    profile: Mapping[str, Sequence[Sequence[int]]],
    targets: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """Return a builder's configuration without TF32.

    Args:
        found: The builder.
        network: What `parsed` returned.
        profile: Input name -> smallest, best and largest shape.
        targets: For TensorRT-RTX, the GPUs to build for; none: that of this machine.
        **settings: Of Polygraphy's ``CreateConfig``; None for the builder's own.

    Raises:
        NystraError: A target is not one that this TensorRT-RTX knows.
        PolygraphyException: The profile is not one of this network.
    """
    polygraphy, trt = found.polygraphy, found.module
    shapes = polygraphy.Profile()
    for name, row in profile.items():
        shapes.add(name, *map(tuple, row))
    create = polygraphy.CreateConfig
    if found.name == toolkit.RTX:
        create = import_module("polygraphy.backend.tensorrt_rtx").CreateConfigRTX
        known = sorted(
            (name.lower() for name in dir(trt.ComputeCapability) if name.startswith("SM")),
            key=toolkit.by_number,
        )
        if wrong := sorted(set(targets) - set(known)):
            raise NystraError(
                f"TensorRT-RTX {found.version} has no target {', '.join(wrong)}; expected one or "
                f"more of {', '.join(known)}"
            )
        pairs = [(int(target[2:-1]), int(target[-1])) for target in targets]
        settings |= {"compute_capabilities": pairs} if targets else {"use_gpu": True}
    config = create(profiles=[shapes], **settings)(*network[:2])
    config.clear_flag(trt.BuilderFlag.TF32)  # for TensorRT-RTX, where Polygraphy leaves it on
    return config


def _monitor(trt: Any, seconds: float | None, send: Send) -> Any:
    """Return a monitor that reports progress and ends a build that takes too long."""
    deadline = None if seconds is None else time.monotonic() + seconds
    base: Any = trt.IProgressMonitor

    class Monitor(base):  # type: ignore[misc]  # the class is of a module
        def __init__(self) -> None:
            base.__init__(self)
            self.late = False
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, _parent: str | None, num_steps: int) -> None:
            self._steps[phase_name] = num_steps
            send({"progress": (phase_name, 0, num_steps)})

        def phase_finish(self, phase_name: str) -> None:
            steps = self._steps.pop(phase_name, 0)
            send({"progress": (phase_name, steps, steps)})

        def step_complete(self, phase_name: str, step: int) -> bool:
            send({"progress": (phase_name, step + 1, self._steps.get(phase_name, 0))})
            self.late = self.late or (deadline is not None and time.monotonic() > deadline)
            return not self.late

    return Monitor()


def _tensor(tensor: Any) -> dict[str, Any]:
    shape = [None if size < 0 else size for size in tensor.shape]
    return {"name": tensor.name, "shape": shape, "dtype": toolkit.dtype_name(tensor.dtype)}


def _answer(request: Mapping[str, Any], send: Send) -> dict[str, Any]:
    return _EngineWorker(request, send).answer()


if __name__ == "__main__":
    sys.exit(answer_requests(_answer))
