"""Stage 5: writes the files, or a report of why there are none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ...core.errors import ValidationError
from ...core.files.writing import file_set
from ...core.json_text import json_number, stable_json
from ...core.metadata import ModelMetadata
from ...runtime.model.manifest import Manifest
from ...runtime.model.references import RECORDED_METADATA, references_content
from ...runtime.tiling.tiled_network import DISCOURAGED
from ..graph.metadata import write_metadata
from ..graph.stage import BuiltModel, serialize
from ..load.stage import Prepared
from ..plan.replacing import export_files, export_form
from ..plan.stage import Planned
from ..progress import Progress
from ..validate.model_file import tool_versions
from ..validate.stage import Validated

WRITING_STEPS = 1
"""Number of steps that `write` announces."""


def write(
    prepared: Prepared,
    planned: Planned,
    built: BuiltModel,
    validated: Validated,
    progress: Progress,
) -> tuple[Path, ...]:
    """Write the model, manifest, references and plan; return the files.

    Raises:
        ValidationError: The file must not be written; ``<stem>.failed.json`` says why.
        NystraError: The files cannot be written.
    """
    progress("write")
    metadata = _with_figures(built.metadata, validated)
    write_metadata(built.model, metadata)
    manifest = _manifest(prepared, planned, built, validated)
    if validated.failures:
        _write_failure(prepared, planned, built, validated, manifest)
    target = planned.target
    *named, listing = export_files(target)
    recorded = validated.references.meta | {RECORDED_METADATA: metadata.entries()}
    written = (
        stable_json(planned.plan.as_dict()),
        references_content(validated.references.cases, recorded),
        serialize(built.model),
    )
    contents = dict(zip(named, written, strict=True))
    _write_set(target, contents, manifest, listing)
    return tuple(contents)


def _write_set(
    leader: Path,
    contents: dict[Path, bytes],
    manifest: Manifest,
    listing: Path,
) -> None:
    """Write the manifest, which lists the hashes of the files, then them, the leader last.

    So a process that is killed meanwhile leaves the former model whole, and a manifest that shows
    which files do not belong to it.
    """
    for path, content in contents.items():
        manifest.add_file(path.name, content)
    with file_set(leader) as files:
        for path, content in {listing: manifest.content(), **contents}.items():
            files.write(path, content)
    contents[listing] = manifest.content()


def _with_figures(metadata: ModelMetadata, validated: Validated) -> ModelMetadata:
    metadata = replace(metadata, tile_psnr=validated.tile_psnr)
    if validated.tile_psnr and metadata.tiling == "supported":
        metadata = replace(metadata, tiling=DISCOURAGED)
    psnr = json_number(validated.file.figures.get("psnr", math.nan))
    if psnr is None:  # NaN: the output has NaN, or is not an image
        return metadata
    return replace(metadata, psnr_vs_torch=f"{psnr:.1f}")


def _manifest(
    prepared: Prepared,
    planned: Planned,
    built: BuiltModel,
    validated: Validated,
) -> Manifest:
    loaded = prepared.loaded
    label = prepared.transform.label
    validation = {
        "against_torch": validated.file.as_dict(),
        "fidelity": validated.fidelity.as_dict(),
    }
    if planned.proposal.figures:
        validation["planning"] = planned.proposal.figures
    if planned.settings.figures:
        validation["settings"] = planned.settings.figures
    if built.transformed is not None:
        validation["precision"] = {"name": label} | built.transformed.as_dict()
    return Manifest(
        model=planned.target.name,
        source={"name": loaded.checkpoint.path.name, "sha256": loaded.checkpoint.sha256},
        tools=tool_versions(),
        command=list(prepared.options.command),
        facts=loaded.facts.as_dict() | {"precision": label},
        plan=planned.plan.as_dict(),
        form=export_form(prepared.options),
        validation=validation,
    )


def _write_failure(
    prepared: Prepared,
    planned: Planned,
    built: BuiltModel,
    validated: Validated,
    manifest: Manifest,
) -> None:
    target = planned.target
    manifest.validation["failures"] = list(validated.failures)
    report = target.with_name(f"{target.stem}.failed.json")
    failed = target.with_name(f"{target.stem}.failed.onnx")
    where = f"the figures are in {report}"
    contents = {}
    if prepared.options.keep:
        contents[failed] = serialize(built.model)
        where += f", the file in {failed}"
    _write_set(report, contents, manifest, report)
    if target.exists():
        where += f"; {target}, of an earlier export, is unchanged"
    remedy = ""
    if validated.file.faults:
        remedy = prepared.transform.remedy
    raise ValidationError(
        f"the export failed its validation and no model was written; {where}. "
        + "; ".join(filter(None, [*validated.failures, remedy]))
        + "; see docs/precision.md"
    )
