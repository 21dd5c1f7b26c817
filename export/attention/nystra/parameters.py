"""The parameters of ``nystra``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ....core.option import option
from ....core.option_kinds import Grid
from ....models.geometry import WindowGeometry
from ....plugins.operators.pinv.schema import SCHEMA as PINV
from ....plugins.operators.window_nystrom.schema import SCHEMA
from ....plugins.operators.window_schema import MAX_LANDMARKS
from ..landmarks import Landmarks
from ..mechanism import Mechanism
from ..operator_option import operator_option


@dataclass(frozen=True)
class Nystra(Landmarks):
    """Kernel Nystrom of PnP-Nystra."""

    name = "nystra"
    site_classes = ("Windows", "Tokens")
    summary = "kernel Nystrom of PnP-Nystra: linear, no retraining"

    threshold: float = option(
        operator_option(SCHEMA, "threshold", "exp continues linearly above this value")
    )
    guard: float = option(
        operator_option(
            SCHEMA,
            "guard",
            "replace results whose denominator is below this share of its absolute terms; "
            "0 disables the guard",
        )
    )

    def attributes(self, geometry: WindowGeometry) -> dict[str, Any]:
        """Return the attributes of the window operator."""
        own = {"threshold": self.threshold, "guard": self.guard}
        return super().attributes(geometry) | own


_PUBLISHED_THRESHOLDS = {"uformer": 0.0, "rvrt": 0.0}
"""Architecture -> threshold of the authors' repository; SwinIR and all others: 5."""

_PUBLISHED_ITERATIONS = {"swinir": 2}
"""Architecture -> iterations of the authors' scripts; all others: 6."""

_DEBLURRING_ITERATIONS = 3
_DENOISING_SIZE = 128
"""Training size of the Uformers of denoising, in pixels; those of deblurring have twice that."""


@dataclass(frozen=True)
class NystraPublished(Mechanism):
    """`Nystra` as the authors of PnP-Nystra published it.

    One start of the pseudoinverse for the whole batch, no guard, no mask between regions, and the
    threshold and the iterations of the architecture.
    """

    name = "nystra-published"
    summary = "nystra as the authors published it: no guard, no mask, one start for the batch"
    mask: ClassVar[str] = "none"

    landmarks: tuple[int, int] = option(
        Grid((4, 4), "landmarks per window", "landmarks", MAX_LANDMARKS)
    )
    iterations: int | None = option(
        operator_option(PINV, "iterations"),
        default=None,
        default_text="as published: 2 for SwinIR, 3 for a Uformer of deblurring, 6 for others",
    )

    def for_network(self, architecture: str, hyper: Mapping[str, Any]) -> Nystra:
        """Return the parameters of `Nystra`, which files and written plans name."""
        iterations = self.iterations
        if iterations is None:
            iterations = _choose_iterations(architecture, hyper)
        return Nystra(
            landmarks=self.landmarks,
            iterations=iterations,
            init="batch",
            threshold=_PUBLISHED_THRESHOLDS.get(architecture, 5.0),
            guard=0.0,
            mask="none",
        )


def _choose_iterations(architecture: str, hyper: Mapping[str, Any]) -> int:
    if architecture == "uformer" and hyper.get("img_size", _DENOISING_SIZE) > _DENOISING_SIZE:
        return _DEBLURRING_ITERATIONS
    return _PUBLISHED_ITERATIONS.get(architecture, 6)
