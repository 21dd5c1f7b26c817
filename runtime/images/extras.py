"""What a file holds besides its pixels, and which format can hold what."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .image_data import NO_METADATA, ImageData, Metadata

XMP_KEYWORD = "XML:com.adobe.xmp"
"""The keyword of a text in PNG that is an XMP packet."""

COMMENT = "Comment"
"""The keyword of a text that stands for no other."""

_ORIENTATION = re.compile(rb"(tiff:Orientation(?:=[\"']|>))[1-8]")
_ANY, _SEGMENT = 1 << 62, 65_000
"""Bytes that a segment of a JPEG holds, less its own name."""
_MOST_BITS = {"JPEG": 8, "WebP": 8, "PNG": 16}
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
    usual = primaries in _USUAL_PRIMARIES and transfer in _USUAL_TRANSFERS
    if usual or max(primaries, transfer) > 255:
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
    most = _SEGMENT if kind == "JPEG" else _ANY
    for name in ("exif", "xmp", "iptc"):
        size = len(getattr(metadata, name) or b"")
        if size > (0 if name == "iptc" and kind == "WebP" else most):
            lost.append(f"{name.upper()} of {size} bytes")
            left[name] = None
    most = {"PNG": _ANY, "JPEG": _SEGMENT}.get(kind, -1)
    long = [text for text in metadata.texts if len(comment(text)) > most]
    lost += [f"the text {keyword!a}" for keyword, _ in long]
    left["texts"] = tuple(text for text in metadata.texts if text not in long)
    notes = [f"{', '.join(lost)} cannot be kept in a {kind} file"] if lost else []
    bits = min(image.bits, _MOST_BITS.get(kind, 32))
    if bits < image.bits:
        notes.append(f"its {_NUMBERS[image.bits]} a channel became {bits} bits, as {kind} has")
    kept = replace(metadata, **left)  # type: ignore[arg-type]
    return replace(image, bits=bits, metadata=kept), notes


def _tells(name: str, data: bytes) -> bool:
    """Return whether a color chunk says anything other than that the colors are sRGB."""
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
