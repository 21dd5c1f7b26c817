"""What a file holds besides its pixels, and which format can hold what."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace

from .image_data import NO_METADATA, ImageData, Metadata

XMP_KEYWORD = "XML:com.adobe.xmp"
"""The keyword of a text in PNG that is an XMP packet."""

COMMENT = "Comment"
"""The keyword of a text that stands for no other."""

_ORIENTATION = re.compile(rb"(tiff:Orientation(?:=[\"']|>))[1-8]")
_ANY, _SEGMENT = 1 << 62, 65_000
"""Bytes that a segment of a JPEG holds, less its own name."""
_LESS_THAN_ICC = ("gAMA", "cHRM")
"""Color chunks that a profile makes void."""
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


def fitted(image: ImageData, kind: str) -> tuple[ImageData, list[str]]:
    """Return an image with only the metadata that a format can hold, and notes on the rest.

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
        if size > (0 if name == "iptc" and kind in ("PNG", "WebP") else most):
            lost.append(f"{name.upper()} of {size} bytes")
            left[name] = None
    most = {"PNG": _ANY, "JPEG": _SEGMENT}.get(kind, -1)
    long = [text for text in metadata.texts if len(comment(text)) > most]
    lost += [f"the text {keyword!a}" for keyword, _ in long]
    left["texts"] = tuple(text for text in metadata.texts if text not in long)
    notes = [f"{', '.join(lost)} cannot be kept in a {kind} file"] if lost else []
    return replace(image, metadata=replace(metadata, **left)), notes  # type: ignore[arg-type]


def _tells(name: str, data: bytes) -> bool:
    """Return whether a color chunk says anything other than that the colors are sRGB."""
    return name != "sRGB" and data != _SAME_AS_SRGB.get(name)


def comment(text: tuple[str, str]) -> bytes:
    """Return a text with its keyword as a comment of a JPEG."""
    keyword, value = text
    return (value if keyword == COMMENT else f"{keyword}: {value}").encode()
