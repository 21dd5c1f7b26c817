"""A loaded model file as something that takes pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from ..session import Session
from .fixed_batch import fill_batch
from .memory_meter import MemoryMeter
from .restorer import Restorer

_PROBE_SIZES = (32, 64, 128, 224, 256)

Array = npt.NDArray[Any]


def restorer_for(session: Session) -> Restorer:
    """Return a session as something that takes pictures.

    What a file by another program does not say is found by running it once on a small grey
    image: channels (3 first, then 1) and scale; its values are taken to be in 0..1.

    Raises:
        NystraError: The model does not take one image, with a mask or a reference where
            ``nystra.io`` names one, and give one picture.
    """
    meter = memory_meter(session)
    facts = session.facts
    image, picture = facts.image, facts.picture
    mask, reference = facts.input("mask"), facts.input("reference")
    taken = [port for port in (image, mask, reference) if port is not None]
    if picture is not None and picture.role == "logits":
        raise NystraError(
            f"{session.path} gives logits, no picture: nystra run says the classes, nystra "
            "validate --labelled how often they are right"
        )
    if image is None or picture is None or len(taken) != len(facts.inputs):
        described = [f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in session.inputs]
        raise NystraError(
            f"{session.path} does not take one image (1, C, H, W) of floating numbers and nothing "
            f"else: its inputs are {described}. Run it from Python with nystra.runtime.Session."
        )
    fixed = None if image.sides is None else (image.sides["height"], image.sides["width"])
    batch = image.lengths.get("batch", 1)
    name = image.name

    def run_and_release(image: Array, **others: Array) -> Array:
        made = session.run({name: image, **others}, release=True)
        return made[session.outputs[0].name]

    function, trial = (
        run if batch == 1 else fill_batch(run, batch) for run in (session, run_and_release)
    )
    scale, inputs, outputs = facts.scale, image.channels, picture.channels
    if scale is None or inputs is None or outputs is None:
        scale, inputs, outputs = _probe(session, trial, inputs, fixed)
    return Restorer(
        function,
        scale,
        inputs,
        outputs,
        image.range or (0.0, 1.0),
        picture.range or (0.0, 1.0),
        image.multiple,
        facts.size_minimum,
        facts.tiling,
        fixed,
        None if mask is None else mask.name,
        None if reference is None else reference.name,
        facts.quadratic_bytes,
        batch,
        meter,
        trial,
    )


def memory_meter(session: Session) -> MemoryMeter | None:
    """Return what measures a model in the memory of this process; None on other devices."""
    if session.backend != "ort-cpu":
        return None
    square = session.facts.quadratic_bytes
    return MemoryMeter(square, linear_only=not session.facts.foreign and square == 0)


def _probe(
    session: Session,
    function: Callable[..., Array],
    known: int | None,
    fixed: tuple[int, int] | None,
) -> tuple[int, int, int]:
    sizes = [fixed] if fixed is not None else [(size, size) for size in _PROBE_SIZES]
    failure: NystraError | None = None
    for height, width in sizes:
        for channels in (3, 1) if known is None else (known,):
            try:
                got = function(np.full((1, channels, height, width), 0.5, np.float32))
            except NystraError as error:
                failure = failure or error
                continue
            return _probed(session, (channels, height, width), got.shape)
    raise NystraError(f"a trial run of {session.path} failed: {failure}")


def _probed(
    session: Session, given: tuple[int, int, int], got: tuple[int, ...]
) -> tuple[int, int, int]:
    channels, height, width = given
    scale = got[2] // height if len(got) == 4 else 0
    if len(got) != 4 or scale < 1 or got[2:] != (height * scale, width * scale):
        raise NystraError(
            f"{session.path} made {got} of an image of {(1, *given)}, expected a picture of the "
            "same size or a whole multiple of it"
        )
    return scale, channels, got[1]
