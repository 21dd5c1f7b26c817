"""What PyTorch gives with the planned network, and how far a file may be from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..plugins.errors import UnsupportedModelError
from ..runtime.model.references import ReferenceCase, References
from .attention.mechanism import Mechanism
from .attention.site import swap
from .fidelity import Progress
from .pictures import Feeds
from .torch_backend import TorchBackend
from .transforms import UNCHANGED, Transform

SMALLEST_TOLERANCE = 1e-4
"""Largest difference allowed on 0..1 images where PyTorch itself is more precise than that."""

LOWEST_PSNR = 40.0
"""Of a network that only rounds to a low precision, against itself, dB: 2.5 steps of 8 bits."""

_SHARE_OF_A_SEED = 0.1
"""Mean difference allowed, over the one that another seed of a search makes."""

_MOST_OF_A_SEED = 0.5
"""The same, at most, where a low precision asks for more."""


def record_references(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    feeds: Sequence[Feeds],
    transform: Transform = UNCHANGED,
    progress: Progress = lambda _: None,
) -> References:
    """Run the planned network at the validation sizes and keep inputs, outputs and tolerances.

    The tolerance of a size is the largest of 1e-4, twice the difference between the float32 and
    the float64 run of the plain network, and, for a low precision, twice the difference between
    its yardstick (see `yardstick`) and the float64 run.

    Where a seeded search takes part, rounding may turn the order of two matches that score the
    same to the last digits; few pixels then change, and by much. There a size also has a tolerance
    of the mean difference: a tenth of what another seed changes, or twice the yardstick's mean
    difference, so that a file whose search finds other matches still fails; the yardstick's
    largest difference then allows nothing.

    Args:
        network: The loaded network.
        resolved: Mechanism of every site.
        feeds: Inputs at each size.
        transform: Of the file; its yardstick widens the tolerances.
        progress: Is called with the name of each step.

    Raises:
        UnsupportedModelError: Rounding to the precision alone does too much to the pictures.
    """
    plain = swap(network, resolved)
    searching = any(site.has_near_ties for site in resolved.values())
    others = {path: site.reseeded() for path, site in resolved.items()}
    reseeded = TorchBackend(swap(network, others)) if searching else None
    single, double = TorchBackend(plain), TorchBackend(plain, torch.float64)
    rounded = None if transform.yardstick is None else TorchBackend(transform.yardstick(plain))
    cases, tolerances, mean_tolerances = [], [], []
    for case in feeds:
        progress("PyTorch {2}x{3}".format(*case["input"].shape))
        output, exact = single.run(case), double.run(case)
        own = float(np.max(np.abs(output - exact)))
        tolerance, mean = max(SMALLEST_TOLERANCE, 2.0 * own), 0.0
        if rounded is not None:
            error = rounded.run(case).astype(np.float64) - exact
            mean = 2.0 * float(np.mean(np.abs(error)))
            if not searching:
                _refuse_coarse(error, transform.name)
                tolerance = max(tolerance, 2.0 * float(np.max(np.abs(error))))
        tolerances.append(tolerance)
        if reseeded is not None:
            change = float(np.mean(np.abs(output - reseeded.run(case))))
            _refuse_turned(mean, change, transform.name)
            mean_tolerances.append(max(_SHARE_OF_A_SEED * change, mean))
        stored = {name: np.round(one * 255.0).astype(np.uint8) for name, one in case.items()}
        cases.append(ReferenceCase(stored, {"output": output}))
    meta: dict[str, Any] = {
        "tolerances": tolerances,
        "precision": transform.label,
        "torch": torch.__version__,
    }
    if mean_tolerances:
        meta["mean_tolerances"] = mean_tolerances
    return References(tuple(cases), meta)


def _refuse_coarse(error: npt.NDArray[np.float64], low: str) -> None:
    found = -10.0 * np.log10(max(float(np.mean(error**2)), 1e-30))
    if not found >= LOWEST_PSNR:
        raise UnsupportedModelError(
            f"rounding to {low} alone leaves {found:.1f} dB of what this network gives, "
            f"and {LOWEST_PSNR:g} dB is the least: use --precision fp32"
        )


def _refuse_turned(mean: float, change: float, low: str) -> None:
    if mean > _MOST_OF_A_SEED * change:
        raise UnsupportedModelError(
            f"rounding to {low} makes the search find other matches: pictures change by "
            f"{mean / 2:.1e} in the mean, by another seed they change by {change:.1e}, so that no "
            f"check could tell a right file from a wrong one. Use --precision fp32, or another "
            "--attn"
        )
