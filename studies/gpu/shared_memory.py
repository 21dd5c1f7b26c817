"""Shared memory that a block of each CUDA kernel takes, and the blocks that a multiprocessor holds.

Launches each operator once on the emulated kernels of the tests, for one window, with the limits of
a device of each kind, and prints the largest launch. No GPU and no nvcc are needed, but g++.

    python -m studies.gpu.shared_memory [--window 16] [--channels 32]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = [str(ROOT / "tests" / part) for part in ("plugins", "helpers")]
DEVICES = {"sm_90": (227, 228), "sm_80": (163, 164), "sm_86": (99, 100), "sm_75": (64, 64)}
"""KiB of shared memory that a block may have, and that a multiprocessor has."""

OF_SYSTEM = 1024
"""Bytes that the system takes for each block from sm_80 on."""

WARPS, BLOCKS = 4, 512
LANDMARKS = {"landmark_rows": 4, "landmark_cols": 4}
CLUSTERS = {"cluster_rows": 4, "cluster_cols": 4}
OPERATORS: dict[str, dict[str, int]] = {
    "NystraWindowNystrom": LANDMARKS,
    "NystraWindowNystromformer": LANDMARKS,
    "NystraWindowSoftmax": {"bias": 1},
    "NystraWindowOverlap": {"bias": 1, "margin_h": 4, "margin_w": 4},
    "NystraWindowCluster": CLUSTERS,
    "NystraWindowCluster, a bias": {**CLUSTERS, "bias": 1},
}


def launches(window: int, channels: int) -> Iterator[tuple[str, list[int]]]:
    """Yield operator and type, and the bytes of its largest launch on each of `DEVICES`."""
    sys.path[:0] = [path for path in TESTS if path not in sys.path]
    import emulator_build
    import emulator_library
    from window_case import WindowCase

    library: Any = emulator_library.load(emulator_build.build())
    head = {"heads": 1, "head_dim": channels, "value_dim": channels, "scale": channels**-0.5}
    sizes = {"window_h": window, "window_w": window, "shift_h": 0, "shift_w": 0}
    for name, more in OPERATORS.items():
        table = None
        if more.get("bias"):
            side = 2 * window - 1 + 2 * more.get("margin_h", 0)
            table = (side * side, 1)
        elif "Nystrom" not in name:
            table = (1, 1)
        shape = (1, window, window, 3 * channels)
        case = WindowCase(name.partition(",")[0], {**head, **sizes, **more}, shape, table)
        for dtype, tensor in (("float16", 1), ("float16", 0), ("float32", 0)):
            taken = []
            for kib, _ in DEVICES.values():
                limits = (48 * 1024, WARPS, BLOCKS, tensor, kib * 1024)
                emulator_library.run(library, case, case.inputs(dtype), dtype, limits)
                taken.append(int(library.emulator_most_shared()))
            yield f"{name}, {dtype}{', tensor cores' * tensor}", taken


def main() -> int:
    """Print a Markdown table: bytes of a block, and blocks of a multiprocessor."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--channels", type=int, default=32)
    arguments = parser.parse_args()
    lines = ["| operator | " + " | ".join(DEVICES) + " |", "| --- |" + " --- |" * len(DEVICES)]
    for name, taken in launches(arguments.window, arguments.channels):
        cells = []
        for (device, (_, kib)), used in zip(DEVICES.items(), taken, strict=True):
            of_block = used + OF_SYSTEM * (device != "sm_75")
            cells.append(f"{used:,} B ({kib * 1024 // of_block})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
