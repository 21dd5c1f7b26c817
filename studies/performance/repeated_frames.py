"""What frames save that repeat the one before, in the whole or in part.

Four clips are made of a photograph, 24 frames of 320x256 each: a screencast (a pointer and a line
of text over a still page), slides (a new one every eight frames), doubled frames (12 a second shown
at 24) and a pan, of which nothing repeats. Each is restored with and without reuse, in turn::

    nystra-export swinir_x2_w16 --attn cluster -o x2.onnx
    python -m studies.performance.repeated_frames x2.onnx [--rounds 4] [--tile 64]

The share of time that comparing takes is measured by itself, since no difference of two runs is as
small: tiles are compared that differ in their last number.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nystra.core.arrays import Array
from nystra.runtime import Session, read_image
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import write_image
from nystra.runtime.tasks.restoration.auxiliary_inputs import AuxiliaryInputs
from nystra.runtime.tasks.restoration.session_restorer import restorer_for
from nystra.runtime.tasks.video.frame_restorer import SingleFrameRestorer
from nystra.runtime.tiling.repeated_tiles import RepeatedTiles
from nystra.runtime.video.folder_source import FrameFolder

PHOTOGRAPH = Path(__file__).parents[2] / "export" / "photographs" / "coffee.png"
FRAMES, SIZE = 24, (256, 320)


def pan(photograph: Array) -> Iterator[Array]:
    """Yield a part of the photograph that moves by two pixels a frame."""
    for index in range(FRAMES):
        yield photograph[2 * index :, 2 * index :][: SIZE[0], : SIZE[1]]


def doubled(photograph: Array) -> Iterator[Array]:
    """Yield every other frame of the pan twice."""
    for index, frame in enumerate(pan(photograph)):
        if index % 2 == 0:
            yield from (frame, frame)


def slides(photograph: Array) -> Iterator[Array]:
    """Yield three images, eight frames each."""
    for index in range(FRAMES):
        yield photograph[40 * (index // 8) :, :][: SIZE[0], : SIZE[1]]


def screencast(photograph: Array) -> Iterator[Array]:
    """Yield a still page: a line of text grows, and a pointer moves in the last third."""
    for index in range(FRAMES):
        page = photograph[: SIZE[0], : SIZE[1]].copy()
        page[20:28, 10 : 10 + 6 * index] = 0.1
        if index >= 2 * FRAMES // 3:
            page[120:132, 100 + 8 * (index % 8) :][:, :8] = 1.0
        yield page


CLIPS = {"screencast": screencast, "slides": slides, "doubled frames": doubled, "pan": pan}


def seconds(
    restorer: SingleFrameRestorer, source: FrameFolder, *, reuse: bool
) -> tuple[float, int]:
    """Return how long the frames of a source take, and how many tiles were reused."""
    begin = time.perf_counter()
    if not reuse:
        for frame in source.frames():
            restorer.restorer(frame.load().pixels, **restorer.tiling)
        return time.perf_counter() - begin, 0
    reused = sum(frame.reused for frame in restorer.restore(source, lambda index: True))
    return time.perf_counter() - begin, reused


def share_of_comparing(model_seconds: float, shape: tuple[int, ...]) -> float:
    """Return how long it takes to compare a tile, over how long the network takes for it."""
    one = np.random.default_rng(0).random(shape, np.float32)
    other = one.copy()
    other[..., -1, -1] += 1
    repeats = RepeatedTiles(1 << 30)
    list(repeats(lambda tile: tile, [[one]]))
    times = []
    for _ in range(50):
        repeats.begin_frame()
        begin = time.perf_counter()
        repeats._reuse(0, [other])
        times.append(time.perf_counter() - begin)
    return statistics.median(times) / model_seconds


def main() -> None:
    """Print a row for each clip."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tile", type=int, default=64)
    args = parser.parse_args()
    network = restorer_for(Session(args.model, threads=2))
    tiling = {"tile": args.tile, "overlap": 16}
    restorer = SingleFrameRestorer(network, tiling, AuxiliaryInputs.match((), {}))
    photograph = np.tile(read_image(PHOTOGRAPH).pixels, (3, 3, 1))
    print("| clip | tiles | reused | time without / with |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, frames in CLIPS.items():
            place = Path(folder) / name
            place.mkdir()
            for index, pixels in enumerate(frames(photograph)):
                write_image(place / f"f{index}.png", ImageData(pixels), overwrite=False)
            source = FrameFolder(place, None)
            _, tiles = network(next(iter(source.frames())).load().pixels, **tiling)
            ratios, reused = [], 0
            for turn in range(args.rounds):
                taken = {}
                for reuse in (False, True) if turn % 2 else (True, False):
                    taken[reuse], count = seconds(restorer, source, reuse=reuse)
                    reused = max(reused, count)
                ratios.append(taken[False] / taken[True])
            print(
                f"| {name} | {tiles * FRAMES} | {reused} | {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}) |",
                flush=True,
            )
    image = np.random.default_rng(0).random((1, 3, args.tile, args.tile), np.float32)
    begin = time.perf_counter()
    for _ in range(10):
        network.function(image)
    alone = (time.perf_counter() - begin) / 10
    share = share_of_comparing(alone, image.shape)
    print(f"comparing a tile of {args.tile}x{args.tile} takes {share:.3%} of running it")


if __name__ == "__main__":
    main()
