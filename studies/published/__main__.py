"""Measure mechanisms on a published network whose weights are its authors'.

All attentions are replaced, without training, by the operators' CPU kernels; the PSNR is that of
luma, a border of the scale cropped. Weights and images are not shipped::

    python -m studies.published HPINet-M-x2.pth --set Set5 Set5/LR_bicubic/X2 Set5/HR

A row has the loss in dB of each set, the mean PSNR against exact attention, and the processor time
of the first set relative to exact attention (one thread, PyTorch around the kernels).
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.nystra.parameters import Nystra
from nystra.export.attention.nystromformer.parameters import Nystromformer
from nystra.models import LoadedModel, load
from studies.published.hpinet import read
from studies.quality.measure import ImageSet, Result, measure, with_kernels
from studies.quality.tables import label

MECHANISMS: tuple[Mechanism, ...] = (
    Cluster((4, 4), 4),
    Cluster((8, 8), 4),
    Cluster((4, 4), 8),
    Cluster((8, 8), 8),
    Cluster((8, 8), 8, 2),
    Cluster((2, 2), 8, order=1),
    Cluster((8, 8), 4, 2),
    Cluster((4, 4), 6),
    Nystra(),
    Nystromformer(),
)


@dataclass(frozen=True)
class Measured:
    """A mechanism on a set: its outputs, and the processor time in seconds."""

    result: Result
    seconds: float


def measured(model: LoadedModel, mechanism: Mechanism, images: ImageSet) -> Measured:
    """Run the network with one mechanism at all sites."""
    network = with_kernels(model, mechanism)
    start = time.process_time()
    result = measure(model, network, images)
    return Measured(result, time.process_time() - start)


def main() -> None:
    """Print the table in Markdown, a row when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("--scale", type=int, default=2, choices=(2, 4), help="(%(default)s)")
    parser.add_argument(
        "--set", action="append", required=True, nargs=3, metavar=("NAME", "INPUTS", "TRUTHS")
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(read(options.weights, options.scale))
    sets = [ImageSet(name, Path(inputs), Path(truths)) for name, inputs, truths in options.set]
    exact = [measured(model, Full(), images) for images in sets]
    print(f"| mechanism | {' | '.join(images.name for images in sets)} | against exact | time |")
    print("| --- |" + " ---: |" * (len(sets) + 2))
    print(f"| exact | {' | '.join(f'{one.result.quality.psnr:.3f} dB' for one in exact)} | | 1 |")
    for mechanism in MECHANISMS:
        found = [measured(model, mechanism, images) for images in sets]
        losses = [
            f"{after.result.quality.psnr - before.result.quality.psnr:.3f}"
            for before, after in zip(exact, found, strict=True)
        ]
        against = statistics.mean(found[0].result.against(exact[0].result))
        ratio = found[0].seconds / exact[0].seconds
        row = [label(mechanism), *losses, f"{against:.1f} dB", f"{ratio:.2f}"]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
