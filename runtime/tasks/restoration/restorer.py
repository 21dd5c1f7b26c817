"""A loaded model file as a restorer of images."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.examples import example_array
from ....core.ports.pixels import from_port, to_port
from ....core.ports.port import CONDITION, UNIT, UNKNOWN, image_size
from ...images.image_data import ImageData, luma_of, resize_plane
from ...images.images import describe_left_out, encode_image
from ...metrics.sanity import beyond_doubt, contrast_doubt, find_problems
from ...options import RANGE
from ...session import Session
from ...tiling.memory_meter import MemoryMeter
from ...tiling.run_tiled import fill_batch
from ...tiling.tile_plan import even_tile, mirror_to
from ...tiling.tiled_network import DISCOURAGED, TiledNetwork
from ..result import UnusableOutputError
from .auxiliary_roles import AUXILIARY_ROLES, check_same_size, match_inputs, planes_of
from .conditions import condition_values, refuse_unequal
from .probing import Probed, pad_to_multiple, probe, shows_pictures

_RANGES = ("0..255", "-1..1", "0..1,0..255")
"""What networks of images take and return besides 0..1; by the last only the output has 0..255."""


@dataclass(frozen=True)
class Restorer(TiledNetwork):
    """A network whose channels, 1 or 3 in and out, are those of an image."""

    def __post_init__(self) -> None:
        """Refuse channel counts other than 1 and 3."""
        for name, channels in (("takes", self.input_channels), ("gives", self.output_channels)):
            if channels not in (1, 3):
                raise NystraError(
                    f"the model {name} {channels} channels, expected 1 (gray) or 3 (RGB). If they "
                    "are several images or a noise map, join them in Python: "
                    f"nystra.runtime.Session(MODEL)(np.concatenate(PARTS, axis=1)) takes and "
                    f"returns arrays (1, C, H, W) in the range of the model"
                )

    def __call__(
        self,
        pixels: Array,
        tile: int = 0,
        overlap: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        auxiliary: Mapping[str, Array] = MappingProxyType({}),
        max_memory: int | None = None,
    ) -> tuple[npt.NDArray[np.float32], int]:
        """Run the model on an image's pixels.

        A gray image goes into a 3-channel model three times and comes out as gray (luma
        weights of BT.601); the channels of a color image go through a 1-channel model one by one;
        a model from gray to color gets its luma only.

        Args:
            pixels: (H, W, C) in 0..1, C 1 or 3.
            tile: Side of the tiles in input pixels; 0 chooses by the available memory.
            overlap: Overlap of the tiles in input pixels; None is 32, less where the tile is small.
            progress: Called with (tiles done, tiles in total).
            auxiliary: Pixels (H, W, C) in 0..1 of each further input, by its name: of a mask 1 in
                the hole and 0 elsewhere; of a condition its values, without a batch.
            max_memory: Memory limit of this process in bytes; None is the available memory.

        Returns:
            (H * scale, W * scale, C') in the model's output range mapped to 0..1, not clipped;
            and the number of tiles that were run.

        Raises:
            NystraError: The sizes contradict each other, an input is missing or one too many, the
                memory does not suffice, or the model fails.
        """
        if self.input_channels == 1 and self.output_channels == 3 and pixels.shape[2] == 3:
            pixels = luma_of(pixels)[:, :, None]
        channels = pixels.shape[2]
        image = np.ascontiguousarray(np.moveaxis(pixels, 2, 0)[None], dtype=np.float32)
        height, width = image.shape[2:]
        minimum = self.size_minimum if self.fixed_size is None else 1
        image = mirror_to(image, max(height, minimum), max(width, minimum))
        others = self._others(image, (height, width), auxiliary)
        maps = [others[port.name] for port in self.auxiliary if port.has_sides]
        if maps and self.fixed_size is not None:
            image = mirror_to(image, *self.fixed_size)
        area = max(array[0, 0].size for array in (image, *maps))
        side, shared = self.choose_tiles(image.shape[2:], area, tile, overlap, max_memory)
        if tile == 0 and isinstance(side, int):  # chosen here, for this image alone
            minimum = self.size_minimum
            side = even_tile(image.shape[2:], side, shared, self.size_multiple, minimum)
        if channels > self.input_channels:
            parts = [image[:, i : i + 1] for i in range(channels)]
        elif channels < self.input_channels:
            parts = [np.repeat(image, self.input_channels, axis=1)]
        else:
            parts = [image]
        count = 0
        results = []
        for index, part in enumerate(parts):

            def step(done: int, total: int, index: int = index) -> None:
                nonlocal count
                count = index * total + done
                if progress is not None:
                    progress(index * total + done, len(parts) * total)

            results.append(self.run(part, side, shared, step, others))
        output = np.concatenate([r[:, :1] for r in results], 1) if len(parts) > 1 else results[0]
        cropped = output[0, :, : height * self.scale, : width * self.scale]
        restored = np.ascontiguousarray(np.moveaxis(cropped, 0, 2))
        if channels < self.input_channels and restored.shape[2] == 3:
            restored = luma_of(restored)[:, :, None]
        return restored, count

    def _others(
        self, image: Array, size: tuple[int, int], auxiliary: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the inputs other than the image (1, C, H, W) as the model takes them.

        Args:
            image: Mirrored up to the least size.
            size: Height and width of the image.
            auxiliary: As in `__call__`.
        """
        matched = match_inputs(self.auxiliary, auxiliary)
        maps = [port for port in self.auxiliary if port.has_sides]
        values = {
            port.name: condition_values(port, matched[port.name])[None]
            for port in self.auxiliary
            if not port.has_sides
        }
        refuse_unequal([port for port in self.auxiliary if port.name in values], values)
        for port in maps:
            if AUXILIARY_ROLES[port.role].same_size:
                check_same_size(matched[port.name].shape, size, f"the {port.role}")
        arrays = {port.name: planes_of(port, matched[port.name]) for port in maps}
        if arrays:
            for array in (image, *arrays.values()):
                self.refuse_larger(array.shape[2:])
        for port in maps:
            if self.fixed_size is not None or AUXILIARY_ROLES[port.role].same_size:
                target = self.fixed_size or image.shape[2:]
                arrays[port.name] = mirror_to(arrays[port.name], *target)
        return arrays | values


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
    roles = {*AUXILIARY_ROLES, CONDITION}
    auxiliary = tuple(port for port in facts.inputs if port.role in roles)
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
            arrays = {image.name: planes, **others}
            feeds = {
                name: to_port(array, ports[name])
                if ports[name].role != CONDITION
                else np.repeat(array, len(planes) // len(array), axis=0)
                for name, array in arrays.items()
            }
            return from_port(session.run(feeds, release=release)[restored.name], restored)

        return run if batch == 1 else fill_batch(run, batch)

    function, trial = runs(release=False), runs(release=True)
    scale, inputs, outputs = facts.scale, image.channels, restored.channels
    ranges = (image.range, restored.range)
    if scale is None or inputs is None or outputs is None or None in ranges:

        def run_trial(planes: Array) -> Array:
            examples = {
                port.name: example_array(port, image_size(*planes.shape[2:])) for port in auxiliary
            }
            values = {
                name: from_port(array, ports[name]) if ports[name].has_sides else array
                for name, array in examples.items()
            }
            return trial(planes, **{name: array[:1] for name, array in values.items()})

        probed = probe(session.path, run_trial, inputs, fixed, ranges)
        if probed.multiple > 1:
            function, trial = (
                pad_to_multiple(run, probed.multiple, probed.scale) for run in (function, trial)
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


@dataclass(frozen=True)
class RestoredImage:
    """The output of a model for an image.

    Attributes:
        image: The result.
        tiles: Number of tiles that were run.
        warnings: Warnings about the result.
        seconds: Time of the model alone.
    """

    image: ImageData
    tiles: int
    warnings: list[str]
    seconds: float

    def encode(self, kind: str, quality: int | None, name: str) -> tuple[bytes, list[str]]:
        """Return the content of a file, as `encode_image`, and all warnings and notes."""
        content = encode_image(self.image, kind, quality=quality, name=name)
        return content, [*self.warnings, *self.image.notes, *describe_left_out(self.image, kind)]


def restore(restorer: Restorer, before: ImageData, name: str, **how: Any) -> RestoredImage:
    """Restore an image; alpha, profile and resolution are kept.

    Args:
        restorer: The model.
        before: The image.
        name: What to call it in the messages.
        **how: As `Restorer` takes it by name.

    Raises:
        UnusableOutputError: The output is not finite, or has another range than assumed.
        NystraError: The model fails.
    """
    begin = time.perf_counter()
    pixels, tiles = restorer(before.pixels, **how)
    seconds = time.perf_counter() - begin
    warnings = check_output(pixels, before.pixels, name, restorer)
    if tiles > 1 and restorer.tiling == DISCOURAGED:
        warnings.append(
            f"it was run in {tiles} tiles, which change the result of this model"
            f"{restorer.tile_loss}: give it more memory and omit `tile` to run it whole"
        )
    return RestoredImage(with_pixels(before, pixels), tiles, warnings, seconds)


def check_output(
    pixels: Array, source: Array, name: str, restorer: Restorer | None = None
) -> list[str]:
    """Return warnings about a model's output.

    Args:
        pixels: The output.
        source: The input: if it is flat, a flat output is correct.
        name: What to call the image in the messages.
        restorer: The model. If it makes a mask of a color image, takes further inputs, which may
            paint over the image, or makes a picture of a test picture, an output without contrast
            is only a warning.

    Raises:
        UnusableOutputError: It is not finite, or its range is another one than assumed.
    """
    findings = find_problems(pixels, "the model's output", source)
    if any(finding.kind != "flat" for finding in findings):
        text = "; ".join(finding.message for finding in findings)
        raise UnusableOutputError(f"{text} for {name}")
    doubt, flat = beyond_doubt(pixels), contrast_doubt(pixels, source)
    if flat and not doubt:
        if restorer is None or not (
            restorer.output_channels < restorer.input_channels
            or restorer.auxiliary
            or shows_pictures(restorer)
        ):
            doubt = flat
        elif not findings:
            return [flat]
    if doubt:
        used = restorer and RANGE.show((restorer.range, restorer.output_range))
        others = " or ".join(text for text in _RANGES if text != used)
        raise UnusableOutputError(
            f"{doubt} for {name}: the model takes or returns other values than {used or 'those'} "
            f"with which it was run. Try `range` {others}"
        )
    return [finding.message for finding in findings]


def with_pixels(before: ImageData, pixels: Array) -> ImageData:
    """Return an image with other pixels: its alpha resized, its profile kept if it fits."""
    size = (pixels.shape[0], pixels.shape[1])
    alpha = None if before.alpha is None else resize_plane(before.alpha, size)
    return replace(before, pixels=pixels, alpha=alpha).with_profile_of(before)
