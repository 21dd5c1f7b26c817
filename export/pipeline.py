"""Checkpoint to model file: load, plan, swap, trace, attach, judge, write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import onnx

from .. import __version__
from ..models.loading import LoadedModel, load
from ..plugins.errors import NystraError, UnsupportedModelError, ValidationError
from ..runtime.files.json_text import json_number, stable_json
from ..runtime.files.writing import atomic_path, check_writable_folder
from ..runtime.model.manifest import Manifest
from ..runtime.model.references import References, write_references
from .attention.mechanism import SiteParameters
from .attention.plan import Plan
from .attention.site import find_sites, resolve, swap
from .fidelity import Fidelity, measure_fidelity
from .graph.bodies import attach_bodies, inline_bodies
from .graph.metadata import metadata, write_metadata
from .graph.precision.lowering import Lowered, lower_model, precision_label
from .graph.precision.policy import policy_for
from .graph.tidy import tidy
from .graph.trace import trace
from .judge import Judgement, judge, judged_feeds, record_references, tool_versions
from .naming import attention_label, output_path
from .pictures import calibration_feeds, validation_feeds
from .quadratic import quadratic_bytes
from .speed import Speed, compare_speed

FIDELITY_WARNING = 35.0
"""PSNR against full attention, dB, below which an export warns."""

OPSETS = (18, 19, 20)
Functions = Literal["attached", "none", "inline"]


@dataclass(frozen=True)
class ExportOptions:
    """How to export.

    Attributes:
        plan: what to compute where.
        hyper: hyper-parameters that go before what the checkpoint says.
        opset: 18, 19 or 20.
        static: the only input shape (B, C, H, W), or None for any batch, height and width.
        functions: nystra nodes with bodies ``attached``, with ``none``, or bodies ``inline``.
        precision: ``fp32``, ``fp16`` or ``bf16``; inputs and outputs stay float32.
        target: None for every program, or ``tensorrt``: a bf16 file that TensorRT alone takes.
        calibrate: folder of pictures to judge the plan on; None takes the shipped ones.
        min_psnr: dB against full attention below which the validation fails; None warns only.
        keep: keep the model of a failed validation as ``<stem>.failed.onnx``.
        speed: time the file against the full-attention file.
        command: the command line, for the manifest.
    """

    plan: Plan = field(default_factory=Plan)
    hyper: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 20
    static: tuple[int, int, int, int] | None = None
    functions: Functions = "attached"
    precision: str = "fp32"
    target: str | None = None
    calibrate: Path | None = None
    min_psnr: float | None = None
    keep: bool = False
    speed: bool = True
    command: Sequence[str] = ()


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote and found.

    Attributes:
        model: the model file.
        files: every file that was written.
        nodes: nodes of the graph.
        precision: as ``nystra.precision`` says it.
        resolved: what was done at each site.
        judgement: the file against PyTorch.
        fidelity: the plan against full attention.
        speed: against the full-attention file, or None.
        warnings: one sentence each.
    """

    model: Path
    files: tuple[Path, ...]
    nodes: int
    precision: str
    resolved: dict[str, SiteParameters]
    judgement: Judgement
    fidelity: Fidelity
    speed: Speed | None
    warnings: tuple[str, ...]


def export_model(
    checkpoint: str | Path,
    output: str | Path = ".",
    options: ExportOptions | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ExportResult:
    """Export a checkpoint to an ONNX file that is checked against PyTorch.

    Args:
        checkpoint: a ``.safetensors``, ``.pth`` or ``.pt`` file.
        output: a ``.onnx`` file or an existing folder; beside the file go the manifest
            ``<stem>.json``, the references ``<stem>.npz`` and the plan ``<stem>.plan.json``.
        options: how to export; None takes the defaults.
        progress: is called with the name of each step.

    Returns:
        What was written and found.

    Raises:
        NystraError: bad input; nothing is written.
        ExportError: the network cannot be traced; nothing is written.
        ValidationError: the file departs from PyTorch or the plan costs more than ``min_psnr``
            allows; ``<stem>.failed.json`` is written and no file that was there is touched.
    """
    options = options or ExportOptions()
    if options.opset not in OPSETS:
        raise NystraError(f"opset {options.opset} is none of {', '.join(map(str, OPSETS))}")
    precision = precision_label(options.precision, options.target)
    progress("load")
    loaded, plan = load_for(Path(checkpoint), options.plan, options.hyper)
    _check_static(loaded, options.static)
    resolved = resolve(plan, loaded.network)
    warnings = [*loaded.warnings, *plan_warnings(plan, loaded, resolved)]
    facts = loaded.facts
    source = loaded.checkpoint.path
    if precision != "fp32":
        policy_for(facts.architecture, options.precision)
    target = output_path(
        Path(output), source, facts, resolved, options.opset, options.static, precision
    )
    check_writable_folder(target.parent)

    samples = calibration_feeds(facts, options.calibrate, options.static)
    model, lowered = _build(loaded, resolved, options, progress)
    references = record_references(
        loaded.network, resolved, facts, options.static, progress, precision
    )
    if lowered is not None:
        warnings += lowered.sentences()
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "model.onnx")
        trial.write_bytes(_serialized(model))
        twin = None
        if lowered is not None:
            twin = Path(folder, "twin.onnx")
            twin.write_bytes(_serialized(lowered.twin))
        bodies = options.functions != "none"
        judgement = judge(trial, references, bodies=bodies, progress=progress, twin=twin)
        trained = load(source).network if loaded.retargeted else None
        fidelity = measure_fidelity(loaded.network, resolved, samples, trained, progress)
        warnings += _fidelity_warnings(fidelity, options.min_psnr)
        speed = None
        timed = options.speed and options.precision != "bf16"  # which no CPU computes in
        if timed and judgement.passed and attention_label(resolved) != "full":
            progress("speed")
            exact = {path: one.as_full() for path, one in resolved.items()}
            full = Path(folder, "full.onnx")
            full.write_bytes(_serialized(_build(loaded, exact, options, progress)[0]))
            feeds = min(validation_feeds(facts, options.static), key=lambda one: one["input"].size)
            speed = compare_speed(trial, full, feeds)

    written = replace(
        plan, sites=resolved, window=facts.window, source_sha256=loaded.checkpoint.sha256
    )
    entries = {
        "version": __version__,
        "attention": stable_json(written.as_dict()).decode(),
        "source_sha256": loaded.checkpoint.sha256,
        "psnr_vs_torch": f"{json_number(judgement.psnr):.1f}",
        "precision": precision,
    }
    quadratic = quadratic_bytes(loaded.network, facts, resolved)
    if quadratic > 0:
        entries["quadratic_bytes"] = f"{quadratic:.6g}"
    write_metadata(model, metadata(facts, entries), __version__)
    manifest = Manifest(
        model=target.name,
        source={"name": source.name, "sha256": loaded.checkpoint.sha256},
        tools=tool_versions(),
        command=list(options.command),
        facts=facts.as_dict(),
        plan=written.as_dict(),
        validation={"against_torch": judgement.as_dict(), "fidelity": fidelity.as_dict()},
    )
    if lowered is not None:
        manifest.validation["precision"] = {"name": precision} | lowered.as_dict()
    failures = _failures(judgement, fidelity, options.min_psnr)
    if failures:
        _write_failure(target, model, manifest, failures, options.keep)
    files = _write(target, model, references, written, manifest)
    return ExportResult(
        target,
        files,
        len(model.graph.node),
        precision,
        resolved,
        judgement,
        fidelity,
        speed,
        tuple(warnings),
    )


def load_for(checkpoint: Path, plan: Plan, hyper: Mapping[str, Any]) -> tuple[LoadedModel, Plan]:
    """Load a checkpoint at the window that a plan is for.

    Raises:
        NystraError: the checkpoint is bad, or the plan is for another window than asked.
    """
    hyper = dict(hyper)
    if plan.window is not None:
        asked = hyper.setdefault("window_size", list(plan.window))
        sides = [asked, asked] if isinstance(asked, int) else list(asked)
        if sides != list(plan.window):
            raise NystraError(f"the plan is for window {plan.window}, but window {asked} was given")
    return load(checkpoint, **hyper), plan


def _check_static(loaded: LoadedModel, static: tuple[int, ...] | None) -> None:
    facts = loaded.facts
    if static is None and facts.fixed_size is not None:
        height, width = facts.fixed_size
        raise UnsupportedModelError(
            f"the network has an absolute position embedding and takes {height}x{width} only: "
            f"give --static 1x{facts.input_channels}x{height}x{width}"
        )
    if static is not None and static[1] != facts.input_channels:
        raise NystraError(f"--static has {static[1]} channels, the network {facts.input_channels}")


def plan_warnings(
    plan: Plan, loaded: LoadedModel, resolved: Mapping[str, SiteParameters]
) -> list[str]:
    """Return what the user of a plan should know: one sentence each."""
    warnings = []
    sha = loaded.checkpoint.sha256
    if plan.source_sha256 and plan.source_sha256 != sha:
        warnings.append(
            f"the plan was made for another checkpoint ({plan.source_sha256[:12]}..., "
            f"this one is {sha[:12]}...)"
        )
    linear = [s for s in find_sites(loaded.network) if resolved[s.path].pools]
    biases = [site.bias_size for site in linear if site.bias_size is not None]
    if biases:
        warnings.append(
            f"the relative position bias of {len(biases)} sites is dropped "
            f"(largest entry {max(biases):.2f} in logits)"
        )
    small = [
        s for s in linear if s.tokens is not None and s.tokens <= 2 * _landmarks(resolved[s.path])
    ]
    if small:
        one = small[0]
        warnings.append(
            f"linear attention cannot pay at {len(small)} sites: {one.tokens} tokens, "
            f"{_landmarks(resolved[one.path])} landmarks at {one.path}; --attn full is exact "
            "and faster there"
        )
    reasons = sorted({one.reason for one in resolved.values() if one.reason})
    warnings += [
        f"{sum(one.reason == reason for one in resolved.values())} sites keep full attention: "
        f"{reason}"
        for reason in reasons
    ]
    return warnings


def _landmarks(parameters: SiteParameters) -> int:
    return parameters.landmarks[0] * parameters.landmarks[1]


def _fidelity_warnings(fidelity: Fidelity, minimum: float | None) -> list[str]:
    wanted = FIDELITY_WARNING if minimum is None else minimum
    if fidelity.mean >= wanted:
        return []
    worst = ", ".join(f"{cost.path} ({cost.error:.0%} off)" for cost in fidelity.sites[:3])
    text = (
        f"the plan gives {fidelity.mean:.1f} dB against full attention, below {wanted:.1f} dB. "
        f"Worst sites: {worst}. Try full attention there (--plan), more --landmarks, "
        "or --attn nystromformer"
    )
    return [text]


def _build(
    loaded: LoadedModel,
    resolved: Mapping[str, SiteParameters],
    options: ExportOptions,
    progress: Callable[[str], None],
) -> tuple[onnx.ModelProto, Lowered | None]:
    progress("trace")
    network = swap(loaded.network, resolved, "operator")
    model = trace(network, loaded.facts, options.opset, options.static)
    facts, dynamic = loaded.facts, options.static is None
    tidy(model, facts.scale, dynamic=dynamic, extra=facts.extra_inputs)
    lowered = None
    if options.precision != "fp32":
        progress(options.precision)
        lowered = lower_model(
            model,
            options.precision,
            policy_for(facts.architecture, options.precision),
            judged_feeds(facts, options.static),
            tensorrt=options.target is not None,
        )
    for one in [model] if lowered is None else [model, lowered.twin]:
        if options.functions != "none":
            attach_bodies(one, options.opset)
            onnx.checker.check_model(one)
    if options.functions == "inline":
        model = inline_bodies(model)
    return model, lowered


def _serialized(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _failures(judgement: Judgement, fidelity: Fidelity, minimum: float | None) -> list[str]:
    failures = list(judgement.faults)
    if minimum is not None and fidelity.mean < minimum:
        failures += _fidelity_warnings(fidelity, minimum)
    return failures


def _write_failure(
    target: Path, model: onnx.ModelProto, manifest: Manifest, failures: list[str], keep: bool
) -> None:
    manifest.validation["failures"] = failures
    report = target.with_name(f"{target.stem}.failed.json")
    kept = target.with_name(f"{target.stem}.failed.onnx")
    where = f"the figures are in {report}"
    if keep:
        with atomic_path(kept) as temporary:
            temporary.write_bytes(_serialized(model))
        manifest.add_file(kept)
        where += f", the file in {kept}"
    manifest.write(report)
    raise ValidationError(
        f"the export failed its validation and no model was written; {where}. "
        + "; ".join(failures)
    )


def _write(
    target: Path,
    model: onnx.ModelProto,
    references: References,
    plan: Plan,
    manifest: Manifest,
) -> tuple[Path, ...]:
    recorded = target.with_suffix(".npz")
    plan_file = target.with_suffix(".plan.json")
    listing = Manifest.path_for(target)
    write_references(recorded, references.cases, references.meta)
    with atomic_path(plan_file) as temporary:
        temporary.write_bytes(stable_json(plan.as_dict()))
    with atomic_path(target) as temporary:
        temporary.write_bytes(_serialized(model))
    for path in (target, recorded, plan_file):
        manifest.add_file(path)
    manifest.write(listing)
    return target, listing, recorded, plan_file
