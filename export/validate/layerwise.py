"""Layer by layer: finds the first tensor that differs between two ways of running a file.

Every tensor between the nodes becomes an output of a copy of the file, as by ``polygraphy run
--onnx-outputs mark all``, and Polygraphy compares what both compute for the smallest recorded
input. Nodes of the domain nystra stay as they are: what happens inside a function or a subgraph is
one layer. docs/engines.md says what this shows, and how to go on with Polygraphy itself.
"""

from __future__ import annotations

import glob
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import onnx

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.installation import not_installed
from ...runtime.backends import backend_class, find_backend
from ...runtime.checking.validation import find_allowed_differences, sides_text
from ...runtime.engines.builder import polygraphy_logger
from ...runtime.model.references import ReferenceCase, References
from ...runtime.session import Session
from ...runtime.session_spec import SessionSpec
from ..progress import Progress

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_HALF_SHARE = 2.0**-5
"""Least share of a file in float16, where rounding errors grow in attention."""


def compare_layers(
    candidate: SessionSpec,
    references: References,
    tolerance: float | None = None,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Compare every layer of a file with ``ort-cpu`` without the operator library.

    Args:
        candidate: The file and how it is run.
        references: The inputs and tolerances.
        tolerance: Limit of a difference, as a share of the largest magnitude of the reference's
            tensor, in place of the recorded one. Integers and booleans have to be equal.
        progress: Called with progress messages.

    Returns:
        In JSON form: ``reference`` and ``candidate``, the two ways in words; ``size`` of the input;
        the number of tensors ``compared``, up to the ``first`` that differs, in words or None.

    Raises:
        NystraError: The file cannot be used, or both ways are the same.
        BackendUnavailableError: Polygraphy, the backend or the operator library is missing.
    """
    name, kind = backend_class(candidate.backend_name)
    if kind.engine is not None:
        _ = kind.engine.module  # before Polygraphy is imported for another builder
    polygraphy = _polygraphy("polygraphy.comparator")
    path = candidate.model
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's errors and onnx's have no common base
        raise NystraError(f"cannot read the model {path}: {error}") from error
    sizes = []
    for case in references.cases:
        sizes.append(sum(array.size for array in case.inputs.values()))
    index = sizes.index(min(sizes))
    case = references.cases[index]
    feeds = case.feeds()
    with scratch_folder() as folder:
        file = folder / path.name
        marked = mark(model, floats_only=kind.engine is not None)
        onnx.save(marked, file)
        progress("load the reference")
        first = Session(file, "ort-cpu", candidate.threads, None)
        second = _candidate(replace(candidate, model=file, backend=name), case, progress)
        if (first.backend, first.library) == (second.backend, second.library):
            ours = second.library_missing and candidate.library != "none"
            raise (BackendUnavailableError if ours else NystraError)(
                f"both sides are the same, {second.backend} without the operator library: "
                f"{second.library_reason if ours else 'compare with another `backend`'}"
            )
        progress("compare")
        expected, got = first.run(feeds), second.run(feeds)
    share = find_allowed_differences(references, tolerance)[index][0]
    if tolerance is None and any("float16" in out.dtype for out in first.outputs):
        share = max(share, _HALF_SHARE)
    limits = {key: share * _largest(array) for key, array in expected.items()}
    compare = polygraphy.SimpleCompareFunc(
        rtol=0.0,
        atol=limits,
        fail_fast=True,
        check_error_stat="max",
        infinities_compare_equal=True,
    )
    with _polygraphy("polygraphy.logger").G_LOGGER.verbosity(), np.errstate(all="ignore"):
        compared = compare(polygraphy.IterationResult(expected), polygraphy.IterationResult(got))
    results = [(key, result) for key, result in compared.items() if not result]
    differing = (_words(marked, key, result, limits[key]) for key, result in results)
    return {
        "reference": f"{first.backend}: {first.library_reason}",
        "candidate": f"{second.backend}: {second.library_reason}",
        "size": sides_text({key: array.shape for key, array in feeds.items()}),
        "compared": len(compared),
        "first": next(differing, None),
    }


def mark(model: onnx.ModelProto, *, floats_only: bool) -> onnx.ModelProto:
    """Return a model with every tensor between its nodes as an output.

    TensorRT refuses outputs without a type, so types are inferred first, through the functions
    too. Its integer tensors may be in host memory, so only floating-point ones are marked for it.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    typed.graph.value_info.extend(typed.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in typed.graph.value_info}
    names: list[str] = []
    for node in typed.graph.node:
        if node.op_type != "Constant":
            names += filter(None, node.output)
    if floats_only:
        names = [name for name in names if types.get(name) in _FLOATS]
    with _polygraphy("polygraphy.logger").G_LOGGER.verbosity():
        modify_outputs = _polygraphy("polygraphy.backend.onnx").modify_outputs
        patterns = list(map(glob.escape, names))
        marked: onnx.ModelProto = modify_outputs(typed, patterns)
    del marked.graph.value_info[:]
    return marked


def _polygraphy(module: str) -> Any:
    """Return a module of Polygraphy, which then prints nothing to stdout."""
    try:
        polygraphy_logger()
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = not_installed("polygraphy, which `layerwise` needs,", "layerwise")
        raise BackendUnavailableError(f"{missing} ({error})") from error


def _candidate(spec: SessionSpec, case: ReferenceCase, progress: Progress) -> Session:
    if find_backend(spec.backend_name).engine is not None:
        from ...runtime.compiled.model import EngineModel, EngineShapes
        from ...runtime.engines.build import BuildOptions, build_engine

        shapes = {key: row.shape for key, row in case.inputs.items()}
        engine_shapes = EngineShapes(opt_shapes=shapes)
        build_engine(
            EngineModel.open(spec.model, spec.library),
            BuildOptions(spec.backend_name, engine_shapes),
            lambda text: progress(f"{spec.backend}: {text}"),
        )
    progress(f"load {spec.backend}")
    return Session.open(spec)


def _words(model: onnx.ModelProto, tensor: str, result: Any, allowed: float) -> str:
    node = next(node for node in model.graph.node if tensor in node.output)
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    where = f"node {node.name or '(no name)'} ({operator}), output {tensor}"
    if isinstance(result, bool):
        return f"{where}: the shapes differ"
    return f"{where}: the largest difference is {result.max_absdiff:.3g}, allowed {allowed:.3g}"


def _largest(array: Array) -> float:
    """Return the largest finite magnitude; 0 of what is to be equal."""
    finite = np.empty(0)
    if array.dtype.kind == "f":
        finite = array[np.isfinite(array)].astype(np.float64)
    return float(np.abs(finite).max(initial=0.0))
