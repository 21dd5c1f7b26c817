"""A loaded model file as a classifier of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.preprocessing import Preprocessing
from ...images.image_data import luma_of
from ...images.resampling import resample
from ...session import Session
from ...tiling.run_tiled import fill_batch
from .listing import check_labels

_MOST_PIXELS = 1 << 24
"""Most pixels of a resized image: without a crop an elongated one would become very large."""


def prepare(pixels: Array, preprocessing: Preprocessing, channels: int) -> npt.NDArray[np.float32]:
    """Resize, crop and normalize an image, unless the model file does so itself.

    Args:
        pixels: (H, W, C) in 0..1, C 1 (gray) or 3 (RGB).
        preprocessing: The steps.
        channels: Channels of the network's input, 1 or 3: gray is repeated, color becomes luma.

    Returns:
        (1, channels, H', W').

    Raises:
        NystraError: The image would become too large.
    """
    remaining = preprocessing.remaining
    image: Array = _in_channels(pixels, channels)
    if remaining.resize is not None:
        height, width = remaining.resize.size(*image.shape[:2])
        rows, columns = (
            middle(side, length)
            for side, length in zip((height, width), remaining.crop or (height, width), strict=True)
        )
        resized = (rows.stop - rows.start) * (columns.stop - columns.start)
        if resized > _MOST_PIXELS:
            raise NystraError(
                f"an image of {image.shape[1]}x{image.shape[0]} pixels would become "
                f"{width}x{height}: expected a less elongated one"
            )
        image = resample(image, remaining.resize, rows, columns)
    if remaining.mean:
        image = (image - np.array(remaining.mean, np.float32)) / np.array(remaining.std, np.float32)
    return np.ascontiguousarray(np.moveaxis(image, 2, 0)[None], dtype=np.float32)


def middle(side: int, length: int) -> slice:
    """Return the center of a side; half a pixel is rounded to even, as in torchvision.

    Args:
        side: In pixels.
        length: Number of pixels to keep, at most all.
    """
    first = round((side - length) / 2)
    return slice(first, first + length)


def _in_channels(pixels: Array, channels: int) -> Array:
    if pixels.shape[2] == channels:
        return pixels
    if channels == 1:
        luma: Array = luma_of(pixels)[:, :, None]
        return luma
    return np.repeat(pixels, channels, axis=2)


@dataclass(frozen=True)
class Classifier:
    """A network that returns logits, with the preprocessing of its input.

    Attributes:
        function: (1, C, H, W) -> (1, classes).
        channels: Channels of its input.
        sides: Its fixed height and width; None: any.
        preprocessing: How an image becomes its input, and the names of its classes.
        classes: Number of classes, or None if unknown.
    """

    function: Callable[[Array], Array]
    channels: int
    sides: tuple[int, int] | None
    preprocessing: Preprocessing
    classes: int | None = None

    def __call__(self, pixels: Array) -> npt.NDArray[np.float64]:
        """Return the logits (classes) of an image's pixels (H, W, C) in 0..1.

        Raises:
            NystraError: The preprocessing does not lead to the size of the network's input, the
                network fails, or its output is not finite or not one row.
        """
        image = prepare(pixels, self.preprocessing, self.channels)
        size = (image.shape[2], image.shape[3])
        if self.sides is not None and size != self.sides:
            raise NystraError(
                f"the model takes {self.sides[1]}x{self.sides[0]} pixels, and this image is "
                f"{size[1]}x{size[0]}: its metadata does not describe how to resize images, so "
                "resize it first"
            )
        logits: Array = np.asarray(self.function(image), np.float64)
        if logits.ndim != 2 or logits.shape[0] != 1:
            raise NystraError(f"the model returned {logits.shape}, expected (1, classes)")
        check_labels(self.preprocessing.labels, logits.shape[1], "the list of labels")
        if not np.isfinite(logits).all():
            raise NystraError("the output of the model has NaN or infinity")
        first: npt.NDArray[np.float64] = logits[0]
        return first


def classifier_for(session: Session, labels: tuple[str, ...] = ()) -> Classifier:
    """Return the classifier of a session.

    Args:
        session: A session of a file with one image input and logits as its output.
        labels: Class names, which take precedence over those of the metadata.

    Raises:
        NystraError: The file has other inputs or outputs, its preprocessing does not lead to its
            input size, or the numbers of labels and classes differ.
    """
    if session.spec.range is not None:
        raise NystraError("`range` does not apply to classifiers: their preprocessing states it")
    image, facts = session.facts.image, session.facts
    gives = facts.outputs[0].role if facts.outputs else "nothing"
    if image is None or image.channels not in (1, 3) or gives != "logits":
        raise NystraError(
            f"{session.path} is not a classifier: expected an image input of 1 or 3 channels and "
            f"logits; its outputs are {gives}, its inputs are "
            f"{[(tensor.name, tensor.shape) for tensor in session.inputs]}"
        )
    preprocessing = facts.preprocessing or Preprocessing()
    sides = None if image.sides is None else (image.sides["height"], image.sides["width"])
    check_preprocessing(preprocessing, image.channels, sides, str(session.path))
    classes = facts.outputs[0].channels
    if classes is not None:
        check_labels(preprocessing.labels, classes, f"the metadata of {session.path}")
        check_labels(labels, classes, "`labels`")
    if labels:
        preprocessing = replace(preprocessing, labels=labels)
    batch = image.lengths.get("batch", 1)
    function = session if batch == 1 else fill_batch(session, batch)
    return Classifier(function, image.channels, sides, preprocessing, classes)


def check_preprocessing(
    preprocessing: Preprocessing, channels: int, sides: tuple[int, int] | None, where: str
) -> None:
    """Raise NystraError if a preprocessing does not fit the input of a network.

    Args:
        preprocessing: From an image to its input.
        channels: Channels of its input.
        sides: Its fixed height and width; None: any.
        where: The source of the preprocessing, for the message.
    """
    remaining = preprocessing.remaining
    if remaining.mean and len(remaining.mean) != channels:
        raise NystraError(
            f"{where} has a mean of {len(remaining.mean)} numbers for {channels} channels: export "
            "it again"
        )
    if None not in (remaining.size, sides) and remaining.size != sides:
        raise NystraError(
            f"{where} prepares images of {remaining.size}, height and width, and takes {sides}: "
            "export it again"
        )
