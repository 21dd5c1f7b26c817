"""Layer by layer: finds the first tensor that differs between two ways of running a file.

Every tensor between the nodes becomes an output of a copy of the file, which is run both ways on
the same inputs; polygraphy's ``Comparator`` runs and compares. Nodes of the domain nystra and
their functions stay as they are; what happens inside a function or a subgraph is one layer.

**Limits of a layer.** Its largest difference may be a share of the largest magnitude of the
reference's tensor. The share is that of the export: the tolerance of the image, in 0..1, at that
size (1e-4, more where PyTorch itself is less precise). In a file that computes in float16 it is
2^-5 at least, and the mean difference may be 2^-10 of the largest magnitude, one unit in the last
place: rounding errors grow in attention, at few positions by much, and a fault shows in the mean (a
trained SwinIR with linear attention: 9e-3 and 1e-4; in float32: 2e-5). Integers and booleans have
to be equal. After a seeded search, where rounding may swap two matches, a layer also passes if its
mean difference is within the share of the recorded tolerance of the mean. NaN is always a fault; an
infinity is one unless both have it.

Marked outputs prevent a runtime from fusing their nodes: each layer is compared by itself, not in
the fused form of normal runs. All layers of a size are in memory at once, at the peak five times
(SwinIR-M at 17x80 pixels: 7.7 GB); the smallest recorded size comes first, and a larger one that
does not fit into the memory is skipped and reported as such.
"""

from __future__ import annotations

import glob
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import onnx

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.installation import not_installed
from ...runtime.backends import backend_class
from ...runtime.checking.validation import allowed_differences
from ...runtime.machine.memory import available_memory
from ...runtime.model.onnx_header import read_onnx_header
from ...runtime.model.references import ReferenceCase, References
from ...runtime.session import Session
from ...runtime.session_spec import SessionSpec
from .layer_report import LayerCase, LayerDifference, LayerReport

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_HALF_SHARE, _HALF_MEAN = 2.0**-5, 2.0**-10
_SEARCH = "NystraPatchMatch"
_REFERENCE, _CANDIDATE = "reference", "candidate"
_ROOM = 5
"""Memory of a comparison as a multiple of the bytes of all layers: both sides twice, and a
margin."""


def compare_layers(
    candidate: SessionSpec,
    references: References,
    tolerance: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> LayerReport:
    """Compare every layer of a file with ``ort-cpu`` without the operator library.

    Args:
        candidate: The file and how it is run.
        references: The inputs, and the tolerances as in the module's docstring.
        tolerance: The share of the largest magnitude instead of the recorded one, for all layers.
        progress: Called with progress messages.

    Raises:
        NystraError: The file cannot be used, or both ways are the same.
        BackendUnavailableError: Polygraphy, the backend or the operator library is missing.
    """
    polygraphy = _Polygraphy()
    path = candidate.model
    name, kind = backend_class(candidate.backend_name)
    candidate = replace(candidate, backend=name)
    engine = kind.engine is not None
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's errors and onnx's have no common base
        raise NystraError(f"cannot read the model {path}: {error}") from error
    marked = _mark(polygraphy, model, floats_only=engine)
    cases = sorted(enumerate(references.cases), key=lambda pair: _values(pair[1]))
    with scratch_folder() as folder:
        file = folder / path.name
        onnx.save(marked, file)
        sessions = _open(replace(candidate, model=file), references.cases, progress, engine=engine)
        comparison = _Comparison(polygraphy, marked, sessions)
        half = any("float16" in output.dtype for output in sessions[_REFERENCE].outputs)
        compared: list[LayerCase] = []
        for index, case in cases:
            progress(f"compare {list(next(iter(case.inputs.values())).shape)}")
            limits = _limits(references, index, tolerance, half=half)
            compared.append(comparison.one_case(case, limits))
            if compared[-1].departing:
                break
    words = {
        key: f"{session.backend}: {session.library_reason}" for key, session in sessions.items()
    }
    return LayerReport(words[_REFERENCE], words[_CANDIDATE], tuple(compared))


class _Polygraphy:
    """The parts of polygraphy that are used."""

    def __init__(self) -> None:
        try:
            self.outputs = import_module("polygraphy.backend.onnx").ModifyOutputs
            self.base = import_module("polygraphy.backend.base").BaseRunner
            self.metadata = import_module("polygraphy.common").TensorMetadata
            self.quiet = import_module("polygraphy.logger").G_LOGGER.verbosity
            self.comparator = import_module("polygraphy.comparator").Comparator
        except (ModuleNotFoundError, AttributeError) as error:
            missing = not_installed("polygraphy, which `layerwise` needs,", "layerwise")
            raise BackendUnavailableError(f"{missing} ({error})") from error

    def runner(self, name: str, session: Session, feeds: Mapping[str, Array]) -> Any:
        """Return a runner with a name around a session, which checks the inputs."""
        metadata = self.metadata()
        for key, array in feeds.items():
            metadata.add(key, dtype=array.dtype, shape=array.shape)
        base: Any = self.base

        class Runner(base):  # type: ignore[misc]  # the class is of a module
            def get_input_metadata_impl(self) -> Any:
                return metadata

            def infer_impl(self, feed_dict: Mapping[str, Array]) -> dict[str, Array]:
                start = time.perf_counter()
                outputs = session.run(feed_dict)
                self.inference_time = time.perf_counter() - start
                return outputs

        return Runner(name)


@dataclass(frozen=True)
class _Limits:
    """Shares of the largest magnitude.

    Attributes:
        share: Limit of a floating-point layer.
        mean: Limit of the mean of every floating-point layer, or None.
        searched: Limit of the mean after a search, with which a layer passes too; or None.
    """

    share: float
    mean: float | None
    searched: float | None


class _Comparison:
    """Both runs of one marked file."""

    def __init__(
        self, polygraphy: _Polygraphy, marked: onnx.ModelProto, sessions: Mapping[str, Session]
    ) -> None:
        self._polygraphy, self._sessions = polygraphy, sessions
        self._nodes = {name: node for node in marked.graph.node for name in node.output}
        self._searched = _after_a_search(marked)
        self._bytes_per_value = 0.0

    def one_case(self, case: ReferenceCase, limits: _Limits) -> LayerCase:
        """Return the layers of one recorded size."""
        feeds = case.feeds()
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        needed = int(_ROOM * self._bytes_per_value * _values(case))
        if needed > (free := available_memory()):
            text = f"all layers need about {needed >> 20} MiB, and {free >> 20} MiB are available"
            return LayerCase(shapes, (), text)
        runners = [
            self._polygraphy.runner(k, session, feeds) for k, session in self._sessions.items()
        ]
        layers: list[LayerDifference] = []

        def compare(reference: Mapping[str, Array], candidate: Mapping[str, Array]) -> Any:
            layers.extend(
                self._layer(key, reference[key], candidate[key], limits) for key in reference
            )
            return OrderedDict((layer.tensor, not layer.departs) for layer in layers)

        with self._polygraphy.quiet(), np.errstate(all="ignore"):
            results = self._polygraphy.comparator.run(runners, data_loader=[feeds])
            self._polygraphy.comparator.compare_accuracy(results, compare_func=compare)
            held = sum(array.nbytes for array in results[_REFERENCE][0].values())
        self._bytes_per_value = held / _values(case)
        return LayerCase(shapes, tuple(layers))

    def _layer(
        self, name: str, reference: Array, candidate: Array, limits: _Limits
    ) -> LayerDifference:
        node, largest = self._nodes[name], _largest(reference)
        floating = reference.dtype.kind == "f"
        instead = limits.searched is not None and name in self._searched
        mean = limits.searched if instead else limits.mean if floating else None
        figures = _figures(reference, candidate, largest)
        layer = LayerDifference(
            node.name,
            f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
            name,
            reference.dtype.name,
            reference.shape,
            largest,
            *figures,
            allowed=limits.share * largest if floating else 0.0,
            mean_allowed=None if mean is None else mean * largest,
            mean_instead=instead,
        )
        return replace(layer, finding=_finding(layer, reference, candidate))


def _figures(reference: Array, candidate: Array, peak: float) -> tuple[float, float, float]:
    """Return largest and mean difference and PSNR; NaN if a side has NaN or another shape."""
    if reference.shape != candidate.shape:
        return (float("nan"),) * 3
    if reference.size == 0:
        return 0.0, 0.0, float("inf")
    first, second = reference.astype(np.float64), candidate.astype(np.float64)
    difference = np.where(first == second, 0.0, np.abs(first - second))  # equal infinities too
    square = float(np.mean(difference**2))
    ratio = float(np.divide(peak * peak, square)) if square else float("inf")
    return float(difference.max()), float(difference.mean()), float(10.0 * np.log10(ratio))


def _finding(layer: LayerDifference, reference: Array, candidate: Array) -> str:
    """Return the fault of a layer, or ""."""
    if reference.shape != candidate.shape:
        return f"the shape is {candidate.shape}, in the reference {reference.shape}"
    nan = [int(np.count_nonzero(np.isnan(array))) for array in (candidate, reference)]
    if any(nan):
        return f"{nan[0]} of {reference.size} values are NaN, in the reference {nan[1]}"
    largest = layer.max_abs <= layer.allowed
    mean = layer.mean_allowed is None or layer.mean_abs <= layer.mean_allowed
    if (largest or mean) if layer.mean_instead else (largest and mean):
        return ""
    text = f"the largest difference is {layer.max_abs:.3g}, allowed {layer.allowed:.3g}"
    if layer.mean_allowed is not None:
        text += f", and the mean is {layer.mean_abs:.3g}, allowed is {layer.mean_allowed:.3g}"
    return text


def _mark(polygraphy: _Polygraphy, model: onnx.ModelProto, *, floats_only: bool) -> onnx.ModelProto:
    """Return the model with every tensor between its nodes as an output.

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
    with polygraphy.quiet():
        marked: onnx.ModelProto = polygraphy.outputs(typed, [glob.escape(name) for name in names])()
    del marked.graph.value_info[:]
    return marked


def _after_a_search(model: onnx.ModelProto) -> frozenset[str]:
    """Return the tensors that depend on a seeded search."""
    searched: set[str] = set()
    for node in model.graph.node:
        if node.op_type == _SEARCH or searched.intersection(node.input):
            searched.update(node.output)
    return frozenset(searched)


def _limits(references: References, index: int, tolerance: float | None, *, half: bool) -> _Limits:
    share, searched = allowed_differences(references, tolerance)[index]
    if half and tolerance is None:
        return _Limits(max(share, _HALF_SHARE), _HALF_MEAN, searched)
    return _Limits(share, None, searched)


def _build(
    spec: SessionSpec, cases: Sequence[ReferenceCase], progress: Callable[[str], None]
) -> None:
    """Build the engine of a marked file, for shapes from the smallest to the largest recorded."""
    from ...runtime.engines.build import BuildOptions, build_engine
    from ...runtime.engines.model import EngineModel
    from ...runtime.engines.profile import EngineShapes

    ends = []
    for pick in (min, max, max):
        shapes = {}
        for name in cases[0].inputs:
            sizes = zip(*(case.inputs[name].shape for case in cases), strict=True)
            shapes[name] = tuple(pick(several) for several in sizes)
        ends.append(shapes)
    model = EngineModel.open(spec.model, str(spec.library))
    options = BuildOptions(spec.backend, EngineShapes(*ends))
    build_engine(model, options, announce=lambda text: progress(f"{spec.backend}: {text}"))


def _open(
    spec: SessionSpec,
    cases: Sequence[ReferenceCase],
    progress: Callable[[str], None],
    *,
    engine: bool,
) -> dict[str, Session]:
    """Load a marked file for both sides; checks come before steps that may take minutes."""

    def reference() -> Session:
        progress("load the reference")
        return Session(spec.model, "ort-cpu", spec.threads, None)

    def candidate() -> Session:
        progress(f"load {spec.backend}")
        return Session.open(spec)

    if engine:
        first = reference()
        _build(spec, cases, progress)
        return {_REFERENCE: first, _CANDIDATE: candidate()}
    second = candidate()
    if second.backend == "ort-cpu" and second.library is None:
        _refuse_the_same(spec, second.library_reason)
    return {_REFERENCE: reference(), _CANDIDATE: second}


def _refuse_the_same(spec: SessionSpec, reason: str) -> NoReturn:
    same = "both sides are the same, ort-cpu without the operator library"
    ours = read_onnx_header(spec.model).has_operators
    if ours and spec.library != "none":
        raise BackendUnavailableError(f"{same}: {reason}")
    raise NystraError(
        f"{same}: compare with another `backend`" + (", or omit `library`" if ours else "")
    )


def _values(case: ReferenceCase) -> int:
    return sum(array.size for array in case.inputs.values())


def _largest(array: Array) -> float:
    """Return the largest finite magnitude."""
    finite = array[np.isfinite(array)]
    return float(np.max(np.abs(finite.astype(np.float64)))) if finite.size else 0.0
