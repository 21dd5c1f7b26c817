"""Image files with one fault each, and the results that a reader may return.

A fault is *bound* if libvips reports it: data that ends before the pixels do, missing pieces,
checksums of PNG. For those a reader returns the pixels of the whole file or an error. The others
change what has no checksum or one that decoders do not compare (samples of TIFF, JPEG, WebP), and
their interpretation (color, predictor, tables, orientation), leave surplus data, which decoders
ignore (a smaller size), or end a JPEG early with an end marker; for those a reader returns an image
of the size in the header, or an error.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tifffile
from PIL import Image

HEIGHT, WIDTH = 40, 56
NUMBERS = (0, 1, 2, 3, 7, 255, 256, 65535, 65536, 10**7, 2**31 - 1, 2**32 - 1)


@dataclass(frozen=True)
class Original:
    """A whole file."""

    name: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Mutation:
    """A file with a fault; ``bound`` as above."""

    fault: str
    content: bytes
    bound: bool


def originals() -> list[Original]:
    """Return files of every supported kind."""
    return [*_tiffs(), *_pngs(), *_jpegs(), *_webps()]


def mutations(original: Original, rng: np.random.Generator) -> Iterator[Mutation]:
    """Yield faulty copies of a file, endlessly."""
    faults = FAULTS[original.kind]
    while True:
        damaged = faults[int(rng.integers(len(faults)))](original, rng)
        if damaged is not None and damaged.content != original.content:
            yield damaged


def _values(channels: int, dtype: type[np.unsignedinteger]) -> np.ndarray:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    wave = [(np.sin((rows * (i + 1) + columns) / 9) + 1) / 2 for i in range(channels)]
    noise = np.random.default_rng(channels).random((HEIGHT, WIDTH, channels)) / 8
    return ((np.stack(wave, 2) * 0.8 + noise) * np.iinfo(dtype).max).astype(dtype)


def _tiffs() -> Iterator[Original]:
    for deep in (False, True):
        for channels in (1, 3):
            values = _values(channels, np.uint16 if deep else np.uint8)
            for compression in (None, "zlib"):
                for cut in ({"rowsperstrip": 8}, {"tile": (16, 32)}, {"rowsperstrip": HEIGHT}):
                    stream = io.BytesIO()
                    tifffile.imwrite(
                        stream,
                        values if channels == 3 else values[:, :, 0],
                        photometric="rgb" if channels == 3 else "minisblack",
                        compression=compression,
                        metadata=None,
                        **cut,
                    )
                    name = f"{16 if deep else 8} bits, {channels}, {compression}, {cut}"
                    yield Original(name, "TIFF", stream.getvalue())
    for compression in ("tiff_lzw", "packbits", "jpeg"):
        stream = io.BytesIO()
        Image.fromarray(_values(3, np.uint8)).save(stream, "TIFF", compression=compression)
        yield Original(compression, "TIFF", stream.getvalue())


def _saved(mode: str, kind: str, **options: object) -> Original:
    stream = io.BytesIO()
    Image.fromarray(_values(4, np.uint8), "RGBA").convert(mode).save(stream, kind, **options)
    return Original(f"{mode} {options}", kind, stream.getvalue())


def _pngs() -> Iterator[Original]:
    import png

    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        yield _saved(mode, "PNG")
    for channels in (1, 3):
        for interlace in (False, True):
            stream = io.BytesIO()
            writer = png.Writer(
                WIDTH, HEIGHT, greyscale=channels == 1, bitdepth=16, interlace=interlace
            )
            writer.write(stream, _values(channels, np.uint16).reshape(HEIGHT, -1).tolist())
            yield Original(f"16 bits, {channels}, {interlace}", "PNG", stream.getvalue())


def _jpegs() -> Iterator[Original]:
    for mode in ("L", "RGB"):
        for options in ({"subsampling": 0}, {"subsampling": 2}, {"restart_marker_blocks": 5}):
            yield _saved(mode, "JPEG", quality=90, **options)
    yield _saved("RGB", "JPEG", progressive=True)


def _webps() -> Iterator[Original]:
    for mode in ("RGB", "RGBA"):
        for lossless in (False, True):
            yield _saved(mode, "WEBP", lossless=lossless)


Fault = Callable[[Original, np.random.Generator], Mutation | None]


def _cut(original: Original, rng: np.random.Generator) -> Mutation:
    """Truncate the file; of a TIFF the directory may be at the end or not."""
    return Mutation("cut short", original.content[: int(rng.integers(len(original.content)))], True)


def _random_bytes(original: Original, rng: np.random.Generator) -> Mutation:
    data = bytearray(original.content)
    for place in rng.integers(0, len(data), int(rng.integers(1, 5))):
        data[place] = int(rng.integers(256))
    # After a changed header other checksums may fit.
    return Mutation("bytes", bytes(data), original.kind == "PNG")


def _moved(original: Original, rng: np.random.Generator) -> Mutation:
    """Remove a piece, or repeat one."""
    data, place = original.content, int(rng.integers(len(original.content)))
    length = int(rng.integers(1, 33))
    if rng.integers(2):
        changed = data[:place] + data[place + length :]
    else:
        changed = data[:place] + data[place : place + length] + data[place:]
    return Mutation("piece", changed, original.kind == "PNG")


def _number(old: int, rng: np.random.Generator) -> int:
    near = (old - 1, old + 1, 2 * old, old // 2, old + 8, old - 8)
    return int(rng.choice([number for number in (*near, *NUMBERS) if number >= 0]))


def _entries(data: bytes) -> list[tuple[int, int, int]]:
    """Return tag, type and place of the entries of a little-endian TIFF."""
    at = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, at)[0]
    places = range(at + 2, at + 2 + 12 * count, 12)
    return [(*struct.unpack_from("<HH", data, place), place) for place in places]


def _tag(original: Original, rng: np.random.Generator) -> Mutation | None:
    """Change the value, type or count of a tag."""
    data = bytearray(original.content)
    tag, kind, place = _entries(data)[int(rng.integers(len(_entries(data))))]
    count, old = struct.unpack_from("<II", data, place + 4)
    inline = count * {3: 2, 4: 4}.get(kind, 8) <= 4
    part = int(rng.integers(6))
    if part == 0:
        struct.pack_into("<H", data, place + 2, int(rng.integers(20)))
    elif part == 1:
        struct.pack_into("<I", data, place + 4, _number(count, rng))
    else:
        number = _number(old & 65535 if kind == 3 else old, rng)
        if number > 65535 and kind == 3:
            struct.pack_into("<H", data, place + 2, 4)
        struct.pack_into("<I", data, place + 8, number)
    sized = tag in (256, 257) and inline and part > 1 and number > old and original.name != "jpeg"
    if "tile" in original.name:  # the last tiles are padded
        sized = sized and _tiles(old, tag) != _tiles(number, tag)
    return Mutation(f"tag {tag}", bytes(data), sized)


def _tiles(side: int, tag: int) -> int:
    return -(-side // (32 if tag == 256 else 16))


def _tag_lost(original: Original, rng: np.random.Generator) -> Mutation:
    data = bytearray(original.content)
    tag, _, place = _entries(data)[int(rng.integers(len(_entries(data))))]
    struct.pack_into("<H", data, place, 65000)
    # Samples and bits have defaults, and an image of one strip needs no rows of strips.
    return Mutation(f"no tag {tag}", bytes(data), tag in (256, 257, 273, 324))


def _samples(original: Original, rng: np.random.Generator) -> Mutation | None:
    """Change a byte of a TIFF's samples."""
    data = bytearray(original.content)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages[0].aspage()
        segment = int(rng.integers(len(page.dataoffsets)))
        offset, count = page.dataoffsets[segment], page.databytecounts[segment]
        compression = int(page.compression)
    data[offset + int(rng.integers(count))] ^= 1 << int(rng.integers(8))
    return Mutation(f"samples, compression {compression}", bytes(data), False)


def _png_header(original: Original, rng: np.random.Generator) -> Mutation:
    """Change a size of a PNG, its checksum with it; pixels of 1 bit fill the last byte of a row."""
    data = bytearray(original.content)
    place = 16 + 4 * int(rng.integers(2))
    old = struct.unpack_from(">I", data, place)[0]
    new = _number(old, rng)
    struct.pack_into(">I", data, place, new)
    struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    filled = place == 16 and data[24] == 1 and -(-old // 8) == -(-new // 8)
    return Mutation("size", bytes(data), new > old and not filled)


def _png_meaning(original: Original, rng: np.random.Generator) -> Mutation:
    """Change depth, colors or interlacing of a PNG, its checksum with it."""
    data = bytearray(original.content)
    data[24 + int(rng.integers(5))] = int(rng.choice((0, 1, 2, 3, 4, 6, 8, 16)))
    struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    return Mutation("meaning", bytes(data), False)


def _jpeg_size(original: Original, rng: np.random.Generator) -> Mutation:
    """Change a size of a JPEG."""
    data = bytearray(original.content)
    progressive = b"\xff\xc2" in original.content
    frame = original.content.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    place = frame + 5 + 2 * int(rng.integers(2))
    old = struct.unpack_from(">H", data, place)[0]
    new = min(_number(old, rng), 65535)
    struct.pack_into(">H", data, place, new)
    return Mutation("size", bytes(data), False)


def _jpeg_ended(original: Original, rng: np.random.Generator) -> Mutation:
    """End the scan of a JPEG early, with the marker of its end."""
    data = original.content
    scan = data.index(b"\xff\xda") + 14
    place = int(rng.integers(scan, scan + (len(data) - scan) * 3 // 4))
    return Mutation("early end", data[:place].rstrip(b"\xff") + b"\xff\xd9", False)


def _webp_length(original: Original, rng: np.random.Generator) -> Mutation:
    """Change the length of the file or of its first chunk."""
    data = bytearray(original.content)
    place = int(rng.choice((4, 16)))
    struct.pack_into("<I", data, place, _number(struct.unpack_from("<I", data, place)[0], rng))
    return Mutation("length", bytes(data), True)


_ANY = (_cut, _random_bytes, _moved)
FAULTS: dict[str, tuple[Fault, ...]] = {
    "TIFF": (*_ANY, _tag, _tag, _tag, _tag_lost, _samples),
    "PNG": (*_ANY, _png_header, _png_meaning),
    "JPEG": (*_ANY, _jpeg_size, _jpeg_ended),
    "WEBP": (*_ANY, _webp_length),
}
"""Kind of file -> its faults, those that come more often named more than once."""
