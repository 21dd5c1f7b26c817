"""Parsing a model with TensorRT's own parser; runs in the process of `worker` only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.errors import NystraError
from .toolkit import Toolkit

_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
_KEPT_LINES = 2000


class Log:
    """The log of a builder.

    Attributes:
        logger: The object to pass to it; it must outlive the builder.
        errors: Lines of severity error and above.
        warnings: Lines of severity warning.
        watch: Called with every line, whatever its severity.
    """

    def __init__(self, toolkit: Toolkit) -> None:
        log = self
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.watch: Callable[[str], None] = lambda _line: None
        base: Any = toolkit.module.ILogger
        severe = {str(base.ERROR), str(base.INTERNAL_ERROR)}

        class Logger(base):  # type: ignore[misc]  # the class is of a module
            def __init__(self) -> None:
                base.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                log.watch(message)
                if str(severity) in severe:
                    log.errors.append(message)
                elif str(severity) == str(base.WARNING) and len(log.warnings) < _KEPT_LINES:
                    log.warnings.append(message)

        self.logger = Logger()


class Network:
    """A parsed model.

    Attributes:
        builder: TensorRT's builder.
        definition: TensorRT's network; None if the parser refused the file.
        refusal: The refused node and the reason; None if the file was accepted.
    """

    def __init__(self, toolkit: Toolkit, log: Log, model: str, library: str | None) -> None:
        """Load the plugins and parse the file.

        Raises:
            NystraError: The plugin library cannot be loaded, or there is no builder.
        """
        module = toolkit.module
        self.toolkit = toolkit
        self.builder = module.Builder(log.logger)
        if library is not None:
            registry = self.builder.get_plugin_registry()
            before = len(registry.all_creators)
            registry.load_library(library)
            if len(registry.all_creators) == before:
                raise NystraError(
                    f"{toolkit.name} cannot load the plugin library {library}: "
                    f"{log.errors[0] if log.errors else 'it registered no plugin'}"
                )
        self.definition = self.builder.create_network(toolkit.strongly_typed)
        self._parser = module.OnnxParser(self.definition, log.logger)
        parsed = self._parser.parse_from_file(model)
        self.refusal = self._parser_refusal(parsed, log)

    def _parser_refusal(self, parsed: bool, log: Log) -> dict[str, str] | None:
        if self._parser.num_errors:
            error = self._parser.get_error(0)
            return {
                "node": str(error.node_name()),
                "operator": str(error.node_operator()),
                "reason": str(error.desc()),
            }
        if parsed and not log.errors:
            return None
        return self.blame(log.errors[0] if log.errors else "the parser gives no further reason")

    def blame(self, reason: str) -> dict[str, str]:
        """Return a refusal for a logged error, with the layer that is named in it."""
        net = self.definition
        names = (net.get_layer(index).name for index in range(net.num_layers))
        node = max((name for name in names if name in reason), key=len, default="")
        return {"node": node, "operator": "", "reason": reason}

    def describe(self) -> dict[str, Any]:
        """Return inputs, outputs and layers, in JSON form."""
        net = self.definition
        layers = [net.get_layer(index) for index in range(net.num_layers)]
        kinds = Counter(_kind(layer) for layer in layers)
        return {
            "layers": len(layers),
            "kinds": dict(sorted(kinds.items())),
            "plugins": [layer.name for layer in layers if _kind(layer).startswith("PLUGIN")],
            "inputs": [_tensor(net.get_input(i)) for i in range(net.num_inputs)],
            "outputs": [_tensor(net.get_output(i)) for i in range(net.num_outputs)],
        }

    def output_shapes(
        self, cases: Sequence[Mapping[str, Sequence[int]]], log: Log
    ) -> list[list[list[int]]]:
        """Return the shapes of all outputs for each case of input shapes.

        The shapes of the network's inputs are set and restored: TensorRT infers all shapes again,
        with the plugins' shape functions. It stops at the first shape that cannot be inferred,
        which is then the first error of the log.
        """
        net = self.definition
        inputs = {net.get_input(i).name: net.get_input(i) for i in range(net.num_inputs)}
        before = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
        shapes = []
        for case in cases:
            for name, shape in case.items():
                inputs[name].shape = tuple(shape)
            try:
                shapes.append([list(net.get_output(i).shape) for i in range(net.num_outputs)])
            except (RuntimeError, ValueError) as error:  # an invalid shape, in the bindings' words
                reason = log.errors[0] if log.errors else str(error)
                log.errors.insert(
                    0, f"{self._first_without_shape()}: no shape for {case}: {reason}"
                )
                break
        for name, tensor in inputs.items():
            tensor.shape = before[name]
        return shapes

    def _first_without_shape(self) -> str:
        for index in range(self.definition.num_layers):
            layer = self.definition.get_layer(index)
            try:
                for index in range(layer.num_outputs):
                    list(layer.get_output(index).shape)
            except (RuntimeError, ValueError):
                return str(layer.name)
        return "an output"


def _kind(layer: Any) -> str:
    return str(layer.type).rpartition(".")[2]


def _tensor(tensor: Any) -> dict[str, Any]:
    kind = str(tensor.dtype).rpartition(".")[2]
    return {
        "name": tensor.name,
        "shape": [None if size < 0 else size for size in tensor.shape],
        "dtype": _DTYPES.get(kind, kind.lower()),
    }
