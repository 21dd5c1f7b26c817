"""The process that calls TensorRT, which answers requests as described in `answer_requests`.

Every request has ``backend``, ``model`` and ``library`` (a path or null), and ``do``:

- ``parse`` with ``cases``, a list of {input: shape} -> the network, and the shapes of all outputs
  for each case;
- ``check`` with ``profile`` and ``targets`` -> whether the checks that begin a build passed; of
  TensorRT-RTX whether the build did;
- ``build`` with the same, ``level`` and ``output`` -> the engine is
  in the file ``output``.

Every answer has ``version`` and ``refusal``. Polygraphy parses, configures and builds; the rest is
what it lacks.
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
from ..model.external_data import external_files
from ..model.onnx_header import copy_without_functions
from ..workers.loop import Send, answer_requests
from .builder import Builder, find_builder, polygraphy_logger

CPU_ONLY = {"TRT_INTERNAL_OPTIONS": "--cpu_only=1"}
"""Builder and parser of TensorRT without a driver, as NVIDIA's own ``trtexec --cpuOnly``."""

CPU_ONLY_REFUSED = "CPU-only builder"
"""In the reason of a TensorRT that cannot begin a build without a GPU."""

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
            for name, value in CPU_ONLY.items():
                os.environ.setdefault(name, value)
        self._result = {"version": self._builder.version, "refusal": None}
        self._failed = import_module("polygraphy.exception").PolygraphyException
        self._log = _Log()
        self._network: Any = ()

    def answer(self) -> dict[str, Any]:
        if self._request["library"] is not None:
            try:
                self._builder.load_plugins(Path(self._request["library"]))
            except NystraError as error:
                raise NystraError(": ".join([str(error), *self._log.errors[:1]])) from error
        values: dict[str, Any] = {}
        try:
            model = Path(self._request["model"])
            self._network = (
                parsed(self._builder, str(model))
                if self._request["library"] is None
                else _parsed_with_plugins(self._builder, model)
            )
            if not self._log.errors:  # the parser may be content with what it reported as an error
                values = getattr(self, f"_{self._request['do']}")()
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

        def passed(line: str) -> None:
            if "Computing costs for" in line:
                self._send(self._result)
                os._exit(0)

        if not self._builder.rtx:
            self._log.watch = passed
        return self._build()

    def _build(self) -> dict[str, Any]:
        """Build, and write the engine if a file is named for it."""
        request = self._request
        try:
            config = configuration(
                self._builder,
                self._network,
                request["profile"],
                request["targets"],
                builder_optimization_level=request.get("level"),
            )
        except self._failed as error:
            raise NystraError(
                f"{self._builder.name} {self._builder.version} cannot be configured for "
                f"{' '.join(request['targets'])} and the profile {request['profile']}: {error}"
            ) from error
        build = self._builder.polygraphy.engine_bytes_from_network
        engine = bytes(build(self._network, config))
        self._log.errors.clear()  # those of kernels that it then did not take
        if "output" in request:
            Path(request["output"]).write_bytes(engine)
        return {}

    def _refusal(self) -> dict[str, str] | None:
        """Return the first error of the log and its node, which Polygraphy's exceptions lack."""
        for reason in self._log.errors:
            if found := _PARSED_NODE.match(reason):
                return {"node": found[1], "reason": reason}
        if not self._log.errors:
            return None
        reason = self._log.errors[0]
        names = (layer.name for layer in (self._network[1] if self._network else ()))
        node = max((name for name in names if name in reason), key=len, default="")
        return {"node": node, "reason": reason}

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
                reason = next(iter(self._log.errors), str(error))
                text = f"{self._first_without_shape()}: no shape for {case}: {reason}"
                self._log.errors.insert(0, text)
                break
        return shapes

    def _first_without_shape(self) -> str:
        for layer in self._network[1]:
            try:
                for index in range(layer.num_outputs):
                    list(layer.get_output(index).shape)
            except (RuntimeError, ValueError):
                return str(layer.name)
        return "an output"


def parsed(builder: Builder, model: str) -> Any:
    """Return builder, network and parser of a model file; the types are those of the file."""
    strongly = hasattr(builder.module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")
    return builder.polygraphy.network_from_onnx_path(model, strongly_typed=strongly)


def _parsed_with_plugins(builder: Builder, model: Path) -> Any:
    """Return what `parsed` returns, of the model without the bodies of operators that are plugins.

    Within the body of another operator the parsers of TensorRT 11 and TensorRT-RTX take a body if
    there is one, and a plugin otherwise.
    """
    with scratch_folder() as folder:
        return parsed(builder, str(copy_for_plugins(model, folder)))


def copy_for_plugins(model: Path, folder: Path) -> Path:
    """Write a model without the bodies of operators that are plugins, with links to its data.

    Args:
        model: The model file.
        folder: An empty folder, for the copy and the links.

    Raises:
        NystraError: The model or one of its data files cannot be read.
    """
    bodies = {(DOMAIN, name) for name in OPERATORS if find_schema(name).plugin == name}
    copy = folder / model.name
    copy_without_functions(model, copy, bodies)
    for location, file in external_files(model).items():
        link = folder / location
        if not link.exists():  # a file may be in the model by two spellings of its location
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())
    return copy


def configuration(
    builder: Builder,
    network: Any,
    profile: Mapping[str, Sequence[Sequence[int]]],
    targets: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """Return a builder's configuration without TF32.

    TensorRT rounds the factors of float32 products to TF32 (10 bits of mantissa) by default, in
    strongly typed networks too; for TensorRT-RTX Polygraphy leaves it on.

    Args:
        builder: The builder.
        network: What `parsed` returned.
        profile: Input name -> smallest, best and largest shape.
        targets: For TensorRT-RTX, the GPUs to build for; none: that of this machine.
        **settings: Of Polygraphy's ``CreateConfig``; None for the builder's own.

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
