"""Stage 3: the planned network becomes a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from ... import __version__
from ...core.json_text import stable_json
from ...core.metadata import ModelMetadata
from ...runtime.backends import find_backend
from ..attention.cost import quadratic_bytes
from ..attention.mechanism import Mechanism
from ..execute.editing import PassResult
from ..load.stage import Prepared
from ..plan.stage import Planned
from ..progress import Steps
from ..tracing.bodies import attach_bodies, inline_bodies
from ..transforms import UNCHANGED, Transform, TransformInputs, TransformResult
from .metadata import describe, write_metadata


@dataclass(frozen=True)
class BuiltModel:
    """Graphs with their bodies.

    Attributes:
        model: The model to write.
        metadata: Metadata of the model, to which only results of the validation are added.
        transformed: The result of the transform, with the rounded copy; None if there is none.
        single: The model in float32, before the transform; None if there is none.
        full: The model with the network's own attention, for timing; None if nothing is timed.
        warnings: Other changes, one sentence each.
    """

    model: onnx.ModelProto
    metadata: ModelMetadata
    transformed: TransformResult | None
    single: onnx.ModelProto | None
    full: onnx.ModelProto | None
    warnings: tuple[str, ...] = ()


def build(prepared: Prepared, planned: Planned, progress: Steps) -> BuiltModel:
    """Trace, transform and complete the graph.

    Every graph gets its metadata here: they control how a session runs a file, and validation and
    timing have to run the same way as the written file.

    Raises:
        ExportError: The network cannot be traced.
        UnsupportedModelError: The transform cannot change anything.
    """
    progress("trace")
    transform = prepared.transform
    for_transform = transform.apply is not None
    written = prepared.graph.write(planned.resolved, for_transform=for_transform)
    model = written.model
    single = None
    if for_transform:
        single = onnx.ModelProto()
        single.CopyFrom(model)
        _transform(single, prepared, UNCHANGED, progress)
    transformed = _transform(model, prepared, transform, progress)
    exact = () if transformed is None else transformed.exact
    notes = (*written.notes, *_finish(model, prepared))
    metadata = _describe(model, prepared, planned, planned.resolved, transform, exact)
    for copied in (single, None if transformed is None else transformed.rounded_copy):
        if copied is not None:
            _describe(copied, prepared, planned, planned.resolved, UNCHANGED)
    full = None
    if is_timed(prepared, planned):
        of_full = UNCHANGED
        if changes_attention(prepared, planned):
            of_full = transform
        progress("trace")
        for_transform = of_full.apply is not None
        full = prepared.graph.write_own(planned.neutral, for_transform=for_transform).model
        _transform(full, prepared, of_full, progress)
        _finish(full, prepared)
        _describe(full, prepared, planned, planned.neutral, of_full)
    return BuiltModel(model, metadata, transformed, single, full, notes)


def count_build_steps(prepared: Prepared, planned: Planned) -> int:
    """Return the number of steps that `build` reports."""
    traces = 1 + is_timed(prepared, planned)
    if prepared.transform.apply is None:
        return traces
    both = is_timed(prepared, planned) and changes_attention(prepared, planned)
    return traces + (2 if both else 1)


def is_timed(prepared: Prepared, planned: Planned) -> bool:
    """Return whether the file is timed: requested, for CPUs, and other than full attention.

    Where only the precision differs, it is timed against float32.
    """
    runs_on_cpu = prepared.transform.label in find_backend("ort-cpu").precisions
    differs = changes_attention(prepared, planned) or prepared.transform.apply is not None
    return prepared.options.speed and runs_on_cpu and differs


def changes_attention(prepared: Prepared, planned: Planned) -> bool:
    """Return whether attention in the file is computed in another way than in the network."""
    return prepared.graph.changes_attention(is_neutral=planned.is_neutral)


def _transform(
    model: onnx.ModelProto, prepared: Prepared, transform: Transform, progress: Steps
) -> TransformResult | None:
    """Change the arithmetic of a graph, in place, and add preprocessing and bodies."""
    options = prepared.options
    facts = prepared.traced.facts
    transformed = None
    if transform.apply is not None:
        progress(transform.name)
        inputs = TransformInputs(
            facts.architecture,
            prepared.traced_feeds if transform.calibrated else prepared.telling_feeds,
            prepared.traced_images,
            facts.outputs[0],
            options.min_psnr,
            transform.parameters,
        )
        transformed = transform.apply()(model, inputs)
    for graph in [model] if transformed is None else [model, transformed.rounded_copy]:
        if options.with_preprocessing and facts.preprocessing is not None:
            from .preprocessing import prepend_preprocessing

            prepend_preprocessing(graph, facts.preprocessing, prepared.loaded.facts.inputs[0])
        if options.functions != "none":
            attach_bodies(graph)
            onnx.checker.check_model(graph)
    return transformed


def _finish(model: onnx.ModelProto, prepared: Prepared) -> tuple[str, ...]:
    """Run the passes over a graph that is complete, in order; return their notes."""
    passes: list[Callable[[onnx.ModelProto], PassResult]] = []
    if prepared.target is not None and prepared.target.finish is not None:
        passes.append(prepared.target.finish())
    elif prepared.options.functions == "inline":
        passes.append(inline_bodies)
    notes: list[str] = []
    for run in passes:
        notes += run(model).notes
    return tuple(notes)


def _describe(
    model: onnx.ModelProto,
    prepared: Prepared,
    planned: Planned,
    sites: Mapping[str, Mechanism],
    transform: Transform,
    exact: Sequence[str] = (),
) -> ModelMetadata:
    loaded = prepared.loaded
    planned_sites = replace(planned.plan, sites=dict(sites))
    attention = stable_json(planned_sites.as_dict())
    metadata = replace(
        describe(loaded.facts),
        version=__version__,
        attention=attention.decode(),
        source_sha256=loaded.checkpoint.sha256,
        precision=transform.label,
        precision_parameters=transform.parameters_text or None,
        exact_layers=tuple(exact),
        quadratic_bytes=quadratic_bytes(loaded.network, loaded.facts, sites),
    )
    write_metadata(model, metadata)
    return metadata


def serialize(model: onnx.ModelProto) -> bytes:
    """Return the bytes of a model: the same for the same content."""
    content: bytes = model.SerializeToString(deterministic=True)
    return content
