"""The process that calls TensorRT, which answers requests as described in `answer_requests`.

Every request has ``backend``, ``model`` and ``library`` (a path or null), and ``do``:

- ``parse`` with ``cases``, a list of {input: shape} -> the network, and the shapes of all outputs
  for each case;
- ``build`` with ``profile``, ``targets``, ``level`` and ``output``, the file for the engine;
- ``check`` with the same, as far as a build gets without a GPU.

Every answer has ``version`` and ``refusal``, a node and a reason or null. Polygraphy parses,
configures and builds; the rest is what it lacks.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.files.scratch import scratch_folder
from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS, find_schema
from ..machine import gpu
from ..model.model_copy import copy_without_functions
from ..workers.loop import Send, answer_requests
from .builder import Builder, find_builder, polygraphy_logger

CPU_ONLY_REFUSED = "CPU-only builder"
"""In the reason of a TensorRT that cannot begin a build without a GPU."""

_PLUGINS = {(DOMAIN, name) for name in OPERATORS if find_schema(name).plugin == name}
"""Within the body of another operator the parsers of TensorRT 11 and TensorRT-RTX take the body of
such an operator if there is one, and its plugin otherwise."""

_PARSED_NODE = re.compile(r"In node -?\d+ with name: (.*) and operator: ")


class _Log(logging.Handler):
    """The errors that TensorRT logs, and ``watch``, which is called with every line."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.watch: Callable[[str], None] = lambda _line: None
        logger = polygraphy_logger()
        logger.module_severity = logger.EXTRA_VERBOSE
        logger.python_logger.setLevel(1)
        logger.python_logger.propagate = False
        logger.python_logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        line = record.getMessage()
        self.watch(line)
        if logging.ERROR <= record.levelno < logging.CRITICAL:  # critical: Polygraphy's summary
            self.errors.append(line)


class _EngineWorker:
    def __init__(self, request: Mapping[str, Any], send: Send) -> None:
        self._request, self._send = request, send
        self._builder = find_builder(request["backend"])
        if not self._builder.rtx and isinstance(gpu.find_device(), str):
            # Builder and parser without a driver, as NVIDIA's own ``trtexec --cpuOnly``.
            os.environ.setdefault("TRT_INTERNAL_OPTIONS", "--cpu_only=1")
        self._result = {"version": self._builder.version, "refusal": None}
        self._failed = import_module("polygraphy.exception").PolygraphyException
        self._log = _Log()
        self._network: Any = ()

    def answer(self) -> dict[str, Any]:
        library, model = self._request["library"], Path(self._request["model"])
        if library is not None:
            try:
                self._builder.load_plugins(Path(library))
            except NystraError as error:
                raise NystraError(": ".join([str(error), *self._log.errors[:1]])) from error
        values: dict[str, Any] = {}
        try:
            with scratch_folder() as folder:
                if library is not None:
                    model = copy_without_functions(model, folder, _PLUGINS)
                self._network = parse_model(self._builder, str(model))
            if not self._log.errors:  # the parser may be content with what it reported as an error
                values = {"parse": self._parse, "check": self._check, "build": self._build}[
                    self._request["do"]
                ]()
        except self._failed as error:
            self._log.errors.append(str(error))
        return {**self._result, **values, "refusal": self._refusal()}

    def _parse(self) -> dict[str, Any]:
        """Return layers, plugins and outputs, and the shapes of the latter for each case."""
        net = self._network[1]
        return {
            "layers": net.num_layers,
            "plugins": [layer.name for layer in net if "PLUGIN" in str(layer.type)],
            "outputs": {name: str(dtype) for name, (dtype, _) in self._outputs().items()},
            "shapes": self._output_shapes(self._request["cases"]),
        }

    def _check(self) -> dict[str, Any]:
        """Begin a build, and leave after the checks that precede the kernel timing.

        TensorRT checks the profile and asks the plugins for formats only there. Without a GPU the
        timing itself fails, and may end the process.
        """

        def stop_before_timing(line: str) -> None:
            if "Computing costs for" in line:
                self._send(self._result)
                os._exit(0)

        if not self._builder.rtx:
            self._log.watch = stop_before_timing
        return self._build()

    def _build(self) -> dict[str, Any]:
        """Build, and write the engine if a file is named for it."""
        request, level = self._request, self._request.get("level")
        profile, targets = request["profile"], request["targets"]
        try:
            config = configuration(
                self._builder, self._network, profile, targets, builder_optimization_level=level
            )
        except self._failed as error:
            raise NystraError(
                f"{self._builder.name} {self._builder.version} cannot be configured for "
                f"{' '.join(targets)} and the profile {profile}: {error}"
            ) from error
        build = self._builder.polygraphy.engine_bytes_from_network
        engine = bytes(build(self._network, config))
        self._log.errors.clear()  # those of kernels that it then did not take
        if "output" in request:
            Path(request["output"]).write_bytes(engine)
        return {}

    def _refusal(self) -> tuple[str, str] | None:
        """Return the node of the first error of the log, which Polygraphy's exceptions lack."""
        for reason in self._log.errors:
            if match := _PARSED_NODE.match(reason):
                return match[1], reason
        if not self._log.errors:
            return None
        reason = self._log.errors[0]
        names = (layer.name for layer in (self._network[1] if self._network else ()))
        return max((name for name in names if name in reason), key=len, default=""), reason

    def _outputs(self) -> Any:
        """Return name -> (type, shape) of the outputs."""
        util = import_module("polygraphy.backend.trt.util")
        return util.get_network_output_names_meta(self._network[1])[1]

    def _output_shapes(self, cases: Sequence[Mapping[str, Sequence[int]]]) -> list[Any]:
        """Return the shapes of all outputs for each case of input shapes.

        The shapes of the network's inputs are set: TensorRT infers all shapes again, with the
        plugins' shape functions. It stops at the first shape that cannot be inferred, which is
        then the first error of the log.
        """
        net, shapes = self._network[1], []
        inputs = {net.get_input(i).name: net.get_input(i) for i in range(net.num_inputs)}
        for case in cases:
            for name, shape in case.items():
                inputs[name].shape = tuple(shape)
            try:
                shapes.append([list(shape) for _, shape in self._outputs().values()])
            except (RuntimeError, ValueError) as error:  # an invalid shape, in the bindings' words
                layer = next((layer.name for layer in net if not _has_shapes(layer)), "an output")
                reason = next(iter(self._log.errors), str(error))
                self._log.errors.insert(0, f"{layer}: no shape for {case}: {reason}")
                break
        return shapes


def _has_shapes(layer: Any) -> bool:
    try:
        return all(list(layer.get_output(i).shape) is not None for i in range(layer.num_outputs))
    except (RuntimeError, ValueError):
        return False


def parse_model(builder: Builder, model: str) -> Any:
    """Return builder, network and parser of a model file; the types are those of the file."""
    strongly = hasattr(builder.module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    return builder.polygraphy.network_from_onnx_path(model, strongly_typed=strongly)


def configuration(
    builder: Builder,
    network: Any,
    profile: Mapping[str, Sequence[Sequence[int]]],
    targets: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """Return the configuration of a network that `parse_model` returned, without TF32.

    TensorRT rounds the factors of float32 products to TF32 (10 bits of mantissa) by default, in
    strongly typed networks too; for TensorRT-RTX Polygraphy leaves it on.

    Raises:
        PolygraphyException: The profile is not one of this network, or there is no such target.
    """
    polygraphy = builder.polygraphy
    shapes = polygraphy.Profile()
    for name, row in profile.items():
        shapes.add(name, *map(tuple, row))
    create = polygraphy.CreateConfig
    if builder.rtx:
        create = import_module("polygraphy.backend.tensorrt_rtx").CreateConfigRTX
        pairs = [(int(target[2:-1]), int(target[-1])) for target in targets]
        settings |= {"compute_capabilities": pairs} if targets else {"use_gpu": True}
    config = create(profiles=[shapes], **settings)(*network[:2])
    config.clear_flag(builder.module.BuilderFlag.TF32)
    return config


if __name__ == "__main__":
    sys.exit(answer_requests(lambda request, send: _EngineWorker(request, send).answer()))
