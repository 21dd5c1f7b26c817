"""An image is read from the page of its size, as a whole or not at all."""

from __future__ import annotations

import gc
import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from image_files import png_header, with_tag
from nystra.core.errors import NystraError
from nystra.runtime.images.image_file import libvips
from nystra.runtime.images.images import decode_image, image_head, open_image, read_image_size

WIDTH, LENGTH, TILE_WIDTH, TILE_LENGTH, ROWS = 256, 257, 322, 323, 278
RANDOM = np.random.default_rng(0)


def tiff(deep: bool, compression: str | None, tile: tuple[int, int] | None = None) -> bytes:
    """Return a TIFF of 20x24 pixels in color, in strips of 4 rows or in tiles."""
    stream = io.BytesIO()
    values = RANDOM.integers(0, 65536, (24, 20, 3)).astype(np.uint16)
    options = {"rowsperstrip": 4} if tile is None else {"tile": tile}
    values = values if deep else (values >> 8).astype(np.uint8)
    tifffile.imwrite(
        stream, values, photometric="rgb", compression=compression, metadata=None, **options
    )
    return stream.getvalue()


def by_pillow(compression: str) -> bytes:
    """Return an 8-bit TIFF of 20x24 pixels in color and one strip."""
    image = Image.fromarray(RANDOM.integers(0, 256, (24, 20, 3)).astype(np.uint8))
    stream = io.BytesIO()
    image.save(stream, "TIFF", compression=compression)
    return stream.getvalue()


@pytest.mark.parametrize("tag", [WIDTH, LENGTH])
@pytest.mark.parametrize("change", [1, 36])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("deep", [False, True])
def test_strips_hold_the_pixels(deep: bool, compression: str | None, tag: int, change: int) -> None:
    """A length beyond the strips gave black rows."""
    content = tiff(deep, compression)
    assert decode_image(content).size == (24, 20)
    wrong = with_tag(content, tag, {WIDTH: 20, LENGTH: 24}[tag] + change)
    with pytest.raises(NystraError, match=r"p\.tif is damaged or truncated: .*"):
        decode_image(wrong, "p.tif")


@pytest.mark.parametrize("tag", [WIDTH, LENGTH, TILE_WIDTH, TILE_LENGTH])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("deep", [False, True])
def test_tiles_hold_the_pixels(deep: bool, compression: str | None, tag: int) -> None:
    content = tiff(deep, compression, (16, 16))
    assert decode_image(content).size == (24, 20)
    with pytest.raises(NystraError, match=r"p\.tif is damaged"):
        decode_image(with_tag(content, tag, 48), "p.tif")


@pytest.mark.parametrize("tag", [WIDTH, LENGTH])
@pytest.mark.parametrize("kind", ["raw", "tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg"])
def test_what_libtiff_reads_too(kind: str, tag: int) -> None:
    content = by_pillow(kind)
    assert decode_image(content).size == (24, 20)
    if (kind, tag) != ("jpeg", WIDTH):  # which has the size of its own header
        with pytest.raises(NystraError, match=r"p\.tif is damaged"):
            decode_image(with_tag(content, tag, {WIDTH: 20, LENGTH: 24}[tag] + 3), "p.tif")


@pytest.mark.parametrize("tile", [None, (16, 16)])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_truncated_tiff_is_no_image(compression: str | None, tile: tuple[int, int]) -> None:
    content = tiff(True, compression, tile)
    for length in range(len(content) // 3, len(content) - 200, len(content) // 7):
        with pytest.raises(NystraError, match=r"p\.tif is damaged"):
            decode_image(content[:length], "p.tif")


def thumbnail_first(size: tuple[int, int], small: tuple[int, int]) -> tuple[bytes, np.ndarray]:
    values = RANDOM.integers(0, 256, (*size, 3)).astype(np.uint8)
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as file:
        reduced = np.zeros((*small, 3), np.uint8)
        file.write(reduced, photometric="rgb", subfiletype=1, metadata=None, compression="zlib")
        file.write(values, photometric="rgb", subfiletype=0, metadata=None)
    return stream.getvalue(), values


def test_a_thumbnail_first_is_not_the_image(tmp_path: Path) -> None:
    content, values = thumbnail_first((20, 30), (2, 3))
    np.testing.assert_array_equal(decode_image(content).pixels * 255, values)
    (tmp_path / "p.tif").write_bytes(content)
    assert read_image_size(tmp_path / "p.tif") == (20, 30)
    assert image_head(content) == ((20, 30), "TIFF")


def test_the_limit_is_that_of_the_pixels() -> None:
    content, _ = thumbnail_first((9, 7), (300, 200))
    assert decode_image(content, max_pixels=63).size == (9, 7)
    with pytest.raises(NystraError, match="7x9, more than 62 pixels"):
        decode_image(content, max_pixels=62)


def test_a_source_of_bytes_outlives_its_stream() -> None:
    """libvips does not keep the memory alive that it reads from."""
    content = tiff(True, "zlib")
    with open_image(io.BytesIO(bytes(bytearray(content))), "p.tif") as file:
        picture = file.load()
    del file
    gc.collect()
    noise = [bytes(len(content)) for _ in range(50)]
    assert libvips().Region.new(picture).fetch(0, 0, 20, 24)
    assert len(noise) == 50


def test_a_tag_twice_is_read_in_one_way() -> None:
    content = tiff(False, None)
    at = struct.unpack_from("<I", content, 4)[0]
    doubled = bytearray(content)
    doubled[at + 2 + 12 : at + 2 + 24] = doubled[at + 2 : at + 2 + 12]
    with pytest.raises(NystraError, match="is damaged"):
        decode_image(bytes(doubled))


def test_fax_is_read_and_its_damage_reported() -> None:
    values = RANDOM.integers(0, 2, (40, 60)) > 0
    for kind in ("group3", "group4"):
        stream = io.BytesIO()
        Image.fromarray(values).save(stream, "TIFF", compression=kind)
        content = stream.getvalue()
        np.testing.assert_array_equal(decode_image(content).pixels[:, :, 0], values)
        damaged = bytearray(content)
        with tifffile.TiffFile(io.BytesIO(content)) as file:
            place = file.pages[0].aspage().dataoffsets[0]
        damaged[place + 30 : place + 60] = bytes(30)
        with pytest.raises(NystraError, match="is damaged"):
            decode_image(bytes(damaged))


def test_premultiplied_8_bits_are_divided() -> None:
    """libvips divides, and cuts the quotient to 8 bits."""
    alpha = np.arange(1, 256, dtype=np.uint8)
    color = (alpha // 2)[:, None].repeat(3, 1)
    values = np.concatenate([color, alpha[:, None]], 1)[None]
    stream = io.BytesIO()
    tifffile.imwrite(stream, values, photometric="rgb", extrasamples=["assocalpha"], metadata=None)
    image = decode_image(stream.getvalue())
    expected = color.astype(np.float64) / alpha[:, None]
    np.testing.assert_allclose(image.pixels[0], expected, atol=1.001 / 255)
    assert image.alpha is not None
    np.testing.assert_array_equal(image.alpha[0] * 255, alpha)


def changed_header(content: bytes, place: int, value: int) -> bytes:
    """Return a PNG with another number in its header, with a correct checksum."""
    header = bytearray(content[16:29])
    struct.pack_into(">I", header, place, value)
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return content[:16] + header + checksum + content[33:]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_png_holds_the_pixels_of_its_header(mode: str) -> None:
    values = RANDOM.integers(0, 256, (19, 21, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).convert(mode).save(stream, "PNG")
    content = stream.getvalue()
    assert decode_image(content).size == (19, 21)
    for place, right in ((0, 21), (4, 19)):
        with pytest.raises(NystraError, match=r"p\.png is damaged or truncated"):
            decode_image(changed_header(content, place, right + 9), "p.png")
    fewer = decode_image(changed_header(content, 4, 10), "p.png")  # surplus rows are ignored
    np.testing.assert_array_equal(fewer.pixels, decode_image(content).pixels[:10])
    flipped = bytearray(content)
    flipped[content.index(b"IDAT") + 30] ^= 4
    with pytest.raises(NystraError, match=r"p\.png is damaged"):
        decode_image(bytes(flipped), "p.png")


def test_interlaced_png_is_counted() -> None:
    import png

    for bits, (height, width) in ((8, (9, 7)), (16, (5, 13)), (8, (1, 1)), (1, (3, 9))):
        values = RANDOM.integers(0, 1 << bits, (height, width))
        stream = io.BytesIO()
        png.Writer(width, height, greyscale=True, bitdepth=bits, interlace=True).write(
            stream, values.tolist()
        )
        pixels = decode_image(stream.getvalue()).pixels[:, :, 0]
        np.testing.assert_allclose(pixels * ((1 << bits) - 1), values, atol=1e-2)


def jpeg(progressive: bool = False, **options: int) -> bytes:
    values = np.add.outer(np.arange(64), np.arange(96)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.stack([values, values.T[:64, :64].repeat(2, 1)[:, :96], values], 2)).save(
        stream, "JPEG", quality=90, progressive=progressive, **options
    )
    return stream.getvalue()


@pytest.mark.parametrize("options", [{}, {"subsampling": 2}, {"restart_marker_blocks": 3}])
def test_a_jpeg_that_ends_early_is_no_image(options: dict[str, int]) -> None:
    content = jpeg(**options)
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image) / np.float32(255)
    np.testing.assert_allclose(decode_image(content).pixels, expected, atol=1e-7)
    np.testing.assert_allclose(decode_image(content + b"tail").pixels, expected, atol=1e-7)
    scan = content.index(b"\xff\xda") + 14
    for length in (scan, (scan + len(content)) // 2, len(content) - 20):
        with pytest.raises(NystraError, match="truncated"):
            decode_image(content[:length])


def test_progressive_and_small_jpegs_are_read() -> None:
    assert decode_image(jpeg(progressive=True)).size == (64, 96)
    for height, width in ((1, 1), (8, 8), (16, 16), (17, 33), (2, 50)):
        for color in ((), (3,)):
            values = RANDOM.integers(0, 256, (height, width, *color)).astype(np.uint8)
            stream = io.BytesIO()
            Image.fromarray(values).save(stream, "JPEG")
            assert decode_image(stream.getvalue()).size == (height, width)


MEASURE = """
import resource, sys
from nystra.core.errors import NystraError
from nystra.runtime.images.images import decode_image, read_image
read_image(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    try:
        read_image(path)
        print("read", path)
    except NystraError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_small_files_that_say_they_are_large_take_no_memory(tmp_path: Path) -> None:
    """346 bytes that declare ten million rows took 3.5 GB."""
    cases: dict[str, Callable[[], bytes]] = {
        "good.tif": lambda: tiff(True, "zlib"),
        "deep.tif": lambda: with_tag(tiff(True, "zlib"), LENGTH, 10_000_000),
        "raw.tif": lambda: with_tag(tiff(True, None), LENGTH, 10_000_000),
        "flat.tif": lambda: with_tag(tiff(False, "zlib"), LENGTH, 10_000_000),
        "strip.tif": lambda: with_tag(by_pillow("tiff_lzw"), LENGTH, 10_000_000),
        "tile.tif": lambda: with_tag(tiff(True, "zlib", (16, 16)), TILE_LENGTH, 10_000_000),
        "rows.tif": lambda: with_tag(with_tag(tiff(True, None), LENGTH, 10_000_000), ROWS, 10**7),
        "wide.tif": lambda: with_tag(tiff(False, None), WIDTH, 10_000_000),
        "p.png": lambda: png_header(20_000, 20_000),
        "p16.png": lambda: png_header(20_000, 20_000, 16),
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content())
    paths = [str(tmp_path / name) for name in cases]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert int(done.stdout) < 20_000, done.stdout
