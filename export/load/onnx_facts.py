"""Inputs and outputs of another program's file, determined by running it in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError, UnsupportedModelError
from ...core.ports.examples import example_arrays, own_sizes
from ...core.ports.pixels import from_port, to_port
from ...core.ports.port import (
    ARRAY_AXES,
    CONDITION,
    IMAGE_AXES,
    LOGITS_AXES,
    NUMBER_AXES,
    PER_TOKEN_AXES,
    SIDES,
    TOKENS_AXES,
    UNIT,
    VECTOR_AXES,
    Port,
)
from ...models.facts import Facts
from ...runtime.session import Session
from ...runtime.tasks.restoration.probing import Probed, is_batched, probe
from .channels_first import channels_first, has_channels_last
from .file_type import ARCHITECTURE

"""The architecture of a network that is known by its graph only."""

_CHANNELS = 3
_OTHER_SIDES = (224, 48, 32, 64, 96, 112, 128, 192, 256, 299, 320, 384, 448, 512, 640)
"""Sides of the images that a file is tried with that returns no image."""

_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class _Trial:
    """Runs of a file on images; its other inputs get examples, the same ones for every image.

    Attributes:
        path: The file.
        session: It, loaded.
        image: Its image, channels first.
        others: Its other inputs, those with sides channels first.
        picture: Its output as the file states it, if that is turned to channels first.
    """

    path: Path
    session: Session
    image: Port
    others: tuple[Port, ...]
    picture: Port | None = None

    def __call__(self, pixels: Array) -> Array:
        """Return the output for images (B, C, H, W).

        Raises:
            NystraError: The file fails for these.
        """
        size = dict(zip(self.image.axes, pixels.shape, strict=True))
        del size["channels"]
        one = {**size, "batch": 1}
        examples = example_arrays(self.others, own_sizes(self.others, one))
        for port in self.others:
            if "batch" in port.axes and "batch" not in port.lengths:
                batch = port.axes.index("batch")
                images = len(pixels)
                examples[port.name] = np.repeat(examples[port.name], images, axis=batch)
        feeds = {self.image.name: pixels, **examples}
        for port in self.session.facts.inputs:
            if has_channels_last(port):
                feeds[port.name] = to_port(feeds[port.name], port)
        results = self.session.run(feeds)
        output = next(iter(results.values()))
        return output if self.picture is None else from_port(output, self.picture)


@dataclass(frozen=True)
class FileFacts:
    """What was determined about a file.

    Attributes:
        facts: The facts, of images (B, C, H, W).
        inputs: Which inputs it has beside its image, and whether its images are (B, H, W, C), in a
            sentence each.
        sizes: Which of its free axes run at one length only, in a sentence.
        channels_last: The inputs and outputs that are (B, H, W, C) in the file.
    """

    facts: Facts
    inputs: tuple[str, ...]
    sizes: tuple[str, ...]
    channels_last: tuple[str, ...]


def facts_of(path: Path) -> FileFacts:
    """Return the facts of a file from an image to an image, to logits or to another array.

    The first input of four axes, and not one channel, is the image. Others of one channel are
    masks, of more channels references; inputs of fewer axes are conditions.

    Raises:
        NystraError: It fails at every size that was tried.
        UnsupportedModelError: It has other inputs or outputs.
    """
    session = Session(path, library=None)
    image, *others = _ports(path, session)
    result = session.facts.outputs[0]
    run = _Trial(path, session, image, tuple(others))
    try:
        facts = _measure(run, result)
    except NystraError:
        if not any(port.own_size for port in others):
            raise
        same = tuple(replace(port, own_size=False) for port in others)
        run = replace(run, others=same)
        facts = _measure(run, result)
    if facts.outputs[0].role == "picture":
        run = replace(run, picture=result)
    facts = _with_real_batch(run, facts)
    notes = [f"its input {port.name} is read as a {port.role}, by its shape" for port in others]
    channels_last = [port for port in session.facts.inputs if has_channels_last(port)]
    if run.picture is not None and has_channels_last(run.picture):
        channels_last.append(run.picture)
    if channels_last:
        names = ", ".join(port.name for port in channels_last)
        notes.append(
            f"{names} of the written file has the axes ({', '.join(IMAGE_AXES)}), not "
            f"({', '.join(channels_last[0].axes)}): programs that feed it turn their images"
        )
    return FileFacts(
        facts,
        tuple(notes),
        _describe_fixed_axes(image, facts),
        tuple(port.name for port in channels_last),
    )


def _describe_fixed_axes(image: Port, facts: Facts) -> tuple[str, ...]:
    read = facts.inputs[0].lengths
    further = {*read} - {*image.lengths, "channels"}
    fixed = [axis for axis in image.axes if axis in further]
    if not fixed:
        return ()
    lengths = ", ".join(f"{axis} {read[axis]}" for axis in fixed)
    return (f"its free axes run at {lengths} only, so they are read as fixed",)


def _measure(run: _Trial, result: Port) -> Facts:
    if len(result.axes) == len(IMAGE_AXES):
        with suppress(NystraError):
            return _restorer(replace(run, picture=result), result)
    return _other(run, result)


def _ports(path: Path, session: Session) -> list[Port]:
    """Return the ports of the inputs of a file, the image first; channels come before sides."""
    ports = [channels_first(port) for port in session.facts.inputs]
    maps = [port for port in ports if len(port.axes) == len(IMAGE_AXES)]
    maps = [port for port in maps if port.dtype.startswith("float")]
    colored = [port for port in maps if port.channels != 1]
    images = [port for port in ports if port.role == "image"]
    image = (images or colored or maps or ports)[0]
    if image.role != "image" and image not in maps:
        raise UnsupportedModelError(
            f"{path} takes {image.name!r} of {len(image.axes)} axes, expected one image "
            "(batch, channels, height, width); see docs/own.md"
        )
    if image.axes != IMAGE_AXES or not image.dtype.startswith("float"):
        raise UnsupportedModelError(
            f"{path} takes {image.dtype} ({', '.join(image.axes)}), expected floating numbers "
            f"({', '.join(IMAGE_AXES)}), or channels last: nystra run uses the file as it is; to "
            "export it, write it without the nodes that cast and squeeze"
        )
    sides = {}
    for tensor, port in zip(session.inputs, session.facts.inputs, strict=True):
        axes = [port.axes.index(axis) for axis in SIDES if port.has_sides]
        sides[tensor.name] = [tensor.shape[axis] for axis in axes]
    others = []
    for port in ports:
        if port is image:
            continue
        other = _beside_image(path, port)
        if port.axes == IMAGE_AXES:
            own_size = sides[port.name] != sides[image.name]
            other = replace(other, own_size=own_size)
        others.append(other)
    image = replace(image, role="image", dtype="float32", own_size=False)
    return [image, *others]


def _beside_image(path: Path, port: Port) -> Port:
    dtype = "float32" if port.dtype.startswith("float") else port.dtype
    if port.axes == IMAGE_AXES and dtype == "float32":
        role = "mask" if port.channels == 1 else "reference"
        return replace(port, role=role, dtype=dtype, range=UNIT)
    lengths_are_fixed = set(port.axes[1:]) <= set(port.lengths)
    per_token = dtype == "bool" or not lengths_are_fixed
    pair = PER_TOKEN_AXES if per_token else VECTOR_AXES
    axes_of_rank = {1: NUMBER_AXES, 2: pair, 3: TOKENS_AXES}
    axes = axes_of_rank.get(len(port.axes))
    if axes is None or dtype not in ("float32", "int32", "int64", "bool"):
        raise UnsupportedModelError(
            f"{path} takes {port.name!r}, {port.dtype} ({', '.join(port.axes)}), beside its image: "
            "expected another image (batch, channels, height, width), or numbers for each image: "
            "(batch), (batch, numbers), (batch, tokens) or (batch, tokens, numbers); see "
            "docs/own.md"
        )
    lengths = {
        axis: port.lengths[old]
        for axis, old in zip(axes, port.axes, strict=True)
        if old in port.lengths
    }
    return Port(port.name, CONDITION, axes, lengths, range=None, dtype=dtype)


def _with_real_batch(run: _Trial, facts: Facts) -> Facts:
    image = facts.inputs[0]
    if "batch" in image.lengths:
        return facts
    two_images = {**facts.test_size(), "batch": 2}
    if is_batched(run, image.shape(two_images)):
        return facts
    one = {"batch": 1}
    inputs = [replace(port, lengths={**port.lengths, **one}) for port in facts.inputs]
    outputs = [replace(port, lengths={**port.lengths, **one}) for port in facts.outputs]
    return replace(facts, inputs=tuple(inputs), outputs=tuple(outputs))


def _restorer(run: _Trial, result: Port) -> Facts:
    image = run.image
    batch = image.lengths.get("batch", 1)

    def function(pixels: Array) -> Array:
        return run(np.repeat(pixels, batch, axis=0))

    sides = image.sides
    fixed = None if sides is None else (sides["height"], sides["width"])
    if fixed is None and set(SIDES) & set(image.lengths):
        raise UnsupportedModelError(f"{run.path} fixes one side of its image and not the other")
    probed = probe(run.path, function, image.channels, fixed)
    lengths = {**image.lengths, "channels": probed.inputs}
    if probed.fixed is not None:
        lengths |= dict(zip(SIDES, probed.fixed, strict=True))
    return Facts(
        architecture=ARCHITECTURE,
        task="restoration",
        inputs=(
            replace(image, lengths=lengths, range=probed.input_range, multiple=probed.multiple),
            *(_beside(port, probed) for port in run.others),
        ),
        outputs=(
            Port(
                result.name,
                "picture",
                lengths={"channels": probed.outputs},
                range=probed.output_range,
                multiple=probed.scale,
            ),
        ),
        size_minimum=probed.minimum,
        pads=probed.multiple == 1,
        tiling="supported",
        license="unknown",
    )


def _beside(port: Port, probed: Probed) -> Port:
    if port.role == CONDITION:
        return port
    lengths = dict(port.lengths)
    if probed.fixed is not None and not port.own_size:
        lengths |= dict(zip(SIDES, probed.fixed, strict=True))
    value_range = UNIT if port.role == "mask" else probed.input_range
    return replace(port, lengths=lengths, range=value_range, multiple=probed.multiple)


def _other(run: _Trial, result: Port) -> Facts:
    path, image = run.path, run.image
    lengths = {"channels": _CHANNELS, **image.lengths}
    side, output = _first_size(run, replace(image, lengths=lengths))
    if not len(LOGITS_AXES) <= output.ndim <= len(ARRAY_AXES):
        raise UnsupportedModelError(
            f"{path} returns an array of {output.ndim} axes, expected {len(LOGITS_AXES)} to "
            f"{len(ARRAY_AXES)}, the batch first"
        )
    steps = {}
    for axis in SIDES:
        if axis not in image.lengths:
            part = replace(image, lengths=lengths)
            steps[axis] = _step(run, part, side, axis)
    fixed = {axis: side[axis] for axis, step in steps.items() if step is None}
    free_steps = [step for step in steps.values() if step is not None]
    multiple = max(free_steps, default=1)
    image = replace(image, lengths=lengths | fixed, multiple=multiple)
    classes = {"classes": output.shape[-1]}
    is_logits = result.axes == LOGITS_AXES
    axes = ARRAY_AXES[:1] + ARRAY_AXES[1 - output.ndim :]
    return Facts(
        architecture=ARCHITECTURE,
        task="classification" if is_logits else "other",
        inputs=(image, *run.others),
        outputs=(Port(result.name, "logits", axes, classes, range=None),),
        size_minimum=1 if len(fixed) == len(steps) else max(side.values()),
        pads=False,
        tiling="internal",
        license="unknown",
    )


def _first_size(run: _Trial, image: Port) -> tuple[dict[str, int], Array]:
    failure = NystraError("no sizes were tried")
    for side in _OTHER_SIDES:
        size = {axis: image.lengths.get(axis, side) for axis in SIDES}
        try:
            gray = np.full(image.shape(size), 0.5, np.float32)
            return size, run(gray)
        except NystraError as error:
            failure = error
    raise NystraError(f"a trial run of {run.path} failed: {failure}")


def _step(run: _Trial, image: Port, size: Mapping[str, int], axis: str) -> int | None:
    """Return what one side of an image has to be a multiple of; None if it is not free.

    A side that may be a little longer but not four times as long is not free.
    """
    for multiple in _MULTIPLES:
        if size[axis] % multiple:
            continue
        try:
            for longer in (size[axis] + multiple, 4 * size[axis]):
                shape = image.shape({**size, axis: longer})
                run(np.full(shape, 0.5, np.float32))
        except NystraError:
            continue
        return multiple
    return None
