"""Frames of a video as RGB and back, by FFmpeg's scaler: bicubic chroma, rounded correctly."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np

from ...core.arrays import Array
from ..images.image_data import ImageData, quantize
from .clip import Color
from .containers import load_av

MATRICES = {1: "bt709", 4: "fcc", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 9: "bt2020nc"}
"""Number of a matrix (ITU-T H.273, table 4) -> FFmpeg's name, of those that it converts."""

_FLAGS = "bicubic+accurate_rnd+full_chroma_int+full_chroma_inp+bitexact"

_WHITE = 0xFF00
"""White in 16 bits, as the scaler converts it to luma."""


class Converter:
    """Converts frames of one size to RGB of 16 bits, or from it.

    Chroma lies where H.264 and HEVC have it: horizontally at every second sample of luma.
    """

    def __init__(
        self, size: tuple[int, int], source: str, target: str, color: Color, time_base: Fraction
    ) -> None:
        """Set up the conversion.

        Args:
            size: Height and width.
            source: FFmpeg's pixel format of the frames that are pushed.
            target: That of those that are returned.
            color: The encoding of those that are not RGB.
            time_base: Seconds per tick of their times.
        """
        av = load_av()
        pushed = av.VideoFormat(source)
        side, other = ("out", "in") if pushed.is_rgb else ("in", "out")
        scale = (
            f"{other}_range=full:{side}_range={'full' if color.full else 'limited'}:"
            f"{side}_color_matrix={MATRICES[color.matrix]}:{side}_chroma_loc=left:flags={_FLAGS}"
        )
        formats = [target]
        if pushed.is_rgb and color.full and color.bits == 8:
            # In one step the scaler rounds chroma of 8 bits and full range down.
            formats.insert(0, f"{target}10le")
        self._graph = graph = av.filter.Graph()
        height, width = size
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


def to_image(rgb: Any, color: Color, quarter_turns: int, *, converted: bool) -> ImageData:
    """Return a frame of ``rgb48le`` or ``rgba64le`` as an image.

    Args:
        rgb: The frame.
        color: The encoding of the video.
        quarter_turns: To the left.
        converted: It was not RGB before.
    """
    white = 0xFFFF
    if converted:
        white = ((1 << color.bits) - 1) << (16 - color.bits) if color.full else _WHITE
    values = np.rot90(rgb.to_ndarray(), quarter_turns).astype(np.float32)
    alpha = values[:, :, 3] / np.float32(0xFFFF) if color.alpha else None
    pixels = np.minimum(values[:, :, :3] / np.float32(white), 1)
    if color.pixel_format.startswith("gray"):
        pixels = pixels[:, :, :1].copy()
    return ImageData(pixels, alpha, 8 if color.bits == 8 else 16)


def to_values(image: ImageData, alpha: bool) -> Array:
    """Return an image as the numbers of a frame of ``rgb48le``, or with alpha of ``rgba64le``."""
    pixels = np.repeat(image.pixels, 3, axis=2) if image.gray else image.pixels
    values: Array = np.rint(np.clip(pixels, 0, 1) * _WHITE).astype(np.uint16)
    if not alpha:
        return values
    plane = np.ones(image.size, np.float32) if image.alpha is None else image.alpha
    return np.dstack([values, quantize(plane, 16)])
