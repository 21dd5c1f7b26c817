"""Frames of a video as RGB and back, by FFmpeg's scaler: bicubic chroma, rounded correctly."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...core.arrays import Array
from ..images.image_data import ImageData
from .containers import load_av

MATRICES = {1: "bt709", 4: "fcc", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 9: "bt2020nc"}
"""Number of a matrix (ITU-T H.273, table 4) -> FFmpeg's name, of those that it converts."""

RGB = "rgb48le"
"""FFmpeg's pixel format of the frames between."""

LIMITED, FULL = 1, 2

_FLAGS = "bicubic+accurate_rnd+full_chroma_int+full_chroma_inp+bitexact"

_WHITE = 0xFF00
"""White in 16 bits, as the scaler converts it to luma."""


@dataclass(frozen=True)
class Color:
    """How the pixels of a video are stored; the numbers are those of ITU-T H.273 and FFmpeg.

    Attributes:
        pixel_format: The name that FFmpeg has for planes like these.
        bits: Bits per number.
        matrix: Weights of red and blue in the luma.
        range: `FULL`, if black is 0 and white the largest number, or `LIMITED`.
        primaries, transfer: Copied.
    """

    pixel_format: str
    bits: int
    matrix: int
    range: int
    primaries: int
    transfer: int


class Converter:
    """Converts frames of one size to RGB of 16 bits, or from it.

    Chroma lies where H.264 and HEVC have it: horizontally at every second sample of luma.
    """

    def __init__(
        self, size: tuple[int, int], source: str, target: str, color: Color, time_base: Fraction
    ) -> None:
        """Set up the conversion of frames (H, W) between two of FFmpeg's pixel formats.

        One of them is `RGB`, the color is that of the other.
        """
        av = load_av()
        side, other = ("out", "in") if source == RGB else ("in", "out")
        scale = (
            f"{other}_range=full:{side}_range={'full' if color.range == FULL else 'limited'}:"
            f"{side}_color_matrix={MATRICES[color.matrix]}:{side}_chroma_loc=left:flags={_FLAGS}"
        )
        formats = [target]
        if source == RGB and color.range == FULL and color.bits == 8:
            # In one step the scaler rounds chroma of 8 bits and full range down.
            formats.insert(0, f"{target}12le")
        self._graph = graph = av.filter.Graph()
        height, width = size
        pushed = av.VideoFormat(source)
        nodes = [graph.add_buffer(width=width, height=height, format=pushed, time_base=time_base)]
        for pixel_format in formats:
            nodes += [graph.add("scale", scale), graph.add("format", pixel_format)]
        nodes.append(graph.add("buffersink"))
        for node, following in itertools.pairwise(nodes):
            node.link_to(following)
        graph.configure()

    def __call__(self, frame: Any) -> Any:
        """Return a frame of PyAV, converted, with the same time."""
        self._graph.push(frame)
        return self._graph.pull()


def white_of(color: Color, is_rgb: bool) -> int:
    """Return the white that a video has when it is converted to `RGB`."""
    if is_rgb:
        return 0xFFFF
    return ((1 << color.bits) - 1) << (16 - color.bits) if color.range == FULL else _WHITE


def to_image(rgb: Any, color: Color, white: int) -> ImageData:
    """Return a frame of `RGB` as an image."""
    pixels = np.minimum(rgb.to_ndarray().astype(np.float32) / np.float32(white), 1)
    if color.pixel_format.startswith("gray"):
        pixels = pixels[:, :, :1].copy()
    return ImageData(pixels, None, 8 if color.bits == 8 else 16)


def to_values(image: ImageData) -> Array:
    """Return an image as the numbers of a frame of `RGB`."""
    pixels = np.repeat(image.pixels, 3, axis=2) if image.gray else image.pixels
    values: Array = np.rint(np.clip(pixels, 0, 1) * _WHITE).astype(np.uint16)
    return values
