"""The metadata of a model file."""

from __future__ import annotations

import onnx

from ... import __version__
from ...core.metadata import ModelMetadata
from ...models.facts import Facts


def describe(facts: Facts) -> ModelMetadata:
    """Return the metadata of a model file, as far as they are facts of its network."""
    return ModelMetadata(
        architecture=facts.architecture,
        scale=facts.scale,
        input_channels=facts.input_channels,
        output_channels=facts.output_channels,
        license=facts.license,
        io=(*facts.inputs, *facts.outputs),
        task=facts.task,
        range=facts.range,
        size_multiple=facts.size_multiple,
        size_minimum=facts.size_minimum,
        tiling=facts.tiling,
        window=facts.window,
        preprocessing=facts.preprocessing,
    )


def write_metadata(model: onnx.ModelProto, metadata: ModelMetadata) -> None:
    """Replace the metadata of a model, in place, in the order of its keys."""
    del model.metadata_props[:]
    for key, value in sorted(metadata.entries().items()):
        model.metadata_props.add(key=key, value=value)
    model.producer_name = "nystra"
    model.producer_version = __version__
