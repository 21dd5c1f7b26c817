"""Whether a file is the exported one, which its outputs alone cannot show.

A changed range or scale in the metadata does not change the outputs but ruins every image; a
changed constant in an operator's body has no effect if a kernel runs instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...core.errors import BackendUnavailableError
from ...core.ports.port import SIDES
from ..model.manifest import Manifest
from ..model.onnx_header import read_onnx_header
from ..model.references import RECORDED_METADATA, References
from ..session import Session


def find_changes(session: Session, references: References) -> list[str]:
    """Return a sentence for every difference between a file and what was exported.

    The hashes of a manifest next to it are checked, its metadata if the references recorded them,
    and its scale if it has one.

    Raises:
        NystraError: The manifest next to the file cannot be read.
    """
    manifest = Manifest.for_model(session.path)
    changes = [] if manifest is None else manifest.problems(session.path.parent)
    recorded = references.meta.get(RECORDED_METADATA)
    if isinstance(recorded, dict):
        changes += metadata_changes(recorded, session.metadata, "recorded")
    return changes + _scale_changes(session, references)


def is_listed(session: Session) -> bool:
    """Return whether a manifest next to a file lists its hash, which `find_changes` looks at.

    Raises:
        NystraError: The manifest cannot be read.
    """
    manifest = Manifest.for_model(session.path)
    return manifest is not None and session.path.name in manifest.files


def metadata_changes(
    before: Mapping[str, str], now: Mapping[str, str], word: str = "accepted"
) -> list[str]:
    """Return a sentence for every metadata entry that was changed."""
    return [
        f"its metadata entry {key} is {_excerpt(now.get(key), before.get(key))}, {word} was "
        f"{_excerpt(before.get(key), now.get(key))}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


def bodies_of(session: Session) -> Session | None:
    """Return the model on its operators' bodies if the session runs kernels instead.

    None if it runs the bodies already, if the file has none, if the backend runs none or refuses
    these, and with a requested precision, in which bodies round at every step.
    """
    if session.library is None or not session.kind.bodies:
        return None
    if session.precision is not None:
        return None
    if not read_onnx_header(session.path).functions:
        return None
    try:
        return Session.open(replace(session.spec, library="none"))
    except BackendUnavailableError:
        return None


def _scale_changes(session: Session, references: References) -> list[str]:
    scale, image, restored = session.facts.scale, session.facts.image, session.facts.output_image
    if scale is None or image is None or restored is None or not set(SIDES) <= {*restored.axes}:
        return []
    changes = []
    for case in references.cases:
        if image.name not in case.inputs or restored.name not in case.outputs:
            continue
        input_sides = case.inputs[image.name].shape[-2:]
        output_sides = case.outputs[restored.name].shape[-2:]
        if output_sides != tuple(side * scale for side in input_sides):
            sizes = " to ".join("x".join(map(str, sides)) for sides in (input_sides, output_sides))
            changes.append(f"its metadata entry scale is {scale}, and its images go from {sizes}")
    return changes


def _excerpt(value: str | None, other: str | None) -> str:
    """Return a value, or the part of a long one around its first difference from the other."""
    if value is None:
        return "absent"
    if len(value) <= 60:
        return repr(value)
    pairs = zip(value, other or "", strict=False)
    same = next((place for place, (first, second) in enumerate(pairs) if first != second), 0)
    return f"...{value[max(0, same - 20) : same + 40]!r}..."
