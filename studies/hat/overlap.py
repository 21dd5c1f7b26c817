"""The time of each mechanism at one overlapping site of HAT, in PyTorch with the kernels.

Takes seconds::

    python -m studies.hat.overlap [--side 64] [--rounds 3]

Processor time of one thread, the minimum of the rounds; weights and map are random.
"""

from __future__ import annotations

import argparse
import time

import torch

from nystra.export.attention.implementation import implement
from nystra.export.attention.registry import mechanism
from nystra.models.hat.layers import OverlapBlock
from nystra.models.layers.swin import window_geometry

HEADS, DIM = 6, 180


def main() -> None:
    """Print one line per mechanism."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--side", type=int, default=64, help="of the map, in tokens")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    geometry = window_geometry(DIM, HEADS, (16, 16), margin=(4, 4))
    site = OverlapBlock(DIM, geometry, 2 * DIM)
    qkv = torch.randn(1, options.side, options.side, 3 * DIM)
    for name in ("full", "nystromformer", "nystra", "cluster"):
        compute = implement(mechanism(name), site, "operator")
        times = []
        with torch.inference_mode():
            for _ in range(options.rounds + 1):  # the first one warms up
                start = time.thread_time()
                compute(qkv, site.bias_table(), geometry)
                times.append(time.thread_time() - start)
        print(f"{name}: {1e3 * min(times[1:]):.0f} ms")


if __name__ == "__main__":
    main()
