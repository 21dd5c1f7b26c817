"""An image in memory, what its file holds besides its pixels, and which format can hold what."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array

_LUMA = np.array((0.299, 0.587, 0.114), np.float32)
"""Weights of red, green and blue in the luma of BT.601."""


def luma_of(pixels: Array) -> Array:
    """Return the luma of pixels (..., 3) as (...), the same for a pixel in any image.

    A matrix product would sum in an order that depends on the shape and on where the memory lies.
    """
    red, green, blue = (pixels[..., channel] * _LUMA[channel] for channel in range(3))
    luma: Array = red + green + blue
    return luma


EXCHANGING = (5, 6, 7, 8)
"""EXIF orientations (tag 274) that exchange height and width."""


@dataclass(frozen=True)
class Metadata:
    """What a file says of its image besides profile and resolution.

    Attributes:
        exif: EXIF data without orientation and resolution, as a TIFF of its own, or None.
        xmp: XMP packet, or None.
        iptc: IPTC data as Photoshop stores it (image resources), or None.
        texts: Texts, each with its keyword; that of a comment is ``Comment``.
        colors: PNG chunks that say what the colors mean, each with its name: ``cICP``, ``gAMA``.
    """

    exif: bytes | None = None
    xmp: bytes | None = None
    iptc: bytes | None = None
    texts: tuple[tuple[str, str], ...] = ()
    colors: tuple[tuple[str, bytes], ...] = ()


NO_METADATA = Metadata()


@dataclass(frozen=True)
class ImageData:
    """An image in memory.

    Attributes:
        pixels: (H, W, C) float32 in 0..1, C 1 (gray) or 3 (RGB), not premultiplied.
        alpha: (H, W) float32 in 0..1, or None for an opaque image.
        bits: Bits per channel: 8, 16, or 32 for floating point.
        icc: ICC profile of the pixels, or None.
        dpi: Resolution across and down in pixels per inch, or None.
        metadata: What else its file says.
        notes: What was changed or left out when it was read, in sentences.
    """

    pixels: npt.NDArray[np.float32]
    alpha: npt.NDArray[np.float32] | None = None
    bits: int = 8
    icc: bytes | None = None
    dpi: tuple[float, float] | None = None
    metadata: Metadata = NO_METADATA
    notes: tuple[str, ...] = ()

    def with_profile_of(self, before: ImageData) -> ImageData:
        """Return the image with the profile of another one if it has the same kind of colors.

        Otherwise it has none, and a note says so.
        """
        if before.icc is None or before.gray == self.gray:
            return replace(self, icc=before.icc)
        note = "its color profile was left out: the output has other colors"
        return replace(self, icc=None, notes=(*self.notes, note))

    @property
    def gray(self) -> bool:
        """Whether it has one channel."""
        return bool(self.pixels.shape[2] == 1)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.pixels.shape[0], self.pixels.shape[1]


def quantize(values: Array, bits: int) -> Array:
    """Return values as whole numbers of 8 or 16 bits, clipped to 0..1 and rounded to nearest.

    With 32 bits they are floating point, and only clipped.
    """
    if bits == 32:
        clipped: Array = np.clip(values, 0.0, 1.0, dtype=np.float32)
        return clipped
    peak = (1 << bits) - 1
    scaled = np.clip(values, 0.0, 1.0) * np.float32(peak) + np.float32(0.5)
    integers: Array = np.minimum(scaled, peak).astype(np.uint8 if bits == 8 else np.uint16)
    return integers


def resize_plane(plane: Array, size: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Resize one channel (H, W) in 0..1 to (height, width) by Lanczos, clipped to 0..1."""
    from PIL import Image

    if plane.shape == size:
        return np.asarray(plane, dtype=np.float32)
    source = Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
    resized = source.resize((size[1], size[0]), Image.Resampling.LANCZOS)
    return np.clip(np.asarray(resized, dtype=np.float32), 0.0, 1.0)


def unpremultiplied(
    pixels: npt.NDArray[np.float32], alpha: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return colors (H, W, C) divided by the alpha (H, W) that they were multiplied by."""
    divisor = np.maximum(alpha, np.float32(1 / 65535))[:, :, None]
    quotient: npt.NDArray[np.float32] = np.clip(pixels / divisor, 0, 1, dtype=np.float32)
    return quotient


def turned(image: ImageData, orientation: int) -> ImageData:
    """Apply an EXIF orientation to an image and its resolution."""
    alpha = None if image.alpha is None else _turn(image.alpha, orientation)
    dpi = image.dpi
    if dpi is not None and orientation in EXCHANGING:
        dpi = (dpi[1], dpi[0])
    return replace(image, pixels=_turn(image.pixels, orientation), alpha=alpha, dpi=dpi)


def _turn(array: npt.NDArray[np.float32], orientation: int) -> npt.NDArray[np.float32]:
    """Apply an EXIF orientation (tag 274, 1 to 8) to (H, W, ...)."""
    if orientation in EXCHANGING:
        array = np.swapaxes(array, 0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


def plausible_dpi(across: float, down: float) -> tuple[float, float] | None:
    """Return a resolution in pixels per inch, or None if no file could hold it."""
    return (across, down) if 0 < across < 1e6 and 0 < down < 1e6 else None


XMP_KEYWORD = "XML:com.adobe.xmp"
"""The keyword of a text in PNG that is an XMP packet."""

COMMENT = "Comment"
"""The keyword of a text that stands for no other."""

_ORIENTATION = re.compile(rb"(tiff:Orientation(?:=[\"']|>))[1-8]")
_ANY, _SEGMENT = 1 << 62, 65_000
"""Bytes that a segment of a JPEG holds, less its own name."""
_MAX_BITS = {"JPEG": 8, "WebP": 8, "PNG": 16}
_NUMBERS = {16: "16 bits", 32: "floating point"}
_LESS_THAN_ICC = ("gAMA", "cHRM")
"""Color chunks that a profile makes void."""
_USUAL_PRIMARIES, _USUAL_TRANSFERS = (1, 2, 5, 6), (1, 2, 6, 13)
"""Those of sRGB, BT.709 and BT.601, and unspecified ones."""
_SAME_AS_SRGB = {
    "gAMA": struct.pack(">I", 45455),
    "cHRM": struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000),
    "cICP": bytes((1, 13, 0, 1)),
}


@dataclass(frozen=True)
class Extras:
    """What a file holds besides its pixels.

    Attributes:
        metadata: As in `ImageData`.
        orientation: EXIF orientation (tag 274, 1 to 8).
        dpi: As in `ImageData`.
        notes: The same.
        icc: The same, where libvips leaves one out that does not fit.
    """

    metadata: Metadata = NO_METADATA
    orientation: int = 1
    dpi: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    icc: bytes | None = None


def upright_xmp(packet: bytes | None) -> bytes | None:
    """Return an XMP packet for pixels that have been turned upright."""
    return packet and _ORIENTATION.sub(rb"\g<1>1", packet)


def left_segments(what: str, names: Iterable[str]) -> list[str]:
    """Return a note on the parts of a file that nothing is known of, if there are any."""
    listed = sorted(names)
    more = ", ..." if len(listed) > 8 else ""
    return [f"its {what} {', '.join(listed[:8])}{more} were left out"] if listed else []


def of_aspect(across: int, down: int) -> list[str]:
    """Return a note on pixels that are not square, by their numbers in the same length."""
    note = f"its pixels are not square ({across}:{down}), which was left out"
    return [note] if across != down and across and down else []


def colors_of(primaries: int, transfer: int) -> tuple[tuple[str, bytes], ...]:
    """Return colors by their numbers in ITU-T H.273 as PNG states them, unless they are usual."""
    common = primaries in _USUAL_PRIMARIES and transfer in _USUAL_TRANSFERS
    if common or max(primaries, transfer) > 255:
        return ()
    return (("cICP", bytes((primaries, transfer, 0, 1))),)


def in_resources(iptc: bytes) -> bytes:
    """Return IPTC data as image resources of Photoshop; those are returned as they are."""
    if iptc.startswith(b"8BIM"):
        return iptc
    return b"8BIM\x04\x04\0\0" + struct.pack(">I", len(iptc)) + iptc + b"\0" * (len(iptc) % 2)


def fitted(image: ImageData, kind: str) -> tuple[ImageData, list[str]]:
    """Return an image with only the bits and metadata that a format can hold, and notes.

    Args:
        image: The image.
        kind: ``PNG``, ``JPEG``, ``TIFF`` or ``WebP``.
    """
    metadata, lost, left = image.metadata, list[str](), dict[str, object]()
    if image.icc and image.icc[16:20] == b"GRAY" and not (image.gray and kind != "WebP"):
        lost.append("the profile of gray")
        image = replace(image, icc=None)
    if kind != "PNG":
        void = _LESS_THAN_ICC if image.icc else ()
        lost += [name for name, data in metadata.colors if name not in void and _tells(name, data)]
        left["colors"] = ()
    limit = _SEGMENT if kind == "JPEG" else _ANY
    for name in ("exif", "xmp", "iptc"):
        size = len(getattr(metadata, name) or b"")
        if size > (0 if name == "iptc" and kind == "WebP" else limit):
            lost.append(f"{name.upper()} of {size} bytes")
            left[name] = None
    limit = {"PNG": _ANY, "JPEG": _SEGMENT}.get(kind, -1)
    long = [text for text in metadata.texts if len(comment(text)) > limit]
    lost += [f"the text {keyword!a}" for keyword, _ in long]
    left["texts"] = tuple(text for text in metadata.texts if text not in long)
    notes = [f"{', '.join(lost)} cannot be kept in a {kind} file"] if lost else []
    bits = min(image.bits, _MAX_BITS.get(kind, 32))
    if bits < image.bits:
        notes.append(f"its {_NUMBERS[image.bits]} a channel became {bits} bits, as {kind} has")
    kept = replace(metadata, **left)  # type: ignore[arg-type]
    return replace(image, bits=bits, metadata=kept), notes


def _tells(name: str, data: bytes) -> bool:
    return name != "sRGB" and data != _SAME_AS_SRGB.get(name)


def comment(text: tuple[str, str]) -> bytes:
    """Return a text with its keyword as a comment of a JPEG."""
    keyword, value = text
    return (value if keyword == COMMENT else f"{keyword}: {value}").encode()


def decoded(body: bytes) -> str:
    """Return a comment in bytes as text: its encoding is not stated."""
    try:
        return body.decode("utf-8").rstrip("\0")
    except UnicodeDecodeError:
        return body.decode("latin-1").rstrip("\0")
