"""One image to its restored image: for `nystra run` in all its forms, and for requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ....core.arrays import Array
from ....core.option import Options, option
from ....core.option_kinds import Choice
from ...images.image_data import ImageData, resize_plane
from ...images.images import SUFFIXES, encode_image, format_named, image_head, left_out
from ...metrics.sanity import beyond_doubt, contrast_doubt, find_problems
from ...options import OVERLAP, QUALITY, TILE
from ...session import Session
from ..answer import Answer, AnswerTensor, Files, UnusableOutputError, decode_role, file_tensor
from .auxiliary_inputs import auxiliary_arrays
from .probing import shows_pictures
from .restorer import Restorer
from .session_restorer import restorer_for

MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "TIFF": "image/tiff",
    "WebP": "image/webp",
}
"""Format of an image file -> its media type."""

DISCOURAGED = "discouraged"
"""Tiling of a model whose result depends on the tiles."""


@dataclass(frozen=True)
class RestoredImage:
    """The output of a model for an image.

    Attributes:
        image: The result.
        tiles: Number of tiles that were run.
        warnings: Warnings about the result.
    """

    image: ImageData
    tiles: int
    warnings: list[str]


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
    pixels, tiles = restorer(before.pixels, **how)
    warnings = check_output(pixels, before.pixels, name, restorer)
    if tiles > 1 and restorer.tiling == DISCOURAGED:
        warnings.append(
            f"it was run in {tiles} tiles, but the model uses means over the whole image, so the "
            f"result differs from that of a whole run{restorer.tile_loss}: give it more memory and "
            "omit `tile` to run it whole"
        )
    return RestoredImage(with_pixels(before, pixels), tiles, warnings)


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
        raise UnusableOutputError(
            f"{doubt} for {name}: the model takes or returns other values than it was run with. "
            "State them: `range` 0..255, or `range` 0..1,0..255 if only the output has 0..255"
        )
    return [finding.message for finding in findings]


def with_pixels(before: ImageData, pixels: Array) -> ImageData:
    """Return an image with other pixels: its alpha resized, its profile kept if it fits."""
    size = (pixels.shape[0], pixels.shape[1])
    alpha = None if before.alpha is None else resize_plane(before.alpha, size)
    return replace(before, pixels=pixels, alpha=alpha).with_profile_of(before)


@dataclass(frozen=True)
class RestoreParameters(Options):
    """The parameters of a request."""

    format: str | None = option(
        Choice(None, "of the answer", ("png", "jpg", "tif", "webp"), usual="the image's, else png")
    )
    quality: int | None = option(QUALITY)
    tile: int = option(TILE, usual="0, the service's own")
    overlap: int | None = option(OVERLAP)


@dataclass(frozen=True)
class RestorationAnswerer:
    """A model from images to images; see `Answerer`.

    Attributes:
        restorer: The model.
        output: Name of its output.
    """

    parameters: ClassVar[type[Options]] = RestoreParameters
    media_types: ClassVar[tuple[str, ...]] = tuple(MEDIA_TYPES.values())
    restorer: Restorer
    output: str

    @classmethod
    def open(cls, session: Session, name: str) -> RestorationAnswerer:
        """Return the answerer of an open session; see `restorer_for`."""
        return cls(restorer_for(session), session.facts.outputs[0].name)

    @property
    def tensors(self) -> tuple[AnswerTensor, ...]:
        """The restored image as a file."""
        return (AnswerTensor(self.output),)

    def __call__(
        self,
        files: Files,
        parameters: RestoreParameters,
        check: Callable[[], None] = lambda: None,
        max_pixels: int | None = None,
    ) -> Answer:
        """Return the restored image as a file; ``check`` is called after each tile."""
        before = decode_role(files, max_pixels=max_pixels)
        others = {key: decode_role(files, key, max_pixels) for key in files if key != "image"}
        auxiliary, warnings = auxiliary_arrays(self.restorer.auxiliary, others, before.size)
        restored = restore(
            self.restorer,
            before,
            "the image",
            tile=parameters.tile,
            overlap=parameters.overlap,
            progress=lambda done, total: check(),
            auxiliary=auxiliary,
        )
        check()
        _, own_format = image_head(files["image"])
        kind = own_format if own_format in SUFFIXES.values() else "PNG"
        if parameters.format is not None:
            kind = format_named(parameters.format)
        content = encode_image(restored.image, kind, quality=parameters.quality)
        lost = left_out(restored.image, kind)
        warnings = [*warnings, *restored.warnings, *restored.image.notes, *lost]
        notes = {"tiles": str(restored.tiles), "warnings": "; ".join(warnings)}
        return Answer(
            content,
            MEDIA_TYPES[kind],
            before.size[0] * before.size[1],
            {name: text for name, text in notes.items() if text},
            {self.output: file_tensor(content)},
        )
