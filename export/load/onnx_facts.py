"""Inputs and outputs of another program's file, determined by running it in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError, UnsupportedModelError
from ...core.ports.port import ARRAY_AXES, IMAGE_AXES, LOGITS_AXES, SIDES, Port
from ...models.facts import Facts
from ...runtime.session import Session
from ...runtime.tasks.restoration.probing import probe

ARCHITECTURE = "onnx"
"""The architecture of a network that is known by its graph only."""

_CHANNELS = 3
_OTHER_SIDES = (224, 48, 32, 64, 96, 112, 128, 192, 256, 299, 320, 384, 448, 512, 640)
"""Sides of the images that a file is tried with that returns no image."""

_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)


def facts_of(path: Path) -> tuple[Facts, tuple[str, ...]]:
    """Return the facts of a file from one image to one image, to logits or to another array.

    The second value says, in a sentence, which free axes of the file run at one length only.

    Raises:
        NystraError: It fails at every size that was tried.
        UnsupportedModelError: It has other inputs or outputs.
    """
    session = Session(path, library=None)
    image, result = session.facts.inputs[0], session.facts.outputs[0]
    if image.role != "image":
        raise UnsupportedModelError(
            f"{path} takes {image.name!r} of {len(image.axes)} axes, expected one image "
            "(batch, channels, height, width); see docs/own.md"
        )
    if image.axes != IMAGE_AXES or not image.dtype.startswith("float"):
        raise UnsupportedModelError(
            f"{path} takes {image.dtype} ({', '.join(image.axes)}), expected floating numbers "
            f"({', '.join(IMAGE_AXES)}): nystra run uses the file as it is; to export it, write it "
            "without the nodes that cast and transpose"
        )
    image = replace(image, dtype="float32")
    facts = None
    if len(result.axes) == len(IMAGE_AXES):
        with suppress(NystraError):
            facts = _restorer(path, session, image, result)
    if facts is None:
        facts = _other(path, session, image, result)
    facts = _with_real_batch(session, facts)
    read = facts.inputs[0].lengths
    fixed = [f"{axis} {read[axis]}" for axis in image.axes if axis in {*read} - {*image.lengths}]
    fixed = [text for text in fixed if not text.startswith("channels")]
    if not fixed:
        return facts, ()
    return facts, (f"its free axes run at {', '.join(fixed)} only, so they are read as fixed",)


def _with_real_batch(session: Session, facts: Facts) -> Facts:
    """Return facts with a batch of 1 if the file fails for two images."""
    image = facts.inputs[0]
    if "batch" in image.lengths:
        return facts
    try:
        session(np.full(image.shape({**facts.test_size(), "batch": 2}), 0.5, np.float32))
    except NystraError:
        one = {"batch": 1}
        inputs, outputs = (
            tuple(replace(port, lengths={**port.lengths, **one}) for port in ports)
            for ports in (facts.inputs, facts.outputs)
        )
        return replace(facts, inputs=inputs, outputs=outputs)
    return facts


def _restorer(path: Path, session: Session, image: Port, result: Port) -> Facts:
    batch = image.lengths.get("batch", 1)

    def function(pixels: Array) -> Array:
        made: Array = session(np.repeat(pixels, batch, axis=0))
        return made

    known = image.sides
    fixed = None if known is None else (known["height"], known["width"])
    if fixed is None and set(SIDES) & set(image.lengths):
        raise UnsupportedModelError(f"{path} fixes one side of its image and not the other")
    found = probe(path, function, image.channels, fixed)
    lengths = {**image.lengths, "channels": found.inputs}
    if found.fixed is not None:
        lengths |= dict(zip(SIDES, found.fixed, strict=True))
    return Facts(
        architecture=ARCHITECTURE,
        task="restoration",
        inputs=(replace(image, lengths=lengths, range=found.input_range, multiple=found.multiple),),
        outputs=(
            Port(
                result.name,
                "picture",
                lengths={"channels": found.outputs},
                range=found.output_range,
                multiple=found.scale,
            ),
        ),
        size_minimum=found.minimum,
        pads=found.multiple == 1,
        tiling="supported",
        license="unknown",
    )


def _other(path: Path, session: Session, image: Port, result: Port) -> Facts:
    """Return the facts of a file that returns no image: logits, or any other array."""
    lengths = {"channels": _CHANNELS, **image.lengths}
    side, made = _first_size(path, session, replace(image, lengths=lengths))
    if not len(LOGITS_AXES) <= made.ndim <= len(ARRAY_AXES):
        raise UnsupportedModelError(
            f"{path} returns an array of {made.ndim} axes, expected {len(LOGITS_AXES)} to "
            f"{len(ARRAY_AXES)}, the batch first"
        )
    steps = {}
    for axis in SIDES:
        if axis not in image.lengths:
            steps[axis] = _step(session, replace(image, lengths=lengths), side, axis)
    fixed = {axis: side[axis] for axis, step in steps.items() if step is None}
    multiple = max([step for step in steps.values() if step is not None], default=1)
    is_logits = result.axes == LOGITS_AXES
    axes = ARRAY_AXES[:1] + ARRAY_AXES[1 - made.ndim :]
    return Facts(
        architecture=ARCHITECTURE,
        task="classification" if is_logits else "other",
        inputs=(replace(image, lengths=lengths | fixed, multiple=multiple),),
        outputs=(Port(result.name, "logits", axes, {"classes": made.shape[-1]}, range=None),),
        size_minimum=1 if len(fixed) == len(steps) else max(side.values()),
        pads=False,
        tiling="internal",
        license="unknown",
    )


def _first_size(path: Path, session: Session, image: Port) -> tuple[dict[str, int], Array]:
    """Return the first sides of an image that a file runs at, and its result.

    Raises:
        NystraError: There are none.
    """
    failure = NystraError("no sizes were tried")
    for side in _OTHER_SIDES:
        size = {axis: image.lengths.get(axis, side) for axis in SIDES}
        try:
            return size, session(np.full(image.shape(size), 0.5, np.float32))
        except NystraError as error:
            failure = error
    raise NystraError(f"a trial run of {path} failed: {failure}")


def _step(session: Session, image: Port, size: Mapping[str, int], axis: str) -> int | None:
    """Return what one side of an image has to be a multiple of; None if it is not free.

    A side that may be a little longer but not four times as long is not free.
    """
    for multiple in _MULTIPLES:
        if size[axis] % multiple:
            continue
        try:
            for longer in (size[axis] + multiple, 4 * size[axis]):
                session(np.full(image.shape({**size, axis: longer}), 0.5, np.float32))
        except NystraError:
            continue
        return multiple
    return None
