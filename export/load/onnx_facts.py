"""Inputs and outputs of another program's file, determined by running it in onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError, UnsupportedModelError
from ...core.ports.port import IMAGE_AXES, LOGITS_AXES, SIDES, Port
from ...models.facts import Facts
from ...runtime.session import Session
from ...runtime.tasks.restoration.probing import probe

ARCHITECTURE = "onnx"
"""The architecture of a network that is known by its graph only."""

_CLASSIFIER_SIDE = 224
_CLASSIFIER_MULTIPLE = 32
_CHANNELS = 3


def facts_of(path: Path) -> tuple[Facts, tuple[str, ...]]:
    """Return the facts of a file from one image to one image or to logits.

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
    if result.axes == LOGITS_AXES:
        facts = _classifier(session, image, result)
    else:
        facts = _restorer(path, session, image, result)
    facts = _with_real_batch(session, facts)
    read = facts.inputs[0].lengths
    fixed = [f"{axis} {read[axis]}" for axis in image.axes if axis in {*read} - {*image.lengths}]
    fixed = [text for text in fixed if not text.startswith("channels")]
    if not fixed:
        return facts, ()
    return facts, (
        f"its free axes run at {', '.join(fixed)} only, so it is read as a file of that size",
    )


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


def _classifier(session: Session, image: Port, result: Port) -> Facts:
    lengths = {"channels": _CHANNELS, **image.lengths}
    image = replace(image, lengths=lengths)
    side = image.sides or dict.fromkeys(SIDES, _CLASSIFIER_SIDE)
    made = session(np.full(image.shape(side), 0.5, np.float32))
    if image.sides is None:
        image = replace(image, multiple=_CLASSIFIER_MULTIPLE)
        if not _takes_another_size(session, image):
            image = replace(image, lengths=lengths | side)
    classes = {"classes": made.shape[1]}
    return Facts(
        architecture=ARCHITECTURE,
        task="classification",
        inputs=(image,),
        outputs=(Port(result.name, "logits", LOGITS_AXES, classes, range=None),),
        size_minimum=_CLASSIFIER_SIDE if image.sides is None else 1,
        pads=False,
        tiling="internal",
        license="unknown",
    )


def _takes_another_size(session: Session, image: Port) -> bool:
    side = _CLASSIFIER_SIDE + _CLASSIFIER_MULTIPLE
    try:
        session(np.full(image.shape(dict.fromkeys(SIDES, side)), 0.5, np.float32))
    except NystraError:
        return False
    return True
