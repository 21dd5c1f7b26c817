"""Exported files: the same quality as PyTorch, and their times in interleaved runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.core.ports.port import Size, size_text
from nystra.export import ExportOptions, export_model
from nystra.export.attention.landmarks import Landmarks
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.models import LoadedModel
from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.runtime.session import Session
from nystra.runtime.tasks.restoration.quality import validate_quality
from nystra.runtime.timing.bench import bench, session_configuration
from studies.quality.measure import WHOLE, ImageSet, measure, planned
from studies.quality.tables import (
    Engine,
    Models,
    Progress,
    Row,
    cluster,
    label,
    nystra,
    nystromformer,
)

TIMED = (
    mechanism("full"),
    *(nystra(m) for m in (8, 16, 32)),
    nystra(16, 2),
    nystra(16, 6, 0.0),
    nystra(16, mask="none"),
    nystromformer(16),
    cluster(16),
    cluster(16, block=8),
)
COMPARED = (
    mechanism("full"),
    nystra(16),
    nystra(8, 1),
    nystra(16, 6, 0.0),
    nystromformer(16),
    cluster(16),
)


def export(model: LoadedModel, parameters: Mechanism, folder: Path) -> Path:
    """Return the file of a plan.

    Each Nystrom form is exported once; since every parameter of theirs is an attribute of the
    nodes, the other plans are that file with other attributes.
    """
    source = model.checkpoint
    stem = f"{source.path.stem}-{source.sha256[:8]}"
    file = folder / f"{stem}-{label(parameters).replace(', ', '-').replace(' ', '-')}.onnx"
    if not isinstance(parameters, Landmarks):
        if not file.exists():
            export_model(source.path, file, ExportOptions(Plan(parameters), speed=False))
        return file
    base = folder / f"{stem}-{parameters.name}.onnx"
    if not base.exists():
        options = ExportOptions(Plan(default=mechanism(parameters.name)), speed=False)
        export_model(source.path, base, options)
    graph = onnx.load(str(base))
    values: dict[str, float] = {
        "landmark_rows": parameters.landmarks[0],
        "landmark_cols": parameters.landmarks[1],
        **{
            name: value
            for name, value in parameters.values().items()
            if name in ("iterations", "threshold", "guard")
        },
    }
    if parameters.mask == "none":
        values["mask"] = 0
    for node in graph.graph.node:
        for attribute in node.attribute:
            if node.domain == DOMAIN and attribute.name in values:
                value = values[attribute.name]
                replaced = onnx.helper.make_attribute(attribute.name, value)
                attribute.CopyFrom(replaced)
    file.write_bytes(graph.SerializeToString(deterministic=True))
    return file


def session_engine(folder: Path, threads: int) -> Engine:
    """Return a function that runs the files of plans in onnxruntime with the operator library.

    Raises:
        BackendUnavailableError: The library is not built.
    """
    library = library_path()

    def engine(model: LoadedModel, parameters: Mechanism, change: object) -> Session:
        if change is not None:
            raise NystraError("files are measured as they are, without changes to the network")
        return Session(export(model, parameters, folder), "ort-cpu", threads, library)

    return engine


def files_table(
    models: Models, sets: Sequence[ImageSet], progress: Progress, folder: Path
) -> list[Row]:
    """Compare the quality of exported files with that of the swapped PyTorch network."""
    try:
        libraries = {"with the library": library_path(), "bodies": None}
    except BackendUnavailableError:
        libraries = {"bodies": None}
    rows = []
    for name, model in models.items():
        for parameters in COMPARED:
            progress(f"{name} export {label(parameters)}")
            file = export(model, parameters, folder)
            torch_side = measure(model, planned(model, parameters), sets[0]).quality
            for how, library in libraries.items():
                progress(f"{name} {how} {label(parameters)}")
                session = Session(file, "ort-cpu", library=library)
                got = validate_quality(session, sets[0].inputs, sets[0].truths, tile=WHOLE)
                pairs = zip(got.images, torch_side.images, strict=True)
                rows.append(
                    {
                        "model": name,
                        "set": sets[0].name,
                        "plan": label(parameters),
                        "file": how,
                        "psnr": got.psnr,
                        "psnr_torch": torch_side.psnr,
                        "largest_difference": max(abs(a.psnr - b.psnr) for a, b in pairs),
                    }
                )
    return rows


def times_table(
    models: Models,
    sizes: Sequence[Size],
    progress: Progress,
    folder: Path,
    threads: int,
) -> list[Row]:
    """Time the files of a model against its full-attention file, all with the library."""
    rows = []
    for name, model in models.items():
        files = {label(plan): export(model, plan, folder) for plan in TIMED}
        plans = {str(file): plan for plan, file in files.items()}
        configurations = [
            session_configuration(file, "ort-cpu", threads) for file in files.values()
        ]
        for row in bench(configurations, sizes, seconds=5.0, progress=progress):
            if row.reason is not None or row.ratio is None:
                raise BackendUnavailableError(f"{row.label}: {row.reason}")
            rows.append(
                {
                    "model": name,
                    "plan": plans[row.model],
                    "size": size_text(row.size),
                    "seconds": row.percentile(50),
                    "ratio": 1.0 / row.ratio,
                    "pairs": row.pairs,
                    "memory": row.memory["above"],
                }
            )
    return rows
