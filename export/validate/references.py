"""The outputs of PyTorch with the planned network, and the tolerances of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...core.arrays import Array
from ...core.errors import NystraError, UnsupportedModelError, foreign_reason
from ...core.ports.port import CONDITION
from ...runtime.checking.validation import sides_text
from ...runtime.metrics.measures import (
    MAX_OF_A_SEED,
    MOST_ROUNDING,
    SHARE_OF_A_SEED,
    Measure,
    measure_for,
)
from ...runtime.metrics.sanity import max_abs
from ...runtime.model.references import (
    FURTHER,
    MEAN_TOLERANCES_IN,
    TOLERANCES_IN,
    ReferenceCase,
    References,
)
from ..attention.site import swap
from ..differences import largest, nudge
from ..load.images import Feeds
from ..load.source import Source
from ..progress import Progress
from ..pytorch.network_session import NetworkSession
from ..rewrite.graph_network import is_continuous
from ..transforms import TRANSFORMS, UNCHANGED, Transform
from .double_run import DoubleRun

_COMPUTED_IN = {"bf16": "bf16-tensorrt"}
"""Precision of a backend -> the transform that rounds the same layers."""

_COMPUTED_LOW = ("fp32", "int8")
"""Precisions of files whose float32 parts a backend may compute in a low precision."""


def record_references(
    source: Source,
    feeds: Sequence[Feeds],
    transform: Transform = UNCHANGED,
    progress: Progress = lambda _: None,
    exact: Collection[str] = (),
) -> References:
    """Run the planned network at the validation sizes and record inputs, outputs and tolerances.

    An export and ``nystra validate --checkpoint`` both validate a file by these.

    The tolerance of a size is the largest of what the transform always allows (`measures`), twice
    the difference between the float32 and the float64 run of the plain network, and, for a low
    precision, twice the difference between the fake-quantized network (see `fake_quantized`) and
    the float64 run. Sizes are run from the smallest to the largest; where the first shows that
    rounding widens no tolerance (`DoubleRun`), the others have no float64 run.

    With a seeded search, rounding may swap two matches of nearly equal score; then few pixels
    change, by much. Such a size also has a tolerance of the mean difference: a tenth of what
    another seed changes, or twice the fake-quantized network's mean difference, so that a file
    whose search finds other matches still fails; the largest difference of that network is then not
    used.

    A transform may allow single pixels more (`Tolerance.by_mean`): then the mean is checked too. If
    outputs are few numbers (`Measure.few`), every size has the largest of all tolerances.

    A file whose layers are float32 or int8, without a search, also gets tolerances for backends
    that compute its float32 in a low precision: from the fake-quantized network of that precision,
    which for an int8 file rounds to 8 bits too.

    Args:
        source: The loaded network and the mechanism of every site.
        feeds: Inputs at each size.
        transform: The transform of the file; its fake-quantized network widens the tolerances.
        progress: Called with the name of each step.
        exact: Modules that the transform left in float32, in addition to those of the architecture.

    Raises:
        UnsupportedModelError: Rounding to the precision alone changes the outputs too much, or the
            network fails at a size.
    """
    outputs = source.loaded.facts.outputs
    measures = [measure_for(output) for output in outputs]
    runs = _Runs.of(source, transform, exact)
    by_size = sorted(range(len(feeds)), key=lambda at: _elements(feeds[at]))
    ran = {}
    for at in by_size:
        shapes = {name: array.shape for name, array in feeds[at].items()}
        sides = sides_text(shapes)
        progress(f"{source.reference} {sides}")
        ran[at] = runs.run_case(feeds[at], measures)
    cases, allowed = [], []
    for at, case in enumerate(feeds):
        expected, differences = ran[at]
        stored = {
            port.name: case[port.name]
            if port.role == CONDITION
            else np.round(case[port.name] * 255.0).astype(np.uint8)
            for port in source.loaded.facts.inputs
        }
        outputs_and_arrays = zip(outputs, expected, strict=True)
        named = {port.name: array for port, array in outputs_and_arrays}
        cases.append(ReferenceCase(stored, named))
        allowed.append(differences)
    order = [by_size.index(at) for at in range(len(feeds))]
    lowered = {}
    for low, row in runs.lowered.items():
        if row.network is not None:
            lowered[low] = [row.allowed[at] for at in order]
    tolerances = []
    for place, measure in enumerate(measures):
        own = {}
        for low, sizes in lowered.items():
            own[low] = [of_size[place] for of_size in sizes]
        allowed_of_port = [of_size[place] for of_size in allowed]
        tolerances.append(_tolerances(measure, allowed_of_port, own))
    first, *further = tolerances
    meta: dict[str, Any] = first | {
        "precision": transform.label,
        "roles": {output.name: output.role for output in outputs},
        "torch": torch.__version__,
    }
    if further:
        names = [output.name for output in outputs[1:]]
        meta[FURTHER] = dict(zip(names, further, strict=True))
    return References(tuple(cases), meta)


def _tolerances(
    measure: Measure, allowed: Sequence[_Allowed], lowered: Mapping[str, Sequence[_Allowed]]
) -> dict[str, Any]:
    if measure.few:
        allowed = [_largest(allowed)] * len(allowed)
        lowered = {low: [_largest(sizes)] * len(sizes) for low, sizes in lowered.items()}
    entries: dict[str, Any] = {
        "tolerances": [of_size.limit.value for of_size in allowed],
        "allowed_for": [of_size.limit.reason for of_size in allowed],
    }
    if means := _means(allowed):
        entries["mean_tolerances"] = means
    low_means = {}
    for low, sizes in lowered.items():
        low_limits = [of_size.limit.value for of_size in sizes]
        entries.setdefault(TOLERANCES_IN, {})[low] = low_limits
        means = _means(sizes)
        if means:
            low_means[low] = means
    if low_means:
        entries[MEAN_TOLERANCES_IN] = low_means
    return entries


@dataclass(frozen=True)
class _Allowed:
    limit: _Limit
    mean: float | None


def _means(allowed: Sequence[_Allowed]) -> list[float]:
    return [of_size.mean for of_size in allowed if of_size.mean is not None]


def _largest(allowed: Sequence[_Allowed]) -> _Allowed:
    limits = [of_size.limit for of_size in allowed]
    limit = max(limits, key=lambda limit: limit.value)
    return _Allowed(limit, max(_means(allowed), default=None))


@dataclass(frozen=True)
class _Runs:
    """The planned network in plain PyTorch, in every arithmetic that the tolerances need.

    Attributes:
        transform: Transform of the file.
        single: In float32: the expected outputs.
        double: In float64, as far as it is needed.
        rounded: The transform's fake-quantized network; None if it has none.
        reseeded: In float32 with another seed of the search; None if nothing is searched.
        lowered: The same for the precisions in which a backend may compute the file.
        near_ties: A site selects keys, and rounding may change the selection.
    """

    transform: Transform
    single: NetworkSession
    double: DoubleRun
    rounded: NetworkSession | None
    reseeded: NetworkSession | None
    lowered: dict[str, _Lowered]
    near_ties: bool

    @classmethod
    def of(cls, source: Source, transform: Transform, exact: Collection[str]) -> _Runs:
        network, resolved = source.loaded.network, source.resolved
        architecture = source.loaded.facts.architecture
        planned = source.with_plan()
        others = {path: site.reseed() for path, site in resolved.items()}
        searching = others != dict(resolved)
        near_ties = any(site.has_near_ties for site in resolved.values())
        rounded = None
        if transform.fake_quantized is not None:
            copied = transform.fake_quantized()(planned, architecture, exact, transform.parameters)
            rounded = NetworkSession(copied)
        lowered = {}
        if transform.name in _COMPUTED_LOW and not searching:
            lowered = {
                low: _Lowered(planned, architecture, low, transform, exact) for low in _COMPUTED_IN
            }
        return cls(
            transform,
            NetworkSession(planned),
            DoubleRun(planned, always=near_ties or searching or not is_continuous(network)),
            rounded,
            NetworkSession(swap(network, others)) if searching else None,
            lowered,
            near_ties,
        )

    def run_case(
        self, case: Feeds, measures: Sequence[Measure]
    ) -> tuple[list[Array], list[_Allowed]]:
        """Run a size: return the expected outputs and the tolerances of each.

        Raises:
            UnsupportedModelError: As `record_references`, or the network fails at the size.
        """
        arrays = list(case.values())
        try:
            expected = self.single.all(arrays)
        except (NystraError, MemoryError):
            raise
        except Exception as error:  # code of the network
            shapes = {name: array.shape for name, array in case.items()}
            sides = sides_text(shapes)
            raise UnsupportedModelError(
                f"the network fails at {sides}: {foreign_reason(error, 200)}; see docs/own.md"
            ) from error
        tolerances = [measure.tolerances[self.transform.name] for measure in measures]
        always = [
            tolerance.minimum * measure.peak(own)
            for tolerance, measure, own in zip(tolerances, measures, expected, strict=True)
        ]
        exact = self.double.all(arrays, expected, always)
        coarse = None if self.rounded is None else self.rounded.all(arrays)
        reseeded = None if self.reseeded is None else self.reseeded.all(arrays)
        nudged: list[float] = []
        if self.near_ties and self.rounded is None and self.reseeded is None:
            nudged = _changes_by_rounding(self.single, case, expected)
        allowed = []
        for index, measure in enumerate(measures):
            transform, tolerance = self.transform.name, tolerances[index]
            own, right = expected[index], exact[index]
            limit = _Limit(always[index], "float32 rounding")
            limit = limit.widen(tolerance.factor * max_abs(own, right), "float32 rounding")
            if reseeded is None and not self.near_ties:
                maximum = MOST_ROUNDING * max_abs(own, np.zeros_like(own))
                limit = limit.at_most(max(maximum, always[index]))
            coarse_mean = 0.0
            if coarse is not None:
                coarse_mean = tolerance.factor * mean_abs(coarse[index], right)
                if reseeded is None:
                    _refuse_coarse(measure, measure.value(coarse[index], right), transform)
                    change = tolerance.factor * max_abs(coarse[index], right)
                    limit = limit.widen(change, transform)
            mean = None
            if reseeded is not None:
                change = mean_abs(own, reseeded[index])
                _refuse_changed_matches(coarse_mean, change, transform)
                mean = largest([SHARE_OF_A_SEED * change, coarse_mean])
            elif tolerance.by_mean:
                mean = coarse_mean
            elif nudged:
                mean = tolerance.factor * nudged[index]
            allowed.append(_Allowed(limit, mean))
        for lowered in self.lowered.values():
            lowered.allow(measures, [own.limit for own in allowed], exact, arrays)
        return expected, allowed


class _Lowered:
    """The tolerances of a file whose float32 is computed in a low precision.

    Attributes:
        network: The fake-quantized network; None if the architecture has none, or rounding changes
            too much.
        allowed: The tolerances of each output at each size.
    """

    def __init__(
        self,
        network: nn.Module,
        architecture: str,
        low: str,
        own: Transform,
        exact: Collection[str],
    ) -> None:
        transform = TRANSFORMS[_COMPUTED_IN[low]]
        self.allowed: list[list[_Allowed]] = []
        self.network: NetworkSession | None = None
        self._precision, self._own = transform.name, own.name
        if transform.fake_quantized is None:
            return
        try:
            rounded = transform.fake_quantized()(network, architecture, (), transform.parameters)
        except UnsupportedModelError:  # not measured, or known not to be safe
            return
        if own.fake_quantized is not None:  # the steps of rounded weights and inputs
            rounded = own.fake_quantized()(rounded, architecture, exact, own.parameters)
        self.network = NetworkSession(rounded)

    def allow(
        self,
        measures: Sequence[Measure],
        limits: Sequence[_Limit],
        exact: Sequence[Array],
        arrays: Sequence[Array],
    ) -> None:
        if self.network is None:
            return
        allowed = []
        got = self.network.all(arrays)
        outputs = zip(measures, limits, got, exact, strict=True)
        for measure, limit, coarse, right in outputs:
            tolerance = measure.tolerances[self._precision]
            figure = measure.value(coarse, right)
            if tolerance.coarsest is not None and measure.misses(figure, tolerance.coarsest):
                self.network = None
                return
            change = tolerance.factor * max_abs(coarse, right)
            by_mean = measure.tolerances[self._own].by_mean
            mean = tolerance.factor * mean_abs(coarse, right) if by_mean else None
            allowed.append(_Allowed(limit.widen(change, self._precision), mean))
        self.allowed.append(allowed)


@dataclass(frozen=True)
class _Limit:
    value: float
    reason: str

    def widen(self, value: float, cause: str) -> _Limit:
        return _Limit(value, f"twice the error of {cause}") if value > self.value else self

    def at_most(self, value: float) -> _Limit:
        reason = f"{MOST_ROUNDING:.0%} of the largest output"
        return self if self.value <= value else _Limit(value, reason)


def _changes_by_rounding(
    network: NetworkSession, case: Feeds, expected: Sequence[Array]
) -> list[float]:
    changes = [0.0] * len(expected)
    for nudged in nudge(list(case.values())):
        pairs = zip(changes, expected, network.all(nudged), strict=True)
        changed = []
        for change, own, got in pairs:
            changed.append(largest([change, mean_abs(own, got)]))
        changes = changed
    return changes


def _elements(case: Feeds) -> int:
    return sum(array.size for array in case.values())


def mean_abs(first: Array, second: Array) -> float:
    """Return the mean absolute difference of two arrays of one shape."""
    return float(np.mean(np.abs(first - second)))


def _refuse_coarse(measure: Measure, figure: float, low: str) -> None:
    coarsest = measure.tolerances[low].coarsest
    if coarsest is not None and measure.misses(figure, coarsest):
        raise UnsupportedModelError(
            f"rounding to {low} alone gives {measure.text(figure)} for this network, below the "
            f"limit of {measure.text(coarsest)}: use `precision` fp32; see docs/precision.md"
        )


def _refuse_changed_matches(mean: float, change: float, low: str) -> None:
    if mean > MAX_OF_A_SEED * change:
        raise UnsupportedModelError(
            f"rounding to {low} makes the search find other matches: images change by "
            f"{mean / 2:.1e} on average, and by {change:.1e} with another seed, so a check could "
            "not tell a correct file from a wrong one. Use `precision` fp32, or another "
            "`mechanism`; see docs/precision.md"
        )
