"""The attention matrices of a network on an image, exact ones and those of a mechanism.

Only the exact mechanism computes its matrix. All of them are linear in the values, so that unit
vectors as values give the matrix, with mask, bias, guard and clusters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from nystra.export.attention.full.parameters import Full
from nystra.export.attention.implementation import implement
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.site import find_sites
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import LoadedModel
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite
from nystra.plugins.operators.windows_torch import partition
from nystra.runtime.images.images import read_image
from studies.quality.measure import planned
from studies.quality.tables import label

Pixels = npt.NDArray[np.float32]
Row = dict[str, Any]
Windows = Callable[[Tensor, Tensor | None, WindowGeometry], Tensor]

EXACT = Full()
SPECTRUM = 50


@dataclass(frozen=True)
class Seen:
    """The input of a site for an image.

    Attributes:
        path: Of the site.
        site: It.
        qkv: Its packed map (1, H, W, h(2d+e)).
    """

    path: str
    site: WindowSite
    qkv: Tensor

    def matrices(self, mechanism: Mechanism, *, bias: bool = True) -> Tensor:
        """Return the matrices of all heads, (h, windows, N, N), a row for a query.

        Args:
            mechanism: Fits the site.
            bias: With the site's position bias, if it has one.
        """
        table = self.site.relative_position_bias_table
        return matrices(
            implement(mechanism.at(self.site.geometry), self.site, "plain"),
            self.qkv,
            table if bias else None,
            self.site.geometry,
        )


def matrices(
    compute: Windows, qkv: Tensor, table: Tensor | None, geometry: WindowGeometry
) -> Tensor:
    """Return what multiplies the values of each head, (h, windows, N, N).

    All heads are computed together, since the start of a pseudoinverse may be that of the batch.

    Args:
        compute: Attention in windows; shapes as ``models.sites.WindowSite`` says.
        qkv: (1, H, W, h(2d+e)).
        table: Position bias, ((2wh-1)(2ww-1), h), or None.
        geometry: Of the site.
    """
    own = qkv[..., : 2 * geometry.heads * geometry.head_dim]
    wide = replace(geometry, value_dim=geometry.tokens)
    units = F.one_hot(_places(qkv.shape[1:3], geometry), geometry.tokens)[None].to(qkv)
    out = compute(torch.cat((own, units.repeat(1, 1, 1, geometry.heads)), -1), table, wide)
    return partition(torch.cat((own, out), -1), wide)[2][0].transpose(0, 1)


def _places(sides: Sequence[int], geometry: WindowGeometry) -> Tensor:
    """Return the index (H, W) of each token in its window after the cyclic shift."""
    rows, cols = (
        torch.arange(size) % window for size, window in zip(sides, geometry.window, strict=True)
    )
    return torch.roll(rows[:, None] * geometry.window[1] + cols, geometry.shift, (0, 1))


def images(folder: Path, side: int) -> list[Pixels]:
    """Return the center of every image of a folder, (1, 3, H, W), at most that side, 0..1."""
    cut = []
    for path in sorted(folder.glob("*.png")):
        pixels = read_image(path).pixels
        top, left = (max(0, size - side) // 2 for size in pixels.shape[:2])
        middle = pixels[top : top + side, left : left + side]
        cut.append(np.moveaxis(middle, 2, 0)[None].astype(np.float32))
    if not cut:
        raise SystemExit(f"no .png in {folder}: give the folder of a network's inputs")
    return cut


def seen(model: LoadedModel, image: Pixels) -> list[Seen]:
    """Return the input of each site of a network with full attention."""
    network = planned(model, EXACT)
    places: list[Seen] = []
    for site in find_sites(network):
        compute: Any = site.module.implementation

        def record(
            qkv: Tensor,
            table: Tensor | None,
            geometry: WindowGeometry,
            place: Any = site,
            compute: Any = compute,
        ) -> Tensor:
            places.append(Seen(place.path, place.module, qkv.clone()))
            out: Tensor = compute(qkv, table, geometry)
            return out

        site.module.implementation = record
    NetworkSession(network)(image)
    return places


def _each(model: LoadedModel, inputs: Sequence[Pixels]) -> Iterator[Seen]:
    """Yield the input of each site for each image, and say on stderr which it is."""
    name = model.checkpoint.path.stem
    for number, image in enumerate(inputs, 1):
        places = seen(model, image)
        for at, place in enumerate(places, 1):
            said = f"{name}: image {number}/{len(inputs)}, site {at}/{len(places)} {place.path}"
            print(said, file=sys.stderr, flush=True)
            yield place


def error_rows(
    name: str, model: LoadedModel, inputs: Sequence[Pixels], plans: Sequence[Mechanism]
) -> list[Row]:
    """Return the mean square error of the matrices of plans, one row per site.

    The queries and keys are those of the network with full attention. ``square`` is the mean
    square of the exact entries: the error of a matrix of zeros; ``uniform`` the error of 1/N
    everywhere, which is the mean of the values.
    """
    sums: dict[str, list[dict[str, float]]] = {}
    about: dict[str, Row] = {}
    own = {label(plan): plan.for_network(model.facts.architecture, model.hyper) for plan in plans}
    with torch.inference_mode():
        for place in _each(model, inputs):
            geometry = place.site.geometry
            exact = place.matrices(EXACT)
            figures = {
                "square": _mean_square(exact),
                "uniform": _mean_square(exact - 1 / geometry.tokens),
            }
            for title, plan in own.items():
                figures[title] = _mean_square(place.matrices(plan) - exact)
            sums.setdefault(place.path, []).append(figures)
            about[place.path] = {"model": name, "site": place.path, "tokens": geometry.tokens}
    return [about[path] | _means(figures) for path, figures in sums.items()]


def _mean_square(values: Tensor) -> float:
    return float(values.double().square().mean())


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def spectrum(
    model: LoadedModel, inputs: Sequence[Pixels], most: int, *, bias: bool = True
) -> npt.NDArray[np.float64]:
    """Return the largest singular values of the exact matrices, the first of each matrix 1.

    Args:
        model: A network.
        inputs: Images, (1, 3, H, W).
        most: Windows of a site, head and image that are taken, evenly among all.
        bias: With the position bias.

    Returns:
        The mean over images, sites, heads and windows, (50,) or less.
    """
    values = []
    with torch.inference_mode():
        for place in _each(model, inputs):
            for windows_of_head in place.matrices(EXACT, bias=bias):
                for matrix in windows_of_head[:: -(-len(windows_of_head) // most)]:
                    singular = torch.linalg.svdvals(matrix)[:SPECTRUM]
                    values.append((singular / singular[0]).double().numpy())
    least = min(map(len, values))
    mean: npt.NDArray[np.float64] = np.mean([spectrum[:least] for spectrum in values], 0)
    return mean
