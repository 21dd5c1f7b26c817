"""Selects the layers that return to float32, so that the images keep the budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from ....core.arrays import Array
from ....core.text import pluralize
from ....runtime.metrics.measures import Measure
from ....runtime.session import Session
from ..probing import open_probe
from .calibration import Calibration, Feed
from .layers import WeightLayer
from .rounded_copy import OWN_RANGES, SWITCHES, make_rounded_copy

MAX_COMPARED = 16
"""Most images on which the limit is checked, evenly spaced among all."""

MAX_TRIED = 4
"""Most of these on which every layer is tried alone."""

MAX_ALONE = 32
"""Most layers that are tried alone. More are tried in groups, on the image of the largest loss."""

MAX_RUNS = 64
"""Most runs in which groups are tried."""


@dataclass(frozen=True)
class Returned:
    """A layer that returns to float32.

    Attributes:
        path: Path of its module.
        alone: The headline figure with only this layer and its neighbors in int8.
        share: Its share of the multiplications of all layers.
        neighbors: Layers that were tried with it; 0: it was tried alone.
    """

    path: str
    alone: float
    share: float
    neighbors: int = 0

    @property
    def extent(self) -> str:
        """What was in int8 for the figure, as words."""
        if self.neighbors == 0:
            return "this layer"
        return f"this layer and {pluralize(self.neighbors, 'neighbor')}"


@dataclass(frozen=True)
class Selection:
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
    minimum: float,
    validated: Sequence[Feed] = (),
    coarsest: float = 0.0,
) -> Selection:
    """Return layers to float32 until every image reaches the limit against the float32 graph.

    Layers are returned in the order of their error per multiplication, so that a costly layer comes
    last. The error is measured with each layer, or each group of neighbors, alone in int8; the
    number of layers is found by bisection on the image of the largest loss, and again on the next
    one while any misses the limit.

    Args:
        model: Without bodies; its first output is compared; not modified.
        layers: The layers of its graph.
        calibration: Their ranges.
        feeds: Inputs by name, for each image.
        measure: How the output is compared.
        minimum: The headline figure to keep. It may leave no int8 layer.
        validated: Inputs of the validation, which rounds maps in steps of their own largest value.
        coarsest: The headline figure that these have to reach.
    """
    own_ranges = {OWN_RANGES: np.array(True)}
    given_ranges = {OWN_RANGES: np.array(False)}
    compared = [{**feed, **given_ranges} for feed in _space_evenly(feeds, MAX_COMPARED)]
    images = [*compared, *({**feed, **own_ranges} for feed in validated)]
    limits = [minimum] * len(compared) + [coarsest] * len(validated)
    copied = make_rounded_copy(model, layers, calibration.ranges, switches=True)
    with open_probe(copied) as session:
        trial = _Trial(session, images, measure, len(layers))
        exact = np.zeros(len(layers), bool)
        figures = trial.figures(exact)
        returned: list[Returned] = []
        if (hardest := _find_hardest(measure, figures, limits)) is not None:
            alone = len(layers) <= MAX_ALONE
            tried = _space_evenly(compared, MAX_TRIED) if alone else [images[hardest]]
            few = _Trial(session, tried, measure, len(layers))
            costs = np.array([calibration.products(layer) for layer in layers])
            groups = _sort_by_error(few.alone, costs, len(layers) if alone else MAX_RUNS)
            order = np.concatenate([group.places for group in groups])

            def without(count: int) -> npt.NDArray[np.bool_]:
                return np.isin(np.arange(len(layers)), order[:count])

            count = 0
            while hardest is not None and count < len(layers):
                hardest_image = images[hardest]
                one = _Trial(session, [hardest_image], measure, len(layers))

                def holds(count: int, one: _Trial = one, limit: float = limits[hardest]) -> bool:
                    figure = one.figures(without(count))[0]
                    return not measure.misses(figure, limit)

                count = bisect_left(range(len(layers)), True, lo=count + 1, key=holds)
                figures = trial.figures(without(count))
                hardest = _find_hardest(measure, figures, limits)
            exact = without(count)
            group_of = {place: group for group in groups for place in group.places}
            returned = [
                Returned(
                    layers[place].path,
                    group_of[place].figure,
                    float(costs[place] / costs.sum()),
                    len(group_of[place].places) - 1,
                )
                for place in order[:count]
            ]
    places = zip(layers, exact, strict=True)
    quantized = tuple(layer for layer, back in places if not back)
    worst = trial.worst(figures[: len(compared)])
    return Selection(quantized, tuple(returned), worst)


def _find_hardest(
    measure: Measure, figures: Sequence[float], limits: Sequence[float]
) -> int | None:
    if not any(map(measure.misses, figures, limits)):
        return None
    differences = np.subtract(figures, limits)
    return int(np.argmin(differences if measure.higher else -differences))


@dataclass(frozen=True)
class _Group:
    """Layers that were tried together: mean squared error a multiplication, and worst headline."""

    places: npt.NDArray[np.int64]
    error: float
    figure: float


def _sort_by_error(
    alone: Callable[[Array], tuple[float, float]],
    costs: npt.NDArray[np.float64],
    max_runs: int,
) -> list[_Group]:
    """Return all layers in groups, the one with the largest error per multiplication first.

    Where there are more layers than runs, half of the runs try groups of equal size; in the others
    the worst group is divided again and again.
    """

    def try_group(places: Array) -> _Group:
        error, figure = alone(places)
        return _Group(places, error / costs[places].sum(), figure)

    first = len(costs) if len(costs) <= max_runs else max_runs // 2
    equal_groups = np.array_split(np.arange(len(costs)), first)
    groups = [try_group(places) for places in equal_groups]
    for _ in range((max_runs - first) // 2):
        wide = [group for group in groups if len(group.places) > 1]
        if not wide:
            break
        worst = max(wide, key=lambda group: group.error)
        groups = [group for group in groups if group is not worst]
        groups += [try_group(places) for places in np.array_split(worst.places, 2)]
    return sorted(groups, key=lambda group: -group.error)


def _space_evenly(feeds: Sequence[Feed], limit: int) -> Sequence[Feed]:
    return feeds[:: -(-len(feeds) // limit)]


class _Trial:
    """The graph with a switch for every layer, and its outputs with no layer in int8."""

    def __init__(
        self,
        session: Session,
        feeds: Sequence[Feed],
        measure: Measure,
        count: int,
    ) -> None:
        self._session = session
        self._feeds = feeds
        self._measure = measure
        self._count = count
        self._expected = self._outputs(np.ones(count, bool))

    def figures(self, exact: Array) -> list[float]:
        return self._values(self._outputs(exact))

    def worst(self, figures: Sequence[float]) -> float:
        worst = np.min if self._measure.higher else np.max
        return float(worst(figures))

    def alone(self, places: Array) -> tuple[float, float]:
        returned = np.isin(np.arange(self._count), places)
        got = self._outputs(~returned)
        errors = [
            float(np.mean((output.astype(np.float64) - expected) ** 2))
            for output, expected in zip(got, self._expected, strict=True)
        ]
        values = self._values(got)
        return float(np.mean(errors)), self.worst(values)

    def _outputs(self, exact: Array) -> list[Array]:
        name = self._session.outputs[0].name
        results = [self._session.run({**feed, SWITCHES: exact}) for feed in self._feeds]
        return [result[name] for result in results]

    def _values(self, outputs: Sequence[Array]) -> list[float]:
        return [
            self._measure.value(output, expected)
            for output, expected in zip(outputs, self._expected, strict=True)
        ]
