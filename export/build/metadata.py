"""What a model file says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping

import onnx

from ...models.facts import Facts
from ...core.ports.listing import KEY, list_ports
from ...core.ports.preprocessing import write_preprocessing


def metadata(facts: Facts, more: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a model file by key.

    Args:
        facts: Of the network; architecture, scale, channels and licence stand under plain
            keys, all others under the prefix ``nystra.``.
        more: Further ``nystra.`` entries, without the prefix.
    """
    plain = {
        "architecture": facts.architecture,
        "scale": str(facts.scale),
        "input_channels": str(facts.input_channels),
        "output_channels": str(facts.output_channels),
        "license": facts.license,
        KEY: list_ports([*facts.inputs, *facts.outputs]),
    }
    own = {
        "task": facts.task,
        "range": json.dumps(list(facts.range)),
        "size_multiple": str(facts.size_multiple),
        "size_minimum": str(facts.size_minimum),
        "tiling": facts.tiling,
    }
    if facts.window is not None:
        own["window"] = json.dumps(list(facts.window))
    if facts.preprocessing is not None:
        own["preprocessing"] = write_preprocessing(facts.preprocessing)
    return plain | {f"nystra.{key}": value for key, value in (own | dict(more)).items()}


def write_metadata(model: onnx.ModelProto, entries: Mapping[str, str], version: str) -> None:
    """Replace the metadata of a model, in place, in the order of its keys."""
    del model.metadata_props[:]
    for key in sorted(entries):
        model.metadata_props.add(key=key, value=entries[key])
    model.producer_name = "nystra"
    model.producer_version = version
