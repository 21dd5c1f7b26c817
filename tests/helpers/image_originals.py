"""Image files with all metadata that Pillow writes."""

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageCms, PngImagePlugin, TiffImagePlugin

ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/>\xc3\xa4</x:xmpmeta>'
IPTC = b"8BIM\x04\x04\0\0\0\0\0\x0a\x1c\x02\x78\0\5hello"
HEX_IPTC = f"\niptc\n{len(IPTC):8}\n{IPTC.hex()}\n"
MAKER = bytes(range(40))
COLORS = {
    b"cICP": bytes((9, 16, 0, 1)),
    b"gAMA": struct.pack(">I", 100_000),
    b"cHRM": struct.pack(">8I", 31270, 32900, 70800, 29200, 17000, 79700, 13100, 4600),
}
KINDS = {"PNG": "PNG", "JPEG": "JPEG", "TIFF": "TIFF", "WebP": "WEBP"}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def exif(orientation: int = 6) -> Image.Exif:
    data = Image.Exif()
    data[274], data[306], data[315] = orientation, "2026:01:02 03:04:05", "A Person"
    data[282] = data[283] = TiffImagePlugin.IFDRational(300)
    data[296], data[33432] = 2, "(c) A Person"
    data.get_ifd(0x8769).update({36867: "2026:01:02 03:04:05", 37500: MAKER, 40962: 24})
    data.get_ifd(0x8825).update({1: "N", 2: (48.0, 30.0, 15.5)})
    return data


def original(kind: str) -> bytes:
    """Return a file of a kind, 24x16, with all that Pillow writes into it."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8))
    stream = io.BytesIO()
    texts = PngImagePlugin.PngInfo()
    texts.add_text("parameters", "a photo, Steps: 20")
    texts.add_itxt("Title", "äöü 写真")
    texts.add_text("Comment", "a comment", zip=True)
    texts.add_itxt("XML:com.adobe.xmp", XMP.decode())
    options = {
        "PNG": {"pnginfo": texts, "dpi": (300, 300)},
        "JPEG": {"xmp": XMP, "comment": "a comment", "dpi": (300, 300)},
        "TIFF": {},
        "WebP": {"xmp": XMP, "lossless": True},
    }[kind]
    tags = exif()
    if kind == "TIFF":
        tags[700], tags[34377] = XMP, IPTC
    image.save(stream, KINDS[kind], exif=tags, icc_profile=ICC, **options)
    content = stream.getvalue()
    if kind == "PNG":
        content = content[:33] + b"".join(map(chunk, COLORS, COLORS.values())) + content[33:]
    if kind == "JPEG":
        body = b"Photoshop 3.0\0" + IPTC
        content = content[:2] + b"\xff\xed" + struct.pack(">H", len(body) + 2) + body + content[2:]
    return content


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()
