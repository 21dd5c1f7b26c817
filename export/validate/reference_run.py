"""A new run of PyTorch for a model file, for ``nystra validate --checkpoint``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata, key_of
from ...runtime.model.onnx_graph import read_facts
from ...runtime.model.references import RECORDED_METADATA, References
from ...runtime.tiling.tiled_network import DISCOURAGED
from ..graph.metadata import describe
from ..load.images import validation_feeds
from ..load.source import Source
from ..progress import Progress
from ..transforms import TRANSFORMS
from .references import record_references


def reference_run(
    model: Path, metadata: Mapping[str, str], source: Source, progress: Progress
) -> References:
    """Return the references that an export of this file would record now, at supported sizes.

    Args:
        model: The model file.
        metadata: Its metadata.
        source: The source that it was exported from.
        progress: Called with the name of each step.

    Raises:
        NystraError: The metadata name no known precision, or are damaged.
    """
    facts = source.loaded.facts
    own = {port.name: port.lengths for port in read_facts(model).inputs}
    if own.keys() != {port.name for port in facts.inputs}:
        names = ", ".join(port.name for port in facts.inputs)
        raise NystraError(f"{model} takes {', '.join(own)}, its source {names}: export it again")
    inputs = []
    for port in facts.inputs:
        inputs.append(replace(port, lengths=own[port.name]))
    stated = ModelMetadata.read(metadata)
    label = stated.precision or "fp32"
    if label not in TRANSFORMS:
        raise NystraError(
            f"{model} says {key_of('precision')} {label!r}; expected one of "
            f"{', '.join(TRANSFORMS)}: export it again"
        )
    references = record_references(
        source,
        validation_feeds(replace(facts, inputs=tuple(inputs))),
        TRANSFORMS[label].with_parameters(stated.precision_parameters or ""),
        progress,
        stated.exact_layers,
    )
    if facts.tiling == "supported" and stated.tile_psnr:  # measured by its export
        facts = replace(facts, tiling=DISCOURAGED)
    expected = dict(metadata) | describe(facts).entries()
    return replace(references, meta=references.meta | {RECORDED_METADATA: expected})
