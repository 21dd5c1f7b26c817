"""The base of backends on onnxruntime: a session, with or without an operator library.

A backend names its providers and the library for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...core.arrays import Array
from ...core.cpus import usable_cpus
from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.reading import utf8_path
from ...plugins.library import LibraryChoice, choose_library
from ..model.model_facts import TensorInfo
from .base import Backend

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "bool": "bool",
}
_LIBRARY = "nystra_onnxruntime"

_SMALL = 3 * 128 * 128
"""Values of an input for which tiles would not be smaller."""


class OnnxRuntimeBackend(Backend):
    """onnxruntime."""

    library_name: ClassVar[str | None] = _LIBRARY
    bodies: ClassVar[bool] = True

    def load(self) -> None:
        """Load the file; external data is found next to it.

        Raises:
            NystraError: onnxruntime refuses the model, or a library that was requested.
            BackendUnavailableError: The model needs the operator library and there is none, or a
                provider of the backend cannot run here.
        """
        self._session, choice = self._open(self._choose())
        self.library = choice.path
        self.library_reason = choice.reason
        self.library_missing = choice.missing
        self.library_refused = choice.refused
        self.inputs = tuple(_tensor(node) for node in self._session.get_inputs())
        self.outputs = tuple(_tensor(node) for node in self._session.get_outputs())
        self._keeping, self._releasing = self._run_options(), self._run_options()
        if self.stated.tiling != "internal":
            self._releasing.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once; inputs are bound without a copy, onnxruntime allocates the outputs.

        Safe to call from several threads: every call has its own binding.

        Raises:
            NystraError: onnxruntime cannot run the model on these inputs.
        """
        return self._run(feeds, self._keeping)

    def infer_and_release(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run as `infer`, and return the memory of the run to the system."""
        return self._run(feeds, self._releasing)

    def stop(self) -> None:
        """Make all runs fail after the node that they compute."""
        self._keeping.terminate = self._releasing.terminate = True

    def _run_options(self) -> Any:
        import onnxruntime

        return onnxruntime.RunOptions()

    def _run(self, feeds: Mapping[str, Array], options: Any) -> dict[str, Array]:
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for tensor in self.outputs:
            binding.bind_output(tensor.name)
        self._run_bound(binding, feeds, options)
        values = binding.copy_outputs_to_cpu()
        return {
            tensor.name: np.asarray(value)
            for tensor, value in zip(self.outputs, values, strict=True)
        }

    def _run_bound(self, binding: Any, feeds: Mapping[str, Array], options: Any = None) -> None:
        try:
            self._session.run_with_iobinding(binding, options or self._keeping)
        except Exception as error:  # onnxruntime's errors have no common base of their own
            raise NystraError(_run_message(self.path, feeds, error)) from error

    def _choose(self) -> LibraryChoice:
        needed = self.header.has_operators
        name = self.library_name or _LIBRARY
        return choose_library(self.spec.library, needed=needed, name=name)

    def _providers(self, library: Path | None) -> list[Any]:
        """Return onnxruntime's providers, the first one first, with their options."""
        raise NotImplementedError

    def _open(self, choice: LibraryChoice) -> tuple[Any, LibraryChoice]:
        if choice.path is not None:
            try:
                return self._create(choice.path), choice
            except NystraError:
                raise
            except Exception as error:  # as above
                if choice.required:
                    raise NystraError(
                        f"the operator library {choice.path} does not support {self.path}: "
                        f"{_first_line(error)}. Use `library` auto or none; see docs/engines.md"
                    ) from error
                choice = LibraryChoice(
                    None,
                    f"the operator library {choice.path} does not support this model, so the "
                    f"operators' ONNX bodies are used: {_first_line(error)}",
                    refused=True,
                )
        try:
            return self._create(None), choice
        except NystraError:
            raise
        except Exception as error:  # as above
            if self.header.has_operators and (
                not self.header.has_bodies or _is_unregistered(error)
            ):
                raise BackendUnavailableError(
                    f"{self.path} has nystra operators without ONNX bodies, so it needs the "
                    f"operator library (lib{self.library_name or _LIBRARY}): {choice.reason}. "
                    "Build it, name it with `library`, or export without `no_functions`; "
                    "see docs/engines.md"
                ) from error
            raise NystraError(_load_message(self.path, error)) from error

    def _create(self, library: Path | None) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised, not logged as well
        # Threads that spin after a run take cores from other work.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # A plan of the memory of one input size holds its buffers beside those that the first run
        # left: a fifth to a half of all memory, and no time was saved.
        options.enable_mem_pattern = False
        if self.spec.threads is not None:
            options.intra_op_num_threads = self.spec.threads
            options.inter_op_num_threads = 1
            if self.spec.threads > usable_cpus():  # or they take the cores from one another
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if library is not None:
            options.register_custom_ops_library(utf8_path(library, "the library", "onnxruntime"))
        elif self.stated.version is not None:
            # Bodies make thousands of small tensors, and onnxruntime's plan of which may share a
            # buffer takes time that grows with their square before release 1.32: most of a minute
            # for 36 attentions.
            options.enable_mem_reuse = False
        if self.stated.tiling == "internal":
            # For whole images of any size. The arena grows by powers of two, and blocked layouts
            # copy the feature maps: 12 GB instead of 4 for a network on 2700x3300 pixels.
            options.enable_cpu_mem_arena = False
            options.graph_optimization_level = (
                onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            )
        return self._start(options, library)

    def _start(self, options: Any, library: Path | None) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(
            utf8_path(self.path, "the model", "onnxruntime"),
            options,
            providers=self._providers(library),
            enable_fallback=0,
        )


_NOISE = (
    re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : "),
    re.compile(r"^Load model from .*? failed:"),
    re.compile(r"^/\S+:\d+ .*?\) (?=[A-Z])"),
)
_UNKNOWN = (
    re.compile(r"Fatal error: (?P<domain>\S*):(?P<name>\w+)\(-?\d+\) is not a registered"),
    re.compile(
        r'In Node, \(".*?", (?P<name>\w+), "(?P<domain>.*?)", -?\d+\).*'
        r"(?:No opset import for domain|No Op registered for)"
    ),
)
"""Texts about an operator that onnxruntime does not have."""


def _tensor(node: Any) -> TensorInfo:
    kind = node.type.removeprefix("tensor(").removesuffix(")")
    return TensorInfo(node.name, tuple(node.shape), _DTYPES.get(kind, kind))


def _first_line(error: Exception) -> str:
    """Return the first line without codes, and names of files and functions of onnxruntime."""
    text = str(error).strip().partition("\n")[0]
    for noise in _NOISE:
        text = noise.sub("", text, count=1)
    return text[:400].rstrip(".") or type(error).__name__


def _load_message(path: Path, error: Exception) -> str:
    text = _first_line(error)
    unknown = next(filter(None, (pattern.search(text) for pattern in _UNKNOWN)), None)
    if unknown is None:
        return f"onnxruntime cannot load {path}: {text}"
    domain = unknown["domain"] or "ai.onnx"
    return (
        f"{path} has the operator {domain}::{unknown['name']}, which onnxruntime does not have: "
        "export the network without it; operators of other programs (mmcv, TensorRT plugins) run "
        "in these programs alone"
    )


def _is_unregistered(error: Exception) -> bool:
    text = str(error)
    return "not a registered function/op" in text or "is not registered" in text


def _run_message(path: Path, feeds: Mapping[str, Array], error: Exception) -> str:
    shapes = ", ".join(f"{name} {array.shape}" for name, array in feeds.items())
    text = _first_line(error)
    if "alloc" in text.lower():
        return f"onnxruntime cannot run {path} on {shapes}: {_memory_message(text, feeds)}"
    return f"onnxruntime cannot run {path} on {shapes}: {text}."


def _memory_message(text: str, feeds: Mapping[str, Array]) -> str:
    node, size = re.search(r"running (\w+) node", text), re.search(r"buffer of size (\d+)", text)
    what = f" for a buffer of {int(size[1]) >> 20} MiB" if size else ""
    where = f" in a node {node[1]}" if node else ""
    if max((array.size for array in feeds.values()), default=0) > _SMALL:
        advice = "use smaller tiles (`tile`) or images"
    else:
        advice = (
            "even for so small an input the model takes more than is free, so smaller tiles do "
            "not help: use a machine with more memory"
        )
    return f"not enough memory{what}{where}: {advice}"
