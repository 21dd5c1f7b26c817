"""Results and memory of reading faulty image files, in a process of its own.

The C library returns memory at once (`ALLOCATOR`); otherwise the peak of one file would hide in
memory that another one left.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from mutated_images import Mutation, Original, mutations, originals
from nystra.core.errors import NystraError
from nystra.runtime.images.images import (
    DECODING_BYTES,
    ImageData,
    decode_image,
    encode_image,
    image_head,
)
from nystra.runtime.machine.memory import PeakMemory, release_free_memory

LIMIT = 4_000_000
"""Pixels that are read."""

SLACK = 12 << 20
"""What libraries take of memory whatever the image: tables, allocators, messages."""


ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def in_process(*arguments: str) -> tuple[Any, str]:
    """Run this file; return what it prints as JSON, and its error output."""
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, *arguments],
        env={**os.environ, **ALLOCATOR, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout), done.stderr


def peak_of(work: Callable[[], object]) -> int:
    """Return the growth of resident memory during a function in bytes; 0 if unknown."""
    release_free_memory()
    watch = PeakMemory()
    work()
    return (watch.above or 0) if watch.exact else 0


def costed(content: bytes) -> int:
    """Return the cost of a file by its header; 0 if it is refused."""
    try:
        (height, width), _ = image_head(content)
    except NystraError:
        return 0
    pixels = height * width
    return pixels * DECODING_BYTES + 2 * len(content) if pixels <= LIMIT else 0


def pixels_of(content: bytes) -> ImageData | None:
    try:
        return decode_image(content, max_pixels=LIMIT)
    except NystraError:
        return None


def same(got: ImageData, expected: ImageData) -> bool:
    return np.array_equal(got.pixels, expected.pixels) and (
        np.array_equal(got.alpha, expected.alpha)
        if got.alpha is not None and expected.alpha is not None
        else got.alpha is expected.alpha
    )


def examine(original: Original, expected: ImageData, mutation: Mutation) -> str:
    """Return the outcome of a faulty file."""
    got: list[ImageData | None] = []
    cost = costed(mutation.content)
    peak = peak_of(lambda: got.append(pixels_of(mutation.content)))
    what = f"{original.kind} ({original.name}), {mutation.fault}"
    if peak > cost + SLACK:
        raise AssertionError(f"{what}: {peak >> 20} MiB, costed at {cost >> 20}")
    image = got[0]
    if image is None:
        return "refused"
    (height, width), _ = image_head(mutation.content)
    if image.size not in ((height, width), (width, height)):
        raise AssertionError(f"{what}: another size than its header says")
    if same(image, expected):
        return "the same"
    if mutation.bound:
        raise AssertionError(f"{what}: other pixels in silence")
    return "other pixels"


def tally(count: int, seed: int) -> dict[str, Counter[str]]:
    """Return the outcomes of a number of files, by kind."""
    files = originals()
    kinds: dict[str, list[Original]] = {}
    for file in files:
        kinds.setdefault(file.kind, []).append(file)
    result = {}
    for kind, members in kinds.items():
        outcome: Counter[str] = Counter()
        for index, original in enumerate(members):
            rng = np.random.default_rng((seed, index))
            expected = decode_image(original.content)
            share = count // len(kinds) // len(members) + 1
            for _, mutation in zip(range(share), mutations(original, rng), strict=False):
                outcome[examine(original, expected, mutation)] += 1
        result[kind] = outcome
    return result


def large(mode: str, kind: str, **options: object) -> bytes:
    ramp = np.add.outer(np.arange(1500), np.arange(1600)).astype(np.uint8)
    stream = io.BytesIO()
    image = Image.fromarray(np.stack([ramp, ramp.T[:, :1500].repeat(2, 1)[:1500, :1600], ramp], 2))
    image.convert(mode).save(stream, kind, **options)
    return stream.getvalue()


LARGE = {
    "PNG": lambda: large("RGB", "PNG"),
    "PNG, alpha": lambda: large("RGBA", "PNG"),
    "PNG, palette": lambda: large("P", "PNG", transparency=3),
    "PNG, 16 bits": lambda: encode_image(deep(3), "PNG"),
    "TIFF, 16 bits": lambda: encode_image(deep(4), "TIFF"),
    "TIFF, LZW": lambda: large("RGBA", "TIFF", compression="tiff_lzw"),
    "JPEG": lambda: large("RGB", "JPEG"),
    "JPEG, turned": lambda: large("RGB", "JPEG", exif=turned_by(6)),
    "JPEG, CMYK": lambda: large("CMYK", "JPEG", progressive=True),
    "WebP": lambda: large("RGB", "WEBP"),
    "WebP, alpha": lambda: large("RGBA", "WEBP", exif=turned_by(6)),
}


def deep(channels: int) -> ImageData:
    values = np.zeros((1500, 1600, channels), np.float32)
    return ImageData(values[:, :, :3], values[:, :, 3] if channels == 4 else None, 16)


def turned_by(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[274] = orientation
    return exif


def costs() -> dict[str, float]:
    """Return the bytes per pixel for decoding large files of each kind."""
    decode_image(large("RGB", "JPEG"))  # memory that is allocated once
    found = {}
    for name, make in LARGE.items():
        content = make()
        found[name] = peak_of(lambda content=content: decode_image(content)) / (1500 * 1600)
    return found


if __name__ == "__main__":
    result = tally(*map(int, sys.argv[1:])) if len(sys.argv) > 1 else costs()
    sys.stdout.write(json.dumps(result))
