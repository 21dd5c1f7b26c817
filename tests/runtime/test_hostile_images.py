"""Malicious images: truncated, larger than declared, of unusual kinds."""

import io
import os
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from nystra.core.errors import NystraError
from nystra.runtime import ImageData, read_image, write_image
from nystra.runtime.images.images import decode_image, encode_image

WIDTH, HEIGHT = 9, 7
RAW = bytes(range(256))[: WIDTH * HEIGHT * 2]
SHORT, LONG, RATIONAL, FLOAT = 3, 4, 5, 11


def tiff(
    *extra: tuple[int, int, int, bytes], data: bytes = RAW, tail: int = 0, **changes: int
) -> bytes:
    """Return a gray TIFF of 7x9 pixels in 16 bits: tags, then its strip.

    Args:
        *extra: Tag, type, number of values, and the four bytes of value or offset.
        data: The strip.
        tail: The offset of the next directory.
        **changes: ``compression``, ``bits``, ``photometric``, ``samples``.
    """
    values = {"compression": 1, "bits": 16, "photometric": 1, "samples": 1, **changes}
    tags = {
        256: WIDTH,
        257: HEIGHT,
        258: values["bits"],
        259: values["compression"],
        262: values["photometric"],
        273: 1024,
        277: values["samples"],
        278: HEIGHT,
        279: len(data),
    }
    rows = [(tag, LONG, 1, struct.pack("<I", value)) for tag, value in tags.items()]
    rows = sorted([row for row in rows if row[0] not in {row[0] for row in extra}] + [*extra])
    directory = struct.pack("<H", len(rows))
    directory += b"".join(struct.pack("<HHI", *row[:3]) + row[3] for row in rows)
    head = b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<I", tail)
    return head.ljust(1024, b"\0") + data


def test_the_plain_one_is_read() -> None:
    image = decode_image(tiff())
    assert (image.size, image.bits) == ((HEIGHT, WIDTH), 16)
    assert decode_image(tiff(data=zlib.compress(RAW), compression=8)).size == (HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tiff(tail=8), "its directories form a cycle"),
        (tiff((34675, LONG, 10**9, bytes(4))), "tag 34675 has 1000000000 values, more than"),
        (tiff(samples=60_000), "damaged|channels"),
        (tiff(bits=12), "is damaged or truncated: .*bytes"),
        (tiff(photometric=6), "holds colors of kind 6 of TIFF, expected gray or RGB"),
        (tiff(photometric=32803), r"holds a raw photograph of a camera \(kind 32803\), expected"),
        (
            tiff((254, LONG, 1, b"\1\0\0\0")),
            "a reduced copy of an image alone, as a raw photograph",
        ),
        (tiff(photometric=65535), "holds colors of kind 65535 of TIFF, expected gray or RGB"),
        (
            tiff(compression=50000),
            "compressed by method 50000 of TIFF, which is not supported: save it with deflate",
        ),
        (tiff(compression=34925), "compressed by method 34925 of TIFF, which is"),
        (tiff(compression=5), "is damaged or truncated: .*data probably corrupted"),
        (tiff((322, LONG, 1, bytes(4)), (323, LONG, 1, bytes(4))), "damaged|more than"),
        (b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(800_000), "has 65535 tags"),
        (b"II*\0" + struct.pack("<I", 5000), "damaged or truncated"),
    ],
    ids=lambda part: part if isinstance(part, str) else "tiff",
)
def test_tiff_is_refused_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(NystraError, match=message) as caught:
        decode_image(content, "p.tif")
    assert "\n" not in str(caught.value)
    assert "p.tif" in str(caught.value)


def test_tiff_that_inflates_to_more_than_its_pixels() -> None:
    image = decode_image(tiff(data=zlib.compress(RAW + bytes(9_000_000), 1), compression=8))
    np.testing.assert_array_equal(image.pixels, decode_image(tiff()).pixels)


def test_many_directories_are_not_walked_to_the_end() -> None:
    """100,000 directories took 22 seconds and 300,001 lines."""
    first = tiff(tail=2048).ljust(2048, b"\0")
    chain = b"".join(
        struct.pack("<HHHI4sI", 1, 254, LONG, 1, bytes(4), 2048 + 18 * (index + 1))
        for index in range(100_000)
    )
    with pytest.raises(NystraError, match="has more than 64 pages, expected a single image"):
        decode_image(first + chain, "p.tif")


def test_odd_tags_do_no_harm() -> None:
    infinite = struct.pack("<f", float("inf"))
    assert decode_image(tiff((274, FLOAT, 1, infinite))).size == (HEIGHT, WIDTH)
    assert decode_image(tiff((34675, LONG, 1, struct.pack("<I", 10**9)))).icc is None
    huge = struct.pack("<I", 1100)
    content = bytearray(tiff((282, RATIONAL, 1, huge), (283, RATIONAL, 1, huge)))
    content[1100:1108] = struct.pack("<II", 2**32 - 1, 1)
    image = decode_image(bytes(content))
    assert image.dpi is None
    assert decode_image(encode_image(image, "TIFF")).size == (HEIGHT, WIDTH)


def chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png(*extra: bytes, data: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + head + b"".join(extra) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def test_png_that_inflates_to_more_than_its_pixels() -> None:
    rows = bytes((WIDTH * 6 + 1) * HEIGHT)
    assert decode_image(png(data=zlib.compress(rows))).bits == 16
    image = decode_image(png(data=zlib.compress(rows + bytes(100_000_000))), "p.png")
    assert (image.size, image.pixels.any()) == ((HEIGHT, WIDTH), False)
    # A chunk besides the pixels that makes no sense leaves the pixels as they are.
    assert decode_image(png(chunk(b"sBIT", bytes(3)), data=zlib.compress(rows))).bits == 16


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_and_devices_are_refused_before_opening(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.png")
    for path, kind in ((tmp_path / "p.png", "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(NystraError, match=f"is {kind}, expected a regular file"):
            read_image(path)
    for odd in ("x" * 300 + ".png", "nul\0.png"):
        with pytest.raises(NystraError, match="cannot read the image"):
            read_image(tmp_path / odd)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WebP"])
def test_a_damaged_byte_is_an_error_or_an_image(kind: str) -> None:
    random = np.random.default_rng(5)
    values = random.random((HEIGHT, WIDTH, 3), dtype=np.float32)
    content = encode_image(ImageData(values, bits=16), kind)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        for place in random.integers(0, len(content), 3):
            damaged[place] = random.integers(0, 256)
        try:
            decode_image(bytes(damaged))
        except NystraError:
            refused += 1
    assert refused > 10


def test_bytes_and_files_are_the_same(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3)) / np.float32(255)
    image = ImageData(values.astype(np.float32))
    for suffix, kind in ((".png", "PNG"), (".tif", "TIFF"), (".webp", "WebP"), (".jpg", "JPEG")):
        write_image(tmp_path / f"p{suffix}", image)
        data = (tmp_path / f"p{suffix}").read_bytes()
        assert data == encode_image(image, kind)
        read = read_image(tmp_path / f"p{suffix}").pixels
        np.testing.assert_array_equal(decode_image(data).pixels, read)
        np.testing.assert_array_equal(decode_image(io.BytesIO(data)).pixels, read)
        with tempfile.TemporaryFile() as stream:  # whose name is a number
            stream.write(data)
            stream.seek(0)
            np.testing.assert_array_equal(decode_image(stream).pixels, read)
    with pytest.raises(NystraError, match="the image is empty"):
        decode_image(b"")


OTHERS = {
    "SVG": b'<svg width="9" height="9"></svg>',
    "PDF": b"%PDF-1.7\n1 0 obj<<>>endobj\n",
    "PPM": b"P6\n2 2\n255\n" + bytes(12),
    "Radiance": b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 1 +X 1\n" + bytes(4),
    "CSV": b"1,2\n3,4\n",
    "OpenEXR": b"\x76\x2f\x31\x01" + bytes(4),
    "FITS": b"SIMPLE  =                    T" + b" " * 2851,
    "VIPS": b"\x08\xf2\xa6\xb6" + bytes(60),
    "JPEG XL": b"\xff\x0a\x00\x10",
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n",
    "HEIF": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
    "MAT": b"MATLAB 5.0 MAT-file" + bytes(109),
}
"""The beginnings of kinds that libvips could read, and nystra does not."""


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_are_refused_under_the_name_of_a_picture(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(OTHERS[kind])
    with pytest.raises(NystraError, match=r"not an image in a supported format: .*expected PNG"):
        read_image(path)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "AVIF"])
def test_kinds_that_are_read_only(kind: str) -> None:
    Image.init()
    if kind not in Image.OPEN:
        pytest.skip("this Pillow has no AVIF")
    image = Image.new("RGB", (24, 16), (200, 30, 60))
    content = io.BytesIO()
    image.save(content, kind, **({"quality": 100} if kind == "AVIF" else {}))
    restored = decode_image(content.getvalue())
    assert restored.size == (16, 24)
    np.testing.assert_allclose(restored.pixels[4, 5] * 255, (200, 30, 60), atol=3)


def test_of_an_animated_gif_the_first_image() -> None:
    frames = [Image.new("L", (6, 5), value) for value in (40, 200)]
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(decode_image(content.getvalue()).pixels * 255, 40, atol=1e-3)


def test_quality() -> None:
    noise = ImageData(np.random.default_rng(0).random((32, 32, 3), dtype=np.float32))
    for kind in ("JPEG", "WebP"):
        sizes = [len(encode_image(noise, kind, quality=quality)) for quality in (20, 90, None)]
        assert sizes[0] < sizes[1] < sizes[2]
    with pytest.raises(NystraError, match="`quality` is 0, expected a whole number from 1 to 100"):
        encode_image(noise, "JPEG", quality=0)


def test_reduced_copies_do_not_count(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "p.tif") as writer:
        writer.write(np.zeros((20, 30), np.uint16), photometric="minisblack", metadata=None)
        writer.write(np.ones((5, 6), np.uint16), subfiletype=1, metadata=None)
    assert read_image(tmp_path / "p.tif").size == (20, 30)
