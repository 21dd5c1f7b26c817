"""Layer by layer: finds the first tensor that differs between two ways of running a file.

Every tensor between the nodes becomes an output of a copy of the file, as by ``polygraphy run
--onnx-outputs mark all``, and Polygraphy runs and compares both on the smallest recorded input.
Nodes of the domain nystra stay as they are: what happens inside a function or a subgraph is one
layer. docs/engines.md says what this shows, and how to go on with Polygraphy itself.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import onnx

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.installation import not_installed
from ...core.json_text import json_number
from ...runtime.backends import backend_class, find_backend
from ...runtime.checking.validation import allowed_differences
from ...runtime.engines import toolkit
from ...runtime.model.onnx_header import read_onnx_header
from ...runtime.model.references import ReferenceCase, References
from ...runtime.session import Session
from ...runtime.session_spec import SessionSpec

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_HALF_SHARE = 2.0**-5
"""Least share of a file in float16, where rounding errors grow in attention."""


@dataclass(frozen=True)
class Layer:
    """A tensor of both runs that differs.

    Attributes:
        node: Name of the node that computes it.
        operator: Its type, with the domain if that is not the standard one.
        tensor: Name of the tensor.
        max_abs: Largest absolute difference; NaN if one run has NaN, None if the shapes differ.
        allowed: Limit of `max_abs`.
    """

    node: str
    operator: str
    tensor: str
    max_abs: float | None
    allowed: float

    def __str__(self) -> str:
        where = f"node {self.node or '(no name)'} ({self.operator}), output {self.tensor}"
        if self.max_abs is None:
            return f"{where}: the shapes differ"
        return f"{where}: the largest difference is {self.max_abs:.3g}, allowed {self.allowed:.3g}"


@dataclass(frozen=True)
class LayerReport:
    """The comparison of two ways to run a file.

    Attributes:
        reference: The backend and its library, in words.
        candidate: Those that are compared with it.
        shapes: Input name -> shape.
        compared: Number of tensors that were compared, up to the first one that differs.
        first: That one, or None.
    """

    reference: str
    candidate: str
    shapes: dict[str, list[int]]
    compared: int
    first: Layer | None

    @property
    def passed(self) -> bool:
        """Whether all layers are within their limits."""
        return self.first is None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report."""
        document = {"passed": self.passed, **asdict(self)}
        if self.first is not None and self.first.max_abs is not None:
            document["first"]["max_abs"] = json_number(self.first.max_abs)
        return document


def compare_layers(
    candidate: SessionSpec,
    references: References,
    tolerance: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> LayerReport:
    """Compare every layer of a file with ``ort-cpu`` without the operator library.

    Args:
        candidate: The file and how it is run.
        references: The inputs and tolerances.
        tolerance: Limit of a difference, as a share of the largest magnitude of the reference's
            tensor, in place of the recorded one. Integers and booleans have to be equal.
        progress: Called with progress messages.

    Raises:
        NystraError: The file cannot be used, or both ways are the same.
        BackendUnavailableError: Polygraphy, the backend or the operator library is missing.
    """
    name, kind = backend_class(candidate.backend_name)
    if kind.engine is not None:
        toolkit.load(kind.engine)  # before Polygraphy is imported for another builder
    polygraphy = _polygraphy()
    path = candidate.model
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's errors and onnx's have no common base
        raise NystraError(f"cannot read the model {path}: {error}") from error
    index, case = min(
        enumerate(references.cases),
        key=lambda pair: sum(array.size for array in pair[1].inputs.values()),
    )
    with scratch_folder() as folder:
        file = folder / path.name
        marked = mark(model, floats_only=kind.engine is not None)
        onnx.save(marked, file)
        progress("load the reference")
        first = Session(file, "ort-cpu", candidate.threads, None)
        second = _candidate(replace(candidate, model=file, backend=name), case, progress)
        if (first.backend, first.library) == (second.backend, second.library):
            _refuse_the_same(second, candidate)
        progress("compare")
        feeds = case.feeds()
        runners = [_runner(text, each, feeds) for text, each in (("0", first), ("1", second))]
        with polygraphy.logger.verbosity(), np.errstate(all="ignore"):
            results = polygraphy.Comparator.run(runners, data_loader=[feeds])
            share = allowed_differences(references, tolerance)[index][0]
            if tolerance is None and any("float16" in out.dtype for out in first.outputs):
                share = max(share, _HALF_SHARE)
            reference, other = results[0][1][0], results[1][1][0]
            limits = {key: share * _largest(array) for key, array in reference.items()}
            compare = polygraphy.SimpleCompareFunc(
                rtol=0.0,
                atol=limits,
                fail_fast=True,
                check_error_stat="max",
                infinities_compare_equal=True,
            )
            compared = compare(reference, other)
    differing = [(key, result, limits[key]) for key, result in compared.items() if not result]
    return LayerReport(
        f"{first.backend}: {first.library_reason}",
        f"{second.backend}: {second.library_reason}",
        {key: list(array.shape) for key, array in feeds.items()},
        len(compared),
        next((_layer(marked, *row) for row in differing), None),
    )


def mark(model: onnx.ModelProto, *, floats_only: bool) -> onnx.ModelProto:
    """Return a model with every tensor between its nodes as an output.

    TensorRT refuses outputs without a type, so types are inferred first, through the functions
    too. Its integer tensors may be in host memory, so only floating-point ones are marked for it.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    typed.graph.value_info.extend(typed.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in typed.graph.value_info}
    names = [
        name
        for node in typed.graph.node
        if node.op_type != "Constant"
        for name in node.output
        if name and (not floats_only or types.get(name) in _FLOATS)
    ]
    polygraphy = _polygraphy()
    with polygraphy.logger.verbosity():
        marked: onnx.ModelProto = polygraphy.modify_outputs(typed, [*map(glob.escape, names)])
    del marked.graph.value_info[:]
    return marked


def _polygraphy() -> Any:
    """Return the names of Polygraphy that are used.

    Raises:
        BackendUnavailableError: It is not installed.
    """
    try:
        return SimpleNamespace(
            logger=toolkit.polygraphy_logger(),
            modify_outputs=import_module("polygraphy.backend.onnx").modify_outputs,
            BaseRunner=import_module("polygraphy.backend.base").BaseRunner,
            TensorMetadata=import_module("polygraphy.common").TensorMetadata,
            **vars(import_module("polygraphy.comparator")),
        )
    except ModuleNotFoundError as error:
        missing = not_installed("polygraphy, which `layerwise` needs,", "layerwise")
        raise BackendUnavailableError(f"{missing} ({error})") from error


def _runner(name: str, session: Session, feeds: Mapping[str, Array]) -> Any:
    """Return a runner of Polygraphy around a session, which checks the inputs."""
    polygraphy = _polygraphy()
    metadata = polygraphy.TensorMetadata()
    for key, array in feeds.items():
        metadata.add(key, dtype=array.dtype, shape=array.shape)
    base: Any = polygraphy.BaseRunner

    class Runner(base):  # type: ignore[misc]  # the class is of a module
        def get_input_metadata_impl(self) -> Any:
            return metadata

        def infer_impl(self, feed_dict: Mapping[str, Array]) -> dict[str, Array]:
            start = time.perf_counter()
            outputs = session.run(feed_dict)
            self.inference_time = time.perf_counter() - start
            return outputs

    return Runner(name)


def _candidate(spec: SessionSpec, case: ReferenceCase, progress: Callable[[str], None]) -> Session:
    """Load the marked file, after building its engine where the backend runs one."""
    if find_backend(spec.backend_name).engine is not None:
        from ...runtime.engines.build import BuildOptions, build_engine
        from ...runtime.engines.model import EngineModel
        from ...runtime.engines.profile import EngineShapes

        shapes = EngineShapes(opt_shapes={key: row.shape for key, row in case.inputs.items()})
        build_engine(
            EngineModel.open(spec.model, spec.library),
            BuildOptions(spec.backend_name, shapes),
            announce=lambda text: progress(f"{spec.backend}: {text}"),
        )
    progress(f"load {spec.backend}")
    return Session.open(spec)


def _refuse_the_same(session: Session, spec: SessionSpec) -> NoReturn:
    same = f"both sides are the same, {session.backend} without the operator library"
    ours = read_onnx_header(spec.model).has_operators
    if ours and spec.library != "none":
        raise BackendUnavailableError(f"{same}: {session.library_reason}")
    raise NystraError(
        f"{same}: compare with another `backend`" + (", or omit `library`" if ours else "")
    )


def _layer(model: onnx.ModelProto, tensor: str, result: Any, allowed: float) -> Layer:
    node = next(node for node in model.graph.node if tensor in node.output)
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    difference = None if isinstance(result, bool) else result.max_absdiff
    return Layer(node.name, operator, tensor, difference, allowed)


def _largest(array: Array) -> float:
    """Return the largest finite magnitude; 0 of what is to be equal."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else np.empty(0)
    return float(np.max(np.abs(finite.astype(np.float64)))) if finite.size else 0.0
