"""The baseline: accepted figures and tolerances, with which `nystra check` compares a model file.

The file is JSON: ``{"schema_version": 1, "model": name, "items": {name: {"accepted": number,
"tolerance": number}}, "outputs": text, "digests": {...}, "metadata": {...}, "quality": {...},
"accuracy": {...}, "speed": {...}}``. ``outputs`` are those of the accepted file for one input
(``accepted_outputs.py``), ``digests`` and ``metadata`` identify the model and its references; the
last three record how those figures were measured, without which they cannot be compared. Unknown
keys are errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import NystraError
from ...core.files.reading import is_there
from ...core.files.writing import atomic_write_bytes
from ...core.json_text import (
    is_number,
    is_whole,
    quote,
    read_json,
    require_keys,
    require_version,
    stable_json,
)
from ..metrics.guarded_figure import GuardedFigure
from ..model.references import ReferenceCase
from ..tasks.registry import task_qualities
from .accepted_outputs import decode_case, encode_case

SCHEMA_VERSION = 1


_REFERENCE_ITEMS = {
    "max_abs": GuardedFigure("largest difference from the references", "", "ceiling", 1e-4),
    "psnr": GuardedFigure("lowest PSNR against the references", "dB", "drop", 6.0),
    "relative_error": GuardedFigure("relative error against the references", "", "growth", 1e-3),
    "top1": GuardedFigure("top-1 agreement with the references", "", "drop", 0.0),
    "top5": GuardedFigure("top-5 agreement with the references", "", "drop", 0.0),
}
KERNELS = "kernels"
"""The item that says how many operators the library computes."""

_FILE_ITEMS = {
    KERNELS: GuardedFigure("nodes that the operator library computes", "", "drop", 0.0),
    "nodes": GuardedFigure("nodes of the graph", "", "growth", 0.0),
    "bytes": GuardedFigure("size of the model file", "bytes", "growth_share", 0.02),
    "speed": GuardedFigure(
        "times as fast as the other model", "", "drop_share", 0.15, "`speed_against`"
    ),
}
DIGESTS = {
    "references": "the recorded inputs, outputs and tolerances",
    "weights": "the weights",
}
"""What a baseline holds SHA-256 digests of: key -> its description."""

_SPEED_SETTINGS = {"against": str, "size": list}


def list_guarded_items() -> dict[str, GuardedFigure]:
    """Return all items that a baseline can contain, with those of the tasks."""
    qualities = (quality.items for quality in task_qualities().values())
    own = {name: item for each in qualities for name, item in each.items()}
    return {**_REFERENCE_ITEMS, **own, **_FILE_ITEMS}


def _setting_types() -> dict[str, Mapping[str, type]]:
    own = {name: quality.settings for name, quality in task_qualities().items()}
    return {**own, "speed": _SPEED_SETTINGS}


@dataclass(frozen=True)
class Accepted:
    """An accepted figure and its tolerance."""

    accepted: float
    tolerance: float


@dataclass(frozen=True)
class Baseline:
    """The accepted figures of a model.

    Attributes:
        model: Name of the model file, for display.
        items: Name among `list_guarded_items` -> the figure.
        settings: How figures were measured. ``speed``: ``against`` (a file name), ``size`` [height,
            width]; others as the qualities of the tasks say.
        metadata: The model's metadata as `without_provenance` returns them; None: not recorded.
        digests: Key of `DIGESTS` -> SHA-256; those that were not recorded are absent.
        outputs: An input and the outputs of the accepted file; None: not recorded.
    """

    model: str
    items: Mapping[str, Accepted]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, str] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    outputs: ReferenceCase | None = None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the baseline, at once or not at all.

        Raises:
            NystraError: The file cannot be written.
        """
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "items": {name: vars(item) for name, item in self.items.items()},
        }
        if self.metadata is not None:
            document["metadata"] = self.metadata
        if self.digests:
            document["digests"] = self.digests
        if self.outputs is not None:
            document["outputs"] = encode_case(self.outputs)
        document |= {key: values for key, values in self.settings.items() if values}
        atomic_write_bytes(path, stable_json(document))


def read_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Read a baseline.

    Raises:
        NystraError: The file is missing, not JSON, of another schema version, or holds a key
            that is unknown or of the wrong type; the message names it.
    """
    if not is_there(path, "the baseline"):
        raise NystraError(
            f"no baseline at {path}: write one from the current figures with `update`; "
            "see docs/ci.md"
        )
    value = read_json(path, "the baseline")
    where = f"the baseline {path}"
    way_out = "name a file that nystra check --update wrote"
    value = require_version(value, where, SCHEMA_VERSION, way_out)
    if "items" not in value:  # such as a manifest, the name of which is that of the model
        raise NystraError(f"{path} is no baseline, since it has no items: {way_out}, or a new one")
    types = _setting_types()
    allowed = {"schema_version", "model", "items", "metadata", "digests", "outputs", *types}
    require_keys(value, where, allowed, ["model"])
    if not isinstance(value["model"], str):
        raise NystraError(f"{where}: model is {quote(value['model'])}, expected a string")
    require_keys(value["items"], f"{where}, items", list_guarded_items())
    accepted = {name: _read_item(f"{where}, {name}", item) for name, item in value["items"].items()}
    settings = {
        key: _settings(f"{where}, {key}", value[key], key, types[key])
        for key in types
        if value.get(key) is not None
    }
    needed = {key: next(iter(quality.items)) for key, quality in task_qualities().items()}
    for key, name in (needed | {"speed": "speed"}).items():
        if name in accepted and not settings.get(key):
            raise NystraError(f"{where} has the item {name} and no {key!r} that says how it was")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict | None) or not all(
        isinstance(text, str) for text in (metadata or {}).values()
    ):
        raise NystraError(
            f"{where}: metadata is {quote(metadata)}, expected an object whose values are strings"
        )
    digests = require_keys(value.get("digests", {}), f"{where}, digests", DIGESTS)
    for key, digest in digests.items():
        if not isinstance(digest, str):
            raise NystraError(f"{where}, digests: {key} is {quote(digest)}, expected a string")
    outputs = None
    if "outputs" in value:
        outputs = decode_case(value["outputs"], f"{where}, outputs")
    return Baseline(value["model"], accepted, settings, metadata, digests, outputs)


def _read_item(where: str, value: Any) -> Accepted:
    both = ("accepted", "tolerance")
    record = require_keys(value, where, both, both)
    for key, number in record.items():
        if not is_number(number) or (key == "tolerance" and number < 0):
            raise NystraError(
                f"{where}: {key} is {quote(number)}, expected a number, and tolerances of 0 or more"
            )
    return Accepted(float(record["accepted"]), float(record["tolerance"]))


def _settings(where: str, value: Any, key: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    record = require_keys(value, where, kinds, kinds)
    for name, kind in kinds.items():
        if not isinstance(record[name], kind):
            got = quote(record[name])
            raise NystraError(f"{where}: {name} is {got}, expected {kind.__name__}")
    if key == "speed":
        size = record["size"]
        if len(size) != 2 or not all(is_whole(side) and side > 0 for side in size):
            raise NystraError(f"{where}: size is {quote(size)}, expected [height, width]")
    return record
