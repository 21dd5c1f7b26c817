"""The metadata of a model file."""

from __future__ import annotations

from dataclasses import fields

import onnx

from ... import __version__
from ...core.metadata import ModelMetadata, key_of
from ...models.facts import Facts


def describe(facts: Facts) -> ModelMetadata:
    """Return the part of a model file's metadata that describes its network.

    For a network that accepts only size multiples the scale is omitted: the runtime then finds by
    trial runs which sizes it accepts, and pads images.
    """
    return ModelMetadata(
        architecture=facts.architecture,
        scale=facts.scale if facts.pads else None,
        input_channels=facts.input_channels,
        output_channels=facts.output_channels,
        license=facts.license,
        io=(*facts.inputs, *facts.outputs),
        task=facts.task,
        range=facts.range,
        size_multiple=facts.size_multiple if facts.pads else None,
        size_minimum=facts.size_minimum,
        tiling=facts.tiling,
        window=facts.window,
        preprocessing=facts.preprocessing,
    )


def write_metadata(model: onnx.ModelProto, metadata: ModelMetadata) -> None:
    """Replace nystra's metadata of a model, in place, in the fixed order of keys."""
    own = {key_of(field.name) for field in fields(metadata)}
    entries = {}
    for entry in model.metadata_props:
        if entry.key not in own:
            entries[entry.key] = entry.value
    del model.metadata_props[:]
    entries |= metadata.entries()
    for key, value in sorted(entries.items()):
        model.metadata_props.add(key=key, value=value)
    model.producer_name = "nystra"
    model.producer_version = __version__
