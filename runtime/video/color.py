"""Converts between the pixels of an image and the planes of a video.

A video stores luma and two color differences, Y'CbCr, in whole numbers; four tags state their
meaning: the matrix (weights of red and blue in the luma; ITU-R BT.601, BT.709, BT.2020), the range
(full, or black at 16 and white at 235 of 255), the bits, and how much smaller the planes of the
differences are. Chroma samples have the default positions of H.264 and HEVC: horizontally at every
second luma sample, vertically half-way between two. R', G', B' themselves are not converted:
primaries and transfer are copied.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError

MATRICES = {
    1: ("BT.709", 0.2126, 0.0722),
    4: ("FCC", 0.30, 0.11),
    5: ("BT.470BG", 0.299, 0.114),
    6: ("BT.601", 0.299, 0.114),
    7: ("SMPTE 240M", 0.212, 0.087),
    9: ("BT.2020", 0.2627, 0.0593),
}
"""Number of a matrix (ITU-T H.273, table 4) -> its name and the weights of red and blue in the
luma."""

UNSPECIFIED = 2
"""The number of an unspecified matrix, primaries or transfer."""

SUBSAMPLINGS = {"420": (2, 2), "422": (1, 2), "444": (1, 1)}
"""Name -> subsampling factors of the chroma planes, down and across."""

_HIGH_DEFINITION = 720


@dataclass(frozen=True)
class Color:
    """The encoding of pixels in a video.

    Attributes:
        matrix: Number in `MATRICES`.
        full: Black is 0 and white the largest number.
        bits: Bits per number: 8, 10 or 12.
        subsampling: Name of `SUBSAMPLINGS`, or ``gray`` for luma alone.
        primaries: Number of H.273, copied.
        transfer: Number of H.273, copied.
        alpha: There is a plane of alpha, as large as the luma and of the full range.
    """

    matrix: int = 1
    full: bool = False
    bits: int = 8
    subsampling: str = "420"
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    alpha: bool = False

    def __post_init__(self) -> None:
        if self.matrix not in MATRICES:
            names = ", ".join(name for name, _, _ in MATRICES.values())
            raise NystraError(
                f"the video's color matrix is number {self.matrix} (ITU-T H.273), expected "
                f"one of {names}: convert the video to BT.709 first"
            )

    @property
    def pixel_format(self) -> str:
        """The name that FFmpeg has for planes like these."""
        alpha = "a" if self.alpha else ""
        name = "gray" if self.subsampling == "gray" else f"yuv{alpha}{self.subsampling}p"
        return name if self.bits == 8 else f"{name}{self.bits}le"


def default_matrix(height: int) -> int:
    """Return the matrix of a video without a tag: BT.709 from 720 lines on, otherwise BT.601."""
    return 1 if height >= _HIGH_DEFINITION else 6


def to_rgb(planes: list[Array], color: Color) -> npt.NDArray[np.float32]:
    """Return (H, W, 3) in 0..1, or (H, W, 1) of gray; values outside are clipped.

    Args:
        planes: Y (H, W), and Cb and Cr at the size the subsampling gives them; alpha is ignored.
        color: Their encoding.
    """
    black, swing, zero, difference_swing = _scale(color)
    luma = (planes[0].astype(np.float32) - black) / swing
    if color.subsampling == "gray":
        gray: npt.NDArray[np.float32] = np.clip(luma, 0.0, 1.0)[:, :, None]
        return gray
    factors = SUBSAMPLINGS[color.subsampling]
    blue, red = (
        _enlarge((plane.astype(np.float32) - zero) / difference_swing, luma.shape, factors)
        for plane in planes[1:3]
    )
    _, weight_r, weight_b = MATRICES[color.matrix]
    image = np.empty((*luma.shape, 3), np.float32)
    image[:, :, 0] = luma + 2.0 * (1.0 - weight_r) * red
    image[:, :, 2] = luma + 2.0 * (1.0 - weight_b) * blue
    rest = luma - weight_r * image[:, :, 0] - weight_b * image[:, :, 2]
    image[:, :, 1] = rest / (1.0 - weight_r - weight_b)
    return np.clip(image, 0.0, 1.0, out=image)


def from_rgb(pixels: Array, color: Color, alpha: Array | None = None) -> list[Array]:
    """Return the planes of an image, rounded: the inverse of `to_rgb`.

    Args:
        pixels: (H, W, 3), or (H, W, 1) of gray; values outside 0..1 are clipped.
        color: The encoding of the planes.
        alpha: (H, W) in 0..1; None is opaque. It is left out if the encoding has none.
    """
    black, swing, zero, difference_swing = _scale(color)
    values = np.clip(pixels, 0.0, 1.0).astype(np.float32)
    if values.shape[2] == 1:
        values = np.repeat(values, 3, axis=2)
    _, weight_r, weight_b = MATRICES[color.matrix]
    red, green, blue = (values[:, :, channel] for channel in range(3))
    luma = weight_r * red + (1.0 - weight_r - weight_b) * green + weight_b * blue
    planes = [_rounded(luma * swing + black, color.bits)]
    if color.subsampling == "gray":
        return planes
    for channel, weight in ((blue, weight_b), (red, weight_r)):
        difference = (channel - luma) / np.float32(2.0 * (1.0 - weight))
        small = _shrink(difference, SUBSAMPLINGS[color.subsampling])
        planes.append(_rounded(small * difference_swing + zero, color.bits))
    if color.alpha:
        opaque = np.ones_like(luma) if alpha is None else np.clip(alpha, 0.0, 1.0)
        planes.append(_rounded(opaque * ((1 << color.bits) - 1), color.bits))
    return planes


def _scale(color: Color) -> tuple[float, float, float, float]:
    """Return black, the luma range, the neutral chroma and the chroma range, as numbers."""
    unit = float(1 << (color.bits - 8))
    zero = 128.0 * unit
    if color.full:
        maximum = float((1 << color.bits) - 1)
        return 0.0, maximum, zero, maximum
    return 16.0 * unit, 219.0 * unit, zero, 224.0 * unit


def _rounded(plane: Array, bits: int) -> Array:
    integers: Array = np.clip(np.rint(plane), 0, (1 << bits) - 1)
    return integers.astype(np.uint8 if bits == 8 else np.uint16)


def _enlarge(plane: Array, size: tuple[int, ...], factors: tuple[int, int]) -> Array:
    """Enlarge a plane by linear interpolation, its edge repeated.

    Args:
        plane: (h, w).
        size: Height and width of the luma.
        factors: Subsampling of the plane, down and across: 1 or 2.
    """
    down, across = factors
    if down == 2:
        plane = _between(plane, (np.arange(size[0]) - 0.5) / 2.0, 0)
    if across == 2:
        plane = _between(plane, np.arange(size[1]) / 2.0, 1)
    return plane


def _shrink(plane: Array, factors: tuple[int, int]) -> Array:
    """Reduce a plane by the mean around each sample, its edge repeated.

    Args:
        plane: (H, W).
        factors: Subsampling of the result, down and across: 1 or 2.
    """
    down, across = factors
    if down == 2:
        plane = np.pad(plane, ((0, plane.shape[0] % 2), (0, 0)), "edge")
        plane = (plane[0::2] + plane[1::2]) * np.float32(0.5)
    if across == 2:
        wide = np.pad(plane, ((0, 0), (1, 1 + plane.shape[1] % 2)), "edge")
        left, middle, right = wide[:, 0:-2:2], wide[:, 1:-1:2], wide[:, 2::2]
        plane = left * np.float32(0.25) + middle * np.float32(0.5) + right * np.float32(0.25)
    return plane


def _between(plane: Array, places: Array, axis: int) -> Array:
    last = plane.shape[axis] - 1
    floor = np.floor(places).astype(np.int64)
    shape = (-1, 1) if axis == 0 else (1, -1)
    share = (places - floor).astype(np.float32).reshape(shape)
    first = np.take(plane, np.clip(floor, 0, last), axis)
    second = np.take(plane, np.clip(floor + 1, 0, last), axis)
    mixed: Array = first * (1 - share) + second * share
    return mixed


_MASTERING = struct.Struct("=22i")
_LEVELS = struct.Struct("=2I")
_OF_COLOR, _OF_LUMINANCE = 50000, 10000
"""Units of the encoders: parts of a chromaticity, and of a candela per square meter."""

OTHERS = {
    "DYNAMIC_HDR_PLUS": "HDR10+ metadata",
    "DYNAMIC_HDR_VIVID": "HDR Vivid metadata",
    "DOVI_METADATA": "Dolby Vision metadata",
    "DOVI_RPU_BUFFER": "Dolby Vision metadata",
    "A53_CC": "closed captions",
    "STEREO3D": "3D metadata",
    "SPHERICAL": "360-degree metadata",
    "ICC_PROFILE": "color profile",
    "AMBIENT_VIEWING_ENVIRONMENT": "ambient light metadata",
    "S12M_TIMECODE": "time codes",
}
"""What else frames may hold, which the encoders do not write: FFmpeg's name and the words."""


@dataclass(frozen=True)
class Light:
    """The display that an HDR video was graded on, and how bright it is, in units of the encoders.

    SMPTE ST 2086 and CTA-861.3; FFmpeg attaches both to frames, as its structures
    AVMasteringDisplayMetadata and AVContentLightMetadata.

    Attributes:
        mastering: x and y of green, blue, red and white; largest and smallest luminance. Empty if
            unknown.
        levels: Largest light level of a pixel and of the mean of a frame. Empty if unknown.
    """

    mastering: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()

    @classmethod
    def of(cls, frame: Any) -> Light:
        """Return the numbers of a frame of PyAV."""
        found = {data.type.name: bytes(data) for data in frame.side_data}
        mastering: tuple[int, ...] = ()
        data = found.get("MASTERING_DISPLAY_METADATA", b"")
        if len(data) == _MASTERING.size:
            *pairs, has_primaries, has_luminance = _MASTERING.unpack(data)
            if has_primaries and has_luminance and all(pairs[1::2]):
                parts = [up / down for up, down in zip(pairs[::2], pairs[1::2], strict=True)]
                red, green, blue, white = parts[0:2], parts[2:4], parts[4:6], parts[6:8]
                colors = [round(x * _OF_COLOR) for x in (*green, *blue, *red, *white)]
                mastering = (*colors, *(round(x * _OF_LUMINANCE) for x in (parts[9], parts[8])))
        data = found.get("CONTENT_LIGHT_LEVEL", b"")
        levels = _LEVELS.unpack(data[: _LEVELS.size]) if len(data) >= _LEVELS.size else ()
        return cls(mastering, levels)

    def params(self, codec: str) -> str:
        """Return the parameters for x264 (``h264``) or x265, each after a colon."""
        names = {"h264": ("mastering-display", "cll"), "hevc": ("master-display", "max-cll")}
        mastering, levels = names[codec]
        text = ""
        if self.mastering:
            pairs = [self.mastering[place : place + 2] for place in range(0, 10, 2)]
            named = zip(("G", "B", "R", "WP", "L"), pairs, strict=True)
            text += f":{mastering}=" + "".join(f"{name}({x},{y})" for name, (x, y) in named)
        if any(self.levels):
            text += f":{levels}={self.levels[0]},{self.levels[1]}"
        return text


NO_LIGHT = Light()
"""Nothing is known."""
