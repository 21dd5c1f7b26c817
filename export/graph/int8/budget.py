"""Selects the layers that return to float32, so that the images keep the budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from ....core.arrays import Array
from ....runtime.metrics.measures import Measure
from ....runtime.session import Session
from .calibration import Calibration, Feed
from .layers import WeightLayer
from .probing import session_of
from .rounded_copy import SWITCHES, rounded_copy

MOST_COMPARED = 16
"""Most images on which the limit is checked, evenly spaced among all."""

MOST_TRIED = 4
"""Most of these on which every layer is tried alone."""


@dataclass(frozen=True)
class Returned:
    """A layer that returns to float32.

    Attributes:
        path: Path of its module.
        alone: The headline figure with only this layer in int8.
        share: Its share of the multiplications of all layers.
    """

    path: str
    alone: float
    share: float


@dataclass(frozen=True)
class Kept:
    """A selection that keeps the budget.

    Attributes:
        layers: The layers that stay int8.
        returned: The others, in the order of their return.
        figure: The worst headline figure of the images, against the float32 graph.
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
    """Return layers to float32 until every image reaches the limit against the float32 graph.

    Layers are returned in the order of their error per multiplication, so that a costly layer comes
    last. The error is measured with each layer alone in int8; the number of layers is found by
    bisection.

    Args:
        model: Without bodies; its first output is compared; not modified.
        layers: The layers of its graph.
        calibration: Their ranges.
        feeds: Inputs by name, for each image.
        measure: How the output is compared.
        least: The headline figure to keep. It may leave no int8 layer.
    """
    compared = _spread(feeds, MOST_COMPARED)
    copied = rounded_copy(model, layers, calibration.ranges, switches=True)
    with session_of(copied) as session:
        trial = _Trial(session, compared, measure, len(layers))
        exact = np.zeros(len(layers), bool)
        figure = trial.figure(exact)
        returned: list[Returned] = []
        if measure.misses(figure, least):
            few = _Trial(session, _spread(compared, MOST_TRIED), measure, len(layers))
            costs = np.array([calibration.products(layer) for layer in layers])
            harms = [few.alone(place) for place in range(len(layers))]
            errors = np.array([error for error, _ in harms])
            order = np.argsort(-errors / costs)

            def without(count: int) -> npt.NDArray[np.bool_]:
                return np.isin(np.arange(len(layers)), order[:count])

            def holds(count: int) -> bool:
                return not measure.misses(trial.figure(without(count)), least)

            count = bisect_left(range(len(layers)), True, lo=1, key=holds)
            exact = without(count)
            figure = trial.figure(exact)
            returned = [
                Returned(layers[place].path, harms[place][1], float(costs[place] / costs.sum()))
                for place in order[:count]
            ]
    left = tuple(layer for layer, back in zip(layers, exact, strict=True) if not back)
    return Kept(left, tuple(returned), figure)


def _spread(feeds: Sequence[Feed], most: int) -> Sequence[Feed]:
    return feeds[:: -(-len(feeds) // most)]


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
