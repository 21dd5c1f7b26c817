"""The time saved for frames that repeat the previous one, entirely or in part.

Four clips are made of a photograph, 24 frames of 320x256 each: a screencast (a pointer and a line
of text over a still page), slides (a new one every eight frames), doubled frames (12 a second shown
at 24) and a pan, of which nothing repeats. Each is restored with and without reuse, frame by frame
in turns, and processor time is counted::

    nystra-export swinir_x2_w16 --attn cluster -o x2.onnx
    python -m studies.performance.repeated_frames x2.onnx [--rounds 4] [--tile 64]

Without reuse the same code has no room to keep a tile, so that it finds none to compare. How long
comparing takes is measured by itself too: tiles are compared that differ in their last number.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from nystra.core.arrays import Array
from nystra.runtime import Session, read_image
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.images import write_image
from nystra.runtime.tasks.restoration.auxiliary_roles import AuxiliaryInputs
from nystra.runtime.tasks.restoration.restorer import Restorer, restorer_for
from nystra.runtime.tasks.video.frame_restorer import restore_singly
from nystra.runtime.tiling.run_tiled import RepeatedTiles
from nystra.runtime.video.frame_folder import FrameFolder

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


@dataclass(frozen=True)
class _Measured(Restorer):
    """A network whose repeated tiles are counted, or all computed."""

    repeats: RepeatedTiles = field(default_factory=lambda: RepeatedTiles(0))

    def without_repeats(self, size: tuple[int, int], max_memory: int | None) -> RepeatedTiles:
        """Return the given runner of tiles."""
        return self.repeats


def processor_seconds(
    network: Restorer, tiling: dict[str, Any], source: FrameFolder
) -> tuple[float, float, int]:
    """Return the processor time of a source's frames without and with reuse, and tiles reused."""
    given = {part.name: getattr(network, part.name) for part in fields(network)}
    runners = [RepeatedTiles(0), RepeatedTiles(1 << 30)]
    frames = [
        restore_singly(
            _Measured(**given, repeats=repeats), tiling, AuxiliaryInputs.match((), {}), source
        )
        for repeats in runners
    ]
    taken = [0.0, 0.0]
    for index in range(source.count):
        for which in (0, 1) if index % 2 else (1, 0):
            begin = time.process_time()
            next(frames[which])
            taken[which] += time.process_time() - begin
    return taken[0], taken[1], runners[1].reused


def share_of_comparing(model_seconds: float, shape: tuple[int, ...]) -> float:
    """Return the time to compare a tile divided by the network's time for it."""
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
    parser.add_argument("--clips", nargs="*", default=list(CLIPS), choices=CLIPS, metavar="CLIP")
    args = parser.parse_args()
    network = restorer_for(Session(args.model, threads=1))
    tiling = {"tile": args.tile, "overlap": 16}
    photograph = np.tile(read_image(PHOTOGRAPH).pixels, (3, 3, 1))
    print("| clip | tiles | reused | time without / with |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.clips:
            place = Path(folder) / name
            place.mkdir()
            for index, pixels in enumerate(CLIPS[name](photograph)):
                write_image(place / f"f{index}.png", ImageData(pixels), overwrite=False)
            source = FrameFolder(place)
            _, tiles = network(next(iter(source.frames())).load().pixels, **tiling)
            ratios, reused = [], 0
            for _ in range(args.rounds):
                without, with_reuse, reused = processor_seconds(network, tiling, source)
                ratios.append(without / with_reuse)
            print(
                f"| {name} | {tiles * FRAMES} | {reused} | {statistics.median(ratios):.3f} "
                f"({min(ratios):.3f} to {max(ratios):.3f}) |",
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
