"""The tables of quality: their plans, and the measurement of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nystra.core.json_text import json_number
from nystra.core.option_kinds import squarest_grid
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.landmarks import Landmarks
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.nystra.parameters import Nystra, NystraPublished
from nystra.export.attention.nystromformer.parameters import Nystromformer
from nystra.models import LoadedModel
from nystra.runtime.images.images import read_image
from nystra.runtime.images.pairs import pair_images
from studies.quality.measure import (
    Change,
    ImageSet,
    Result,
    drop_bias,
    measure,
    planned,
    sharpen,
    sharpness,
)

Row = dict[str, Any]
Models = Mapping[str, LoadedModel]
Progress = Callable[[str], None]
Engine = Callable[[LoadedModel, Mechanism, Change | None], Any]
Variants = Iterable[tuple[str, Mechanism, Change | None]]


@dataclass(frozen=True)
class Study:
    """The settings of the tables.

    Attributes:
        models: Name -> network.
        sets: Images with ground truth; some tables take the first only.
        progress: Called with a line after each measurement.
        engine: What runs a plan, in the tables of plans, masks and sharp networks.
        only: Beginnings of labels; other plans are left out where the table has many.
    """

    models: Models
    sets: Sequence[ImageSet]
    progress: Progress
    engine: Engine = planned
    only: Sequence[str] = ("",)

    def wanted(self, plans: Sequence[Mechanism]) -> list[Mechanism]:
        """Return the plans whose labels start with one of ``only``."""
        return [plan for plan in plans if label(plan).startswith(tuple(self.only))]


LANDMARKS = (8, 16, 32)
CLUSTERS = (4, 16, 64)
ITERATIONS = (1, 2, 3, 6)
GUARD = Nystra().guard
SHARPNESS = (1.0, 2.0, 4.0, 8.0, 16.0)
GUARDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
THRESHOLDS = (1.0, 2.0, 5.0, 10.0, 20.0)


def nystra(
    landmarks: int, iterations: int = 6, guard: float = GUARD, mask: str = "regions"
) -> Nystra:
    """Return ``nystra`` with landmarks in the form of the command line."""
    return Nystra(squarest_grid(landmarks), iterations, guard=guard, mask=mask)


def published(landmarks: int, iterations: int = 6) -> NystraPublished:
    """Return ``nystra`` as its authors published it."""
    return NystraPublished(squarest_grid(landmarks), iterations)


def nystromformer(landmarks: int, iterations: int = 6, mask: str = "regions") -> Nystromformer:
    """Return ``nystromformer``."""
    return Nystromformer(squarest_grid(landmarks), iterations, mask=mask)


def cluster(clusters: int, block: int = 4, mask: str = "regions") -> Cluster:
    """Return ``cluster``."""
    return Cluster(squarest_grid(clusters), block, mask=mask)


def label(mechanism: Mechanism) -> str:
    """Return a mechanism with its parameters in a few words."""
    text = mechanism.name
    if isinstance(mechanism, (Landmarks, NystraPublished)):
        text += f" {mechanism.landmarks[0] * mechanism.landmarks[1]}, {mechanism.iterations} it"
    if isinstance(mechanism, Nystra):
        usual = Nystra()
        if mechanism.threshold != usual.threshold:
            text += f", threshold {mechanism.threshold:g}"
        if mechanism.guard != usual.guard:
            text += f", guard {mechanism.guard:g}" if mechanism.guard else ", no guard"
        if mechanism.init != usual.init:
            text += f", start of the {mechanism.init}"
    if isinstance(mechanism, Cluster):
        (rows, columns), block = mechanism.sizes()
        text += f" {rows * columns}, block {block}"
        text += f", {mechanism.rounds} more rounds" if mechanism.rounds else ""
        text += f", order {mechanism.order}" if mechanism.order else ""
    return f"{text}, mask none" if mechanism.values().get("mask") == "none" else text


def all_plans() -> list[Mechanism]:
    """Return the plans of the main table."""
    return [
        *(nystra(m, n, guard) for m in LANDMARKS for guard in (GUARD, 0.0) for n in ITERATIONS),
        *(published(m, n) for m in LANDMARKS for n in ITERATIONS),
        *(nystromformer(m) for m in LANDMARKS),
        *(cluster(m) for m in CLUSTERS),
        *(cluster(m, block=8) for m in CLUSTERS),
    ]


def plans_table(study: Study) -> list[Row]:
    """Measure every selected plan."""
    return _everywhere(study, study.wanted(all_plans()))


def masks_table(study: Study) -> list[Row]:
    """Measure shifted windows with separate regions, and with the mask ignored."""
    plans: list[Mechanism] = [Full(mask="none")]
    for mask in ("regions", "none"):
        plans += [*(nystra(m, mask=mask) for m in LANDMARKS)]
        plans += [nystromformer(16, mask=mask), cluster(16, mask=mask)]
    return _everywhere(study, plans)


def settings_table(study: Study) -> list[Row]:
    """Measure the guard and the threshold of ``nystra`` on the first set, in plain PyTorch."""
    plans = [nystra(16, n, guard) for n in (2, 6) for guard in GUARDS]
    plans += [replace(nystra(16), threshold=number) for number in THRESHOLDS]
    first = replace(study, sets=study.sets[:1], engine=planned)
    return _everywhere(first, list(dict.fromkeys(plans)))


def bias_table(study: Study) -> list[Row]:
    """Measure the loss of full attention without its position bias, in plain PyTorch."""
    variants = [("full, no position bias", Full(), drop_bias)]
    return [
        row
        for name, model in study.models.items()
        if model.hyper.get("position_bias", True)
        for one_set in study.sets
        for row in _compare(name, model, one_set, variants, study.progress)
    ]


def sharp_table(study: Study) -> list[Row]:
    """Measure plans on networks whose logits are multiplied, against the same full attention.

    An artificial stress: no network was trained like this, so ground truth means nothing here.
    """
    plans: list[Mechanism] = [nystra(16, n, g) for g in (GUARD, 0.0) for n in (2, 6)]
    plans += [nystra(32), nystromformer(16), nystromformer(32), cluster(16), cluster(16, block=8)]
    plans = study.wanted(plans)
    rows = []
    for name, model in study.models.items():
        first = study.sets[0]
        (here, _), *_ = pair_images(first.inputs, first.truths)
        image = np.moveaxis(read_image(here).pixels, 2, 0)[None].astype(np.float32)
        for factor in SHARPNESS:
            change = sharpen(factor)
            measured = sharpness(planned(model, Full(), change), image)
            variants = [(label(plan), plan, change) for plan in plans]
            compared = _compare(name, model, first, variants, study.progress, change, study.engine)
            for row in compared[1:]:
                kept = {key: row[key] for key in row.keys() - {"psnr", "change", "ssim"}}
                rows.append(kept | {"factor": factor, **measured})
    return rows


def _everywhere(study: Study, plans: Sequence[Mechanism]) -> list[Row]:
    variants = [(label(plan), plan, None) for plan in plans]
    return [
        row
        for name, model in study.models.items()
        for one_set in study.sets
        for row in _compare(name, model, one_set, variants, study.progress, engine=study.engine)
    ]


def _compare(
    name: str,
    model: LoadedModel,
    images: ImageSet,
    variants: Variants,
    progress: Progress,
    base: Change | None = None,
    engine: Engine = planned,
) -> list[Row]:
    progress(f"{name} {images.name} full")
    full = measure(model, engine(model, Full(), base), images)
    rows = [_row(name, images, "full", full, full)]
    for text, parameters, change in variants:
        progress(f"{name} {images.name} {text}")
        result = measure(model, engine(model, parameters, change), images)
        rows.append(_row(name, images, text, result, full))
    return rows


def _row(model: str, images: ImageSet, plan: str, result: Result, full: Result) -> Row:
    against = result.against(full)
    finite = [value for value in against if np.isfinite(value)]
    return {
        "model": model,
        "set": images.name,
        "plan": plan,
        "psnr": json_number(result.quality.psnr),
        "change": json_number(result.quality.psnr - full.quality.psnr),
        "ssim": json_number(result.quality.ssim),
        "against_full": json_number(float(np.mean(finite))) if finite else None,
        "against_full_worst": json_number(min(finite)) if finite else None,
        "guarded": result.guarded,
    }
