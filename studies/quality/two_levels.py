"""Compare ``cluster`` with clusters on two levels, at the same number of logits of a query.

On two levels a window is cut into cells, and the keys of each cell have clusters of their own: a
query attends to the tokens of its block exactly, to the rest of its cell through the cell's
clusters, and to the rest of the window through those of the window. It is a prototype in plain
PyTorch, for windows without bias and shift, that measures the accuracy drop and no time: a query
costs the same as with as many clusters on one level::

    python -m studies.quality.two_levels --set Set5/LR_bicubic/X2 Set5/HR \\
        swinir_x2_w32_nobias:64 swinir_x2_w32_nobias:96
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nystra.export.attention.full.parameters import Full
from nystra.models.geometry import WindowGeometry
from nystra.plugins.operators.cluster_torch import Blocks, key_clusters
from nystra.plugins.operators.window_cluster.schema import cluster_seeds
from nystra.plugins.operators.windows_torch import merge, partition
from studies.quality.frontier import Subject
from studies.quality.measure import ImageSet, measure

BLOCK = 8


@dataclass(frozen=True)
class TwoLevels:
    """The mechanism, as ``models.sites.WindowSite`` calls it.

    Attributes:
        side: Root of the number of clusters of a window.
        near: Root of the number of clusters of a cell; 0: one level.
        cell: Side of a cell, a multiple of the block.
    """

    side: int
    near: int = 0
    cell: int = 32

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv (B, H, W, 3 C)."""
        window = geometry.window[0]
        cell = self.cell if self.near else BLOCK
        cells = _grid(window, cell)
        blocks = _grid(cell, BLOCK)
        q, k, v = partition(qkv, geometry)
        k = k - k.mean(-2, keepdim=True)
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        q, near_k, near_v = (cells.cut(x) for x in (q * geometry.scale, k, v))

        members, centers = key_clusters(k, _seeds(window, self.side), 0)
        of_cells = cells.cut(members).mT @ near_v
        far = (of_cells.sum(-3, keepdim=True) - of_cells).unsqueeze(-3)
        parts = [(centers[..., None, None, :, :], far)]
        if self.near:
            members, centers = key_clusters(near_k, _seeds(cell, self.near), 0)
            of_blocks = blocks.cut(members).mT @ blocks.cut(near_v)
            parts.append((centers.unsqueeze(-3), of_blocks.sum(-3, keepdim=True) - of_blocks))
        q, own_k, own_v = (blocks.cut(x) for x in (q, near_k, near_v))
        weights = (q @ own_k.mT).exp()
        total = weights @ own_v
        for centers, sums in parts:
            total = total + (q @ centers.mT).exp() @ sums
        out = blocks.join(total[..., :-1] / total[..., -1:])
        return merge(cells.join(out), qkv.shape[1:-1], geometry)

    @property
    def label(self) -> str:
        """Its label in the table."""
        text = f"{self.side**2} of the window"
        return text + (f", {self.near**2} of each {self.cell}x{self.cell}" if self.near else "")


def _grid(side: int, step: int) -> Blocks:
    return Blocks.of([[*range(0, side, step), side]] * 2, torch.device("cpu"))


def _seeds(side: int, count: int) -> Tensor:
    places = cluster_seeds(side, count)
    return torch.tensor([row * side + column for row in places for column in places])


SETTINGS = (
    TwoLevels(6),
    TwoLevels(8),
    TwoLevels(10),
    TwoLevels(4, 4),
    TwoLevels(4, 4, 16),
    TwoLevels(4, 7),
    TwoLevels(6, 5),
    TwoLevels(6, 5, 16),
    TwoLevels(7, 4),
    TwoLevels(7, 4, 16),
    TwoLevels(8, 6),
)


def planned(subject: Subject, setting: TwoLevels) -> nn.Module:
    """Return the network with the setting at the windows of the subject."""
    network = subject.with_mechanism(Full())
    for path in subject.sites():
        network.get_submodule(path).implementation = setting  # type: ignore[assignment]
    return network


def main() -> None:
    """Print one row per setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subjects", nargs="+", metavar="NAME:WINDOW")
    parser.add_argument("--set", nargs=2, metavar=("INPUTS", "TRUTHS"), type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    images = ImageSet("", *options.set)
    for text in options.subjects:
        name, _, window = text.rpartition(":")
        subject = Subject.of(name, int(window))
        exact = measure(subject.model, subject.with_mechanism(Full()), images)
        for setting in SETTINGS:
            found = measure(subject.model, planned(subject, setting), images)
            lost = exact.quality.psnr - found.quality.psnr
            against = statistics.mean(found.against(exact))
            clusters = setting.side**2 + setting.near**2
            print(
                f"| {window} | {setting.label} | {clusters} | {lost:.4f} | {against:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
