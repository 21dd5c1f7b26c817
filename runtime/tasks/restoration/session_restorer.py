"""A loaded model file as a restorer of images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.examples import example_array
from ....core.ports.pixels import from_port, to_port
from ....core.ports.port import CONDITION, UNIT, UNKNOWN, image_size
from ...session import Session
from ...tiling.memory_meter import MemoryMeter
from ...tiling.run_tiled import fill_batch
from .auxiliary_roles import AUXILIARY_ROLES
from .probing import Probed, padded, probe
from .restorer import Restorer


def restorer_for(session: Session) -> Restorer:
    """Return a session as a restorer of images.

    Properties that another program's file does not state are found by runs on small gray images,
    see `probing`.

    Raises:
        NystraError: The inputs of the model are not one image and inputs with a role of
            `AUXILIARY_ROLES` in ``nystra.io``, or its output is not one image.
    """
    meter = memory_meter(session)
    facts = session.facts
    image, restored = facts.image, facts.output_image
    known = {*AUXILIARY_ROLES, CONDITION}
    auxiliary = tuple(port for port in facts.inputs if port.role in known)
    if restored is not None and restored.role not in ("picture", UNKNOWN):
        raise NystraError(
            f"{session.path} returns {restored.role} instead of an image, as a model of the "
            f"task {facts.task!r} does: use nystra run or nystra validate"
        )
    if image is None or restored is None or 1 + len(auxiliary) != len(facts.inputs):
        described = [f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in session.inputs]
        raise NystraError(
            f"{session.path} does not take one image, (1, C, H, W) or (1, H, W, C), and nothing "
            f"else: its inputs are {described}. Run it from Python with nystra.runtime.Session."
        )
    fixed = None if image.sides is None else (image.sides["height"], image.sides["width"])
    batch = image.lengths.get("batch", 1)
    ports = {port.name: port for port in facts.inputs}

    def runs(release: bool) -> Callable[..., Array]:
        def run(planes: Array, **others: Array) -> Array:
            given = {image.name: planes, **others}
            feeds = {
                name: to_port(array, ports[name])
                if ports[name].role != CONDITION
                else np.repeat(array, len(planes) // len(array), axis=0)
                for name, array in given.items()
            }
            return from_port(session.run(feeds, release=release)[restored.name], restored)

        return run if batch == 1 else fill_batch(run, batch)

    function, trial = runs(release=False), runs(release=True)
    scale, inputs, outputs = facts.scale, image.channels, restored.channels
    ranges = (image.range, restored.range)
    if scale is None or inputs is None or outputs is None or None in ranges:

        def tried(planes: Array) -> Array:
            examples = {
                port.name: example_array(port, image_size(*planes.shape[2:])) for port in auxiliary
            }
            values = {
                name: from_port(array, ports[name]) if ports[name].has_sides else array
                for name, array in examples.items()
            }
            return trial(planes, **{name: array[:1] for name, array in values.items()})

        probed = probe(session.path, tried, inputs, fixed, ranges)
        if probed.multiple > 1:
            function, trial = (
                padded(run, probed.multiple, probed.scale) for run in (function, trial)
            )
    else:
        probed = Probed(
            scale,
            inputs,
            outputs,
            image.multiple,
            facts.size_minimum,
            fixed,
            image.range or UNIT,
            restored.range or UNIT,
        )
    return Restorer(
        function,
        probed.scale,
        probed.inputs,
        probed.outputs,
        probed.input_range,
        probed.output_range,
        probed.multiple,
        probed.minimum,
        facts.tiling,
        probed.fixed,
        auxiliary,
        facts.quadratic_bytes,
        batch,
        meter,
        trial,
        tile_psnr=facts.tile_psnr,
    )


def memory_meter(session: Session) -> MemoryMeter | None:
    """Return a meter of a model's memory in this process; None if it uses other memory."""
    if not session.kind.measures_memory:
        return None
    square = session.facts.quadratic_bytes
    linear_only = not session.facts.foreign and square == 0
    return MemoryMeter(square, linear_only=linear_only, compiles=session.kind.compiles)
