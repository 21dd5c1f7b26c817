"""Stage 4: the file against PyTorch, the plan against full attention, and its speed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from torch import nn

from ...core.files.scratch import scratch_folder
from ...runtime.backends import find_backend
from ...runtime.model.references import References
from ...runtime.session import Session
from ..attention.advice import improvements
from ..attention.cost import quadratic_bytes
from ..graph.stage import BuiltModel, changes_attention, is_timed, serialize
from ..load.source import Source
from ..load.stage import Prepared
from ..plan.stage import Planned
from ..progress import Progress
from .fidelity import Fidelity, fidelity_steps, measure_fidelity
from .last_word import LastWord
from .model_file import FileValidation, file_steps, libraries, validate_file
from .references import record_references
from .speed import (
    FLOAT32,
    Speed,
    choose_timed_size,
    compare_speed,
    describe_untimed,
    slower_warning,
)
from .tiles import TilePsnr, measure_tiles, tile_sides, tiles_warning


@dataclass(frozen=True)
class Validated:
    """The results.

    Attributes:
        references: The references for later validation without PyTorch.
        file: The file against PyTorch.
        fidelity: The plan against full attention.
        speed: Against the full-attention file, or None.
        tile_psnr: The plan in tiles against the same on the whole image, where they differ.
        notes: What the transform did, one sentence each.
        warnings: One sentence each.
        failures: Why the file must not be written, one sentence each; empty if it may.
    """

    references: References
    file: FileValidation
    fidelity: Fidelity
    speed: Speed | None
    tile_psnr: TilePsnr
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    failures: tuple[str, ...]


def validation_steps(prepared: Prepared, planned: Planned) -> int:
    """Return the number of steps of `validate` if the file passes."""
    transform = prepared.transform
    return (
        len(prepared.feeds)
        + 1  # the network as it was given
        + file_steps(
            transform.label, bodies=_has_bodies(prepared), copied=transform.apply is not None
        )
        + fidelity_steps(prepared.samples, prepared.trained, as_trained=planned.is_neutral)
        + is_timed(prepared, planned)
        + bool(tile_sides(prepared.loaded.facts))
    )


def validate(
    prepared: Prepared, planned: Planned, built: BuiltModel, progress: Progress
) -> Validated:
    """Record references, run the file against them, measure the plan and tiles, time the file.

    Raises:
        UnsupportedModelError: Rounding to the precision alone changes the images too much.
        BackendUnavailableError: The file needs the operator library and there is none.
    """
    network, options = prepared.loaded.network, prepared.options
    facts, transformed = prepared.loaded.facts, built.transformed
    source = Source(prepared.loaded, planned.resolved)
    references = record_references(
        source,
        prepared.feeds,
        prepared.transform,
        progress,
        () if transformed is None else transformed.exact,
    )
    progress(f"{source.reference} as it was given")
    last_word = LastWord.of(source)
    prepared.graph.release()
    with scratch_folder() as folder:
        path = _save(folder / "model.onnx", built.model)
        copy = None
        if transformed is not None:
            copy = _save(folder / "rounded_copy.onnx", transformed.rounded_copy)
        file = validate_file(
            path, references, bodies=_has_bodies(prepared), progress=progress, rounded_copy=copy
        )
        differing: list[str] = []
        if file.passed:
            library = libraries(bodies=_has_bodies(prepared))[-1]
            single = path if built.single is None else _save(folder / "single.onnx", built.single)
            differing = last_word.faults_of(Session(single, library=library))
            if transformed is not None and copy is not None and not differing:
                for low in [path, copy] if _runs_on_cpu(prepared) else [copy]:
                    differing += last_word.faults_of_transformed(
                        Session(low, library=library), prepared.transform, transformed.exact
                    )
        fidelity = measure_fidelity(
            network,
            planned.resolved,
            prepared.samples,
            prepared.trained,
            progress,
            facts.outputs[0],
        )
        speed, untimed = None, ""
        if built.full is not None and file.passed:
            progress("speed")
            full = _save(folder / "full.onnx", built.full)
            quadratic = quadratic_bytes(network, facts, planned.neutral)
            size = choose_timed_size(facts, quadratic, file.seconds_per_pixel)
            kernels = options.functions != "inline" and len(libraries(bodies=True)) > 1
            untimed = describe_untimed(size, file.seconds_per_pixel)
            if not untimed:
                speed = compare_speed(path, full, size, kernels, file.seconds_per_pixel)
            if speed is not None:
                speed = replace(speed, other=_choose_rival(prepared, planned))
    tile_psnr = measure_tiles(network, planned.resolved, facts, progress)
    below = _below(fidelity, options.min_psnr, network, planned)
    notes = () if transformed is None else tuple(transformed.notes())
    warnings = () if transformed is None else tuple(transformed.warnings())
    if speed is not None and speed.is_slower:
        warnings += (slower_warning(speed),)
    if untimed:
        warnings += (untimed,)
    if tiles := tiles_warning(facts, tile_psnr):
        warnings += (tiles,)
    failures = (*file.faults, *last_word.faults, *differing)
    if options.min_psnr is None:
        warnings += below
    else:
        failures += below
    return Validated(references, file, fidelity, speed, tile_psnr, notes, warnings, failures)


def _runs_on_cpu(prepared: Prepared) -> bool:
    return prepared.transform.label in find_backend("ort-cpu").precisions


def _choose_rival(prepared: Prepared, planned: Planned) -> str:
    if not changes_attention(prepared, planned):
        return FLOAT32
    return prepared.graph.own_attention


def _has_bodies(prepared: Prepared) -> bool:
    return prepared.options.functions != "none"


def _save(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(serialize(model))
    return path


def _below(
    fidelity: Fidelity, minimum: float | None, network: nn.Module, planned: Planned
) -> tuple[str, ...]:
    measure = fidelity.measure
    required = measure.warning if minimum is None else minimum
    limit = f"{'below' if measure.higher else 'above'} {measure.text(required)}"
    texts = []
    if measure.misses(fidelity.mean, required):
        lowest = measure.text(measure.worst(fidelity.plan.values()))
        text = (
            f"the plan gives {measure.text(fidelity.mean)} in the mean of the images (worst: "
            f"{lowest}) against full attention, {limit}"
        )
        if fidelity.sites:
            worst = ", ".join(
                f"{cost.path} (error {cost.error:.0%})" for cost in fidelity.sites[:3]
            )
            tries = improvements(network, planned.resolved, fidelity.sites[0].path)
            text += f". Worst sites: {worst}. Try {tries}"
        texts.append(text)
    trained = fidelity.trained_mean
    if trained is not None and measure.misses(trained, required):
        texts.append(
            f"this window and plan give {measure.text(trained)} against the network at its trained "
            f"window, {limit}. Omit `window_size`, or train the network at it"
        )
    return tuple(texts)
