"""All metadata of a picture together is limited, whatever its file says."""

import io
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from image_originals import ICC, chunk, exif, original, saved
from later import one_in
from nystra.runtime.images.images import decode_image, describe_left_out, encode_image

MEBIBYTE = 1 << 20


def texts_of(kind: bytes, size: int, count: int) -> list[bytes]:
    text = b"a" * size
    bodies = {
        b"tEXt": b"\0" + text,
        b"zTXt": b"\0\0" + zlib.compress(text, 9),
        b"iTXt": b"\0\1\0\0\0" + zlib.compress(text, 9),
    }
    return [chunk(kind, b"k%d" % number + bodies[kind]) for number in range(count)]


def shared_exif(size: int, tags: int) -> bytes:
    """Return EXIF data whose entries all refer to the same bytes."""
    numbers = [*range(271, 350), *range(36864, 37600), *range(1000, 2000)][:tags]
    entries = b"".join(struct.pack("<HHII", tag, 1, size, 8) for tag in sorted(numbers))
    block = b"II*\0" + struct.pack("<IH", 8, len(numbers)) + entries + bytes(4)
    return block.ljust(size + 8, b"\1")


def tiff_with(*tags: tuple[int, int]) -> bytes:
    """Return a TIFF with bytes of a size under each tag."""
    stream = io.BytesIO()
    values = np.zeros((4, 6, 3), np.uint8)
    extra = [(tag, 7, size, bytes(size), True) for tag, size in tags]
    tifffile.imwrite(stream, values, photometric="rgb", extratags=extra, metadata=None)
    return stream.getvalue()


def with_chunks(*chunks: bytes) -> bytes:
    content = saved(Image.new("RGB", (8, 8), (64, 64, 64)), "PNG")
    return content[:33] + b"".join(chunks) + content[33:]


SMALL = Image.new("RGB", (8, 8), (64, 64, 64))
TOO_MUCH = {
    "zTXt": lambda: with_chunks(*texts_of(b"zTXt", 8 * MEBIBYTE, 100)),
    "iTXt": lambda: with_chunks(*texts_of(b"iTXt", 8 * MEBIBYTE, 100)),
    "tEXt": lambda: with_chunks(*texts_of(b"tEXt", 30_000, 100)),
    "many": lambda: with_chunks(*texts_of(b"tEXt", 3, 20_000)),
    "many zTXt": lambda: with_chunks(*texts_of(b"zTXt", 9 * MEBIBYTE // 8, 3000)),
    "iCCP": lambda: with_chunks(chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(200 * MEBIBYTE)))),
    "eXIf": lambda: with_chunks(chunk(b"eXIf", shared_exif(2_000_000, 40))),
    "shared eXIf": lambda: with_chunks(chunk(b"eXIf", shared_exif(1_000_000, 900))),
    "XMP": lambda: saved(SMALL, "WEBP", xmp=b"<x/>" * MEBIBYTE),
    "WebP EXIF": lambda: saved(SMALL, "WEBP", exif=shared_exif(3_000_000, 300)),
    "WebP ICC": lambda: saved(SMALL, "WEBP", icc_profile=ICC + bytes(2_000_000)),
    "JPEG ICC": lambda: saved(SMALL, "JPEG", icc_profile=ICC + bytes(2_000_000)),
    "JPEG EXIF": lambda: saved(SMALL, "JPEG", exif=b"Exif\0\0" + shared_exif(60_000, 900)),
    "TIFF XMP": lambda: tiff_with((700, 2_000_000)),
    "TIFF Photoshop": lambda: tiff_with((34377, 3_000_000)),
    "all together": lambda: tiff_with((700, 600_000), (34377, 600_000)),
    "TIFF tags": lambda: tiff_with(*((tag, 900_000) for tag in range(50_000, 50_040))),
}
MEASURE = """
import resource, sys
from nystra.runtime.images.images import decode_image, encode_image, read_image
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
encode_image(read_image(sys.argv[1]), "PNG")
before = peak()
image = read_image(sys.argv[2])
print(max(len(encode_image(image, kind)) for kind in ("PNG", "JPEG", "TIFF", "WebP")))
print(peak() - before)
print(*image.notes)
"""


@pytest.mark.parametrize("name", one_in(5, TOO_MUCH))
def test_all_metadata_together_is_limited(tmp_path: Path, name: str) -> None:
    """A PNG of 818 kB took 3.4 GB and became one of 839 MB; so did entries that share bytes."""
    (tmp_path / "good").write_bytes(original("PNG"))
    (tmp_path / "bad").write_bytes(TOO_MUCH[name]())
    paths = [str(tmp_path / "good"), str(tmp_path / "bad")]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written, kilobytes, notes = done.stdout.split("\n", 2)
    assert "left out" in notes
    assert int(written) < 1.2 * MEBIBYTE
    length = (tmp_path / "bad").stat().st_size
    assert int(kilobytes) < 40_000 + 5 * length // 1024
    assert time.perf_counter() - start < 60


def test_metadata_within_the_limit_is_kept() -> None:
    chunks = [*texts_of(b"zTXt", 40_000, 20), chunk(b"eXIf", exif().tobytes()[6:])]
    image = decode_image(with_chunks(*chunks))
    assert (image.notes, describe_left_out(image, "PNG")) == ((), [])
    with Image.open(io.BytesIO(encode_image(image, "PNG"))) as back:
        back.load()
        assert len(back.text) == 20
        assert back.getexif()[315] == "A Person"
