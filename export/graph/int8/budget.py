"""Which layers go back to float32, so that the images keep the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ....core.arrays import Array
from ....runtime.metrics.measures import Measure
from ....runtime.session import Session
from .calibration import Calibration
from .layers import WeightLayer
from .probing import session_of
from .rounded_copy import SWITCHES, rounded_copy

Feed = Mapping[str, Array]

MOST_COMPARED = 4
"""Most images on which the limit is checked, evenly spaced among all."""


@dataclass(frozen=True)
class Returned:
    """A layer that goes back to float32.

    Attributes:
        path: Of its module.
        alone: The headline where it alone computes in int8.
        share: Its share of the multiplications of all layers.
    """

    path: str
    alone: float
    share: float


@dataclass(frozen=True)
class Kept:
    """What keeps the budget.

    Attributes:
        layers: Those that stay int8.
        returned: The others, in the order they went back.
        figure: The worst headline over the images, against the float32 graph.
    """

    layers: tuple[WeightLayer, ...]
    returned: tuple[Returned, ...]
    figure: float


def keep_budget(
    model: onnx.ModelProto,
    layers: Sequence[WeightLayer],
    calibration: Calibration,
    feeds: Sequence[Feed],
    measure: Measure,
    least: float,
) -> Kept:
    """Return layers to float32 until every image is as near to the float32 graph as wanted.

    They go one by one: first what harms most for each multiplication that float32 will take again,
    so that a costly layer goes last. The harm is measured, every layer int8 alone.

    Args:
        model: Without bodies, one output that counts, the first; left as it is.
        layers: Of its graph.
        calibration: Their ranges.
        feeds: Inputs by name, of each image.
        measure: By which the output is compared.
        least: The headline to keep. No layer may be left that does.
    """
    compared = list(feeds[:: -(-len(feeds) // MOST_COMPARED)])
    copied = rounded_copy(model, layers, calibration.ranges, switches=True)
    with session_of(copied) as session:
        trial = _Trial(session, compared, measure, len(layers))
        exact = np.zeros(len(layers), bool)
        figure = trial.figure(exact)
        returned: list[Returned] = []
        if measure.misses(figure, least):
            costs = np.array([calibration.products(layer) for layer in layers])
            harms = [trial.alone(place) for place in range(len(layers))]
            order = np.argsort(
                [-error / cost for (error, _), cost in zip(harms, costs, strict=True)]
            )
            for place in order:
                exact[place] = True
                share = float(costs[place] / costs.sum())
                returned.append(Returned(layers[place].path, harms[place][1], share))
                figure = trial.figure(exact)
                if not measure.misses(figure, least):
                    break
    left = tuple(layer for layer, back in zip(layers, exact, strict=True) if not back)
    return Kept(left, tuple(returned), figure)


class _Trial:
    """The graph with a switch for every layer, and its outputs with no layer in int8."""

    def __init__(
        self, session: Session, feeds: Sequence[Feed], measure: Measure, count: int
    ) -> None:
        self._session, self._feeds, self._measure, self._count = session, feeds, measure, count
        self._wanted = self._outputs(np.ones(count, bool))

    def figure(self, exact: Array) -> float:
        """Return the worst headline of all images; layers are float32 where it is true."""
        return self._worst(self._outputs(exact))

    def alone(self, place: int) -> tuple[float, float]:
        """Return the mean squared error and the worst headline of one layer in int8."""
        got = self._outputs(np.arange(self._count) != place)
        errors = [
            float(np.mean((output.astype(np.float64) - wanted) ** 2))
            for output, wanted in zip(got, self._wanted, strict=True)
        ]
        return float(np.mean(errors)), self._worst(got)

    def _outputs(self, exact: Array) -> list[Array]:
        name = self._session.outputs[0].name
        return [self._session.run({**feed, SWITCHES: exact})[name] for feed in self._feeds]

    def _worst(self, outputs: Sequence[Array]) -> float:
        values = [
            self._measure.value(output, wanted)
            for output, wanted in zip(outputs, self._wanted, strict=True)
        ]
        return float((np.min if self._measure.higher else np.max)(values))
