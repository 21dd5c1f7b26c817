"""The last word of an export: its file against the network as it was given."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import nn

from ...core.arrays import Array
from ...core.errors import NystraError, is_out_of_memory
from ...runtime.checking.validation import sides_text
from ...runtime.metrics.measures import ROUNDING, Measure, measure_for
from ...runtime.metrics.sanity import max_abs
from ...runtime.session import Session
from ..attention.site import neutral
from ..differences import nudge
from ..load.given import is_changed, run_as_given
from ..load.source import Source
from ..load.telling import Telling, choose_telling_inputs, split
from ..pytorch.network_session import NetworkSession
from ..transforms import Transform
from .model_file import describe_failure
from .references import mean_abs
from .tiles import is_of_others

_FACTOR = 2.0
"""A difference may be this multiple of that by rounding."""

_NUDGES = 2

_NOTHING_COMPARED = "the network as it was given returns numbers for no image of this comparison"

_NUMBERS = "the file returns numbers where the network as it was given returns NaN or infinity"

_Widen = Callable[[Telling, Sequence[Array]], tuple[list[float], list[float]]]
"""Returns what each output may differ by, and in the mean; no means: the mean does not count."""


@dataclass(frozen=True)
class LastWord:
    """What a network returned for inputs that tell it from others.

    Attributes:
        source: The network, and the mechanism of each site.
        inputs: The inputs.
        expected: The outputs of each, of the network as it was given; of the planned network where
            that has other attention.
        faults: Where the network that was traced is another one, one sentence each.
        without_numbers: Inputs for which the network as it was given does not return finite numbers
            alone, and where its outputs are finite; empty where its attention is replaced by other.
    """

    source: Source
    inputs: tuple[Telling, ...]
    expected: tuple[list[Array], ...]
    faults: tuple[str, ...]
    without_numbers: tuple[tuple[Telling, list[Array]], ...] = ()

    @classmethod
    def of(cls, source: Source) -> LastWord:
        """Run a network as it was given; where its attention is replaced, the planned one too."""
        network, facts = source.loaded.network, source.loaded.facts
        exact = source.resolved == neutral(network)
        photographs_only = _selects(source)
        planned = NetworkSession(source.with_plan())
        inputs, expected, faults = [], [], list[str]()
        without_numbers: list[tuple[Telling, list[Array]]] = []
        changed = is_changed(network)
        for telling in choose_telling_inputs(
            network, facts, photographs_only=photographs_only, changed=changed
        ):
            reference, others = _run_given(source, telling)
            if exact:
                without_numbers += others
            if reference is None:
                continue
            case, outputs = reference
            feeds = case.feeds
            inputs.append(case)
            if exact:
                expected.append(outputs)
                continue
            if changed:
                arrays = list(feeds.values())
                own = NetworkSession(source.exact()).all(arrays)
                widen = partial(_by_rounding, source)
                faults += _faults(source, case, own, outputs, "the network that was traced", widen)
            expected.append(planned.all(list(feeds.values())))
        if not inputs:
            faults.append(_NOTHING_COMPARED)
        return cls(source, tuple(inputs), tuple(expected), tuple(faults), tuple(without_numbers))

    def faults_of(self, session: Session) -> list[str]:
        """Return where a float32 file differs from what is expected, one sentence each."""
        faults = self._faults_of(session, partial(_by_rounding, self.source))
        for case, finite in self.without_numbers:
            outputs = session.run(case.feeds)
            names = [port.name for port in self.source.loaded.facts.outputs]
            if any(
                (np.isfinite(outputs[name]) & ~there).any()
                for name, there in zip(names, finite, strict=True)
            ):
                faults.append(f"{_place(case)}: {_NUMBERS}")
        return faults

    def faults_of_transformed(
        self, session: Session, transform: Transform, exact: Collection[str]
    ) -> list[str]:
        """Return where a file differs by more than its arithmetic does, one sentence each.

        None for int8, which clips what is unlike its calibration images, as these inputs are.

        Args:
            session: Of the file, or of its rounded copy where the CPU cannot compute the file.
            transform: What the file was transformed by.
            exact: Modules that the transform left in float32.
        """
        if transform.fake_quantized is None or transform.calibrated:
            return []
        architecture = self.source.loaded.facts.architecture
        rounded = transform.fake_quantized()(
            self.source.with_plan(), architecture, exact, transform.parameters
        )
        widen = partial(_by_transform, self.source, NetworkSession(rounded), transform)
        return self._faults_of(session, widen)

    def _faults_of(self, session: Session, widen: _Widen) -> list[str]:
        names = [port.name for port in self.source.loaded.facts.outputs]
        faults = []
        for case, expected in zip(self.inputs, self.expected, strict=True):
            try:
                outputs = session.run(case.feeds)
            except NystraError as error:
                faults.append(f"{_place(case)}: the file fails: {describe_failure(error)}")
                continue
            got = [outputs[name] for name in names]
            faults += _faults(self.source, case, got, expected, "the file", widen)
        return faults


def _faults(
    source: Source,
    case: Telling,
    got: Sequence[Array],
    expected: Sequence[Array],
    what: str,
    widen: _Widen,
) -> list[str]:
    measures = [measure_for(port) for port in source.loaded.facts.outputs]
    measured = zip(measures, expected, strict=True)
    peaks = [_peak(measure, own) for measure, own in measured]
    limits = [ROUNDING * peak for peak in peaks]
    outputs = list(zip(got, expected, strict=True))
    changes = [_largest(own, right) for own, right in outputs]
    if _within(changes, limits):
        return []
    widened, means = widen(case, expected)
    limits = [max(pair) for pair in zip(limits, widened, strict=True)]
    if _within(changes, limits):
        return []
    if means:
        changed = [_mean(own, right) for own, right in outputs]
        if _within(changed, means):
            return []
    changes_and_limits = zip(changes, limits, strict=True)
    change, limit = next(pair for pair in changes_and_limits if not pair[0] <= pair[1])
    text = f"differs from the network as it was given by {change:.1e}, allowed {limit:.1e}"
    if not math.isfinite(change):
        text = "returns other than finite numbers, which the network as it was given returns"
    return [f"{_place(case)}: {what} {text}"]


def _run_given(
    source: Source, telling: Telling
) -> tuple[tuple[Telling, list[Array]] | None, list[tuple[Telling, list[Array]]]]:
    """Run the network as it was given.

    Each image of a batch is run by itself, except in nystra's own networks, which say what they
    return for a batch: Nystromformer's published pseudoinverse is scaled over the whole of it. What
    the network does not take, nystra's padding does.

    Returns:
        The images that it returns numbers for, or None, and its outputs; and each of the others,
        with the places where its outputs are finite.
    """
    network = source.loaded.network
    facts = source.loaded.facts
    count = len(next(iter(telling.feeds.values())))
    at_once = "batch" in facts.inputs[0].lengths or not is_of_others(facts)
    images = [[at] for at in range(count)]
    if at_once:
        images = [list(range(count))]
    places: list[int] = []
    results: list[list[Array]] = []
    others: list[tuple[Telling, list[Array]]] = []
    for image in images:
        feeds = split(telling.feeds, image)
        arrays = list(feeds.values())
        outputs = run_as_given(network, arrays)
        if outputs is None:
            outputs = _run_padded(network, arrays)
        if outputs is None:
            continue
        finite = [np.isfinite(array) for array in outputs]
        if all(there.all() for there in finite):
            places += image
            results.append(outputs)
        else:
            others.append((Telling(feeds, telling.content), finite))
    if not places:
        return None, others
    joined = [np.concatenate(parts) for parts in zip(*results, strict=True)]
    return (Telling(split(telling.feeds, places), telling.content), joined), others


def _run_padded(network: nn.Module, arrays: Sequence[Array]) -> list[Array] | None:
    """Return the outputs for images that nystra pads; None if they are too small all the same."""
    try:
        return NetworkSession(network).all(arrays)
    except Exception as error:  # any other error means that it does not take them
        if is_out_of_memory(error):
            raise
        return None


def _by_rounding(
    source: Source, case: Telling, expected: Sequence[Array]
) -> tuple[list[float], list[float]]:
    """Return what rounding may change of each output, from float64 and from nudged inputs.

    The mean differences count where sites select keys: rounding changes the selection at other
    places in every run.
    """
    planned = source.with_plan()
    arrays = list(case.feeds.values())
    changes, means = [0.0] * len(expected), [0.0] * len(expected)
    runs = [NetworkSession(planned, torch.float64).all(arrays)]
    session = NetworkSession(planned)
    single = session.all(arrays)
    nudges = islice(nudge(arrays), _NUDGES)
    runs += [session.all(nudged) for nudged in nudges]
    for run in runs:
        for index, (own, one) in enumerate(zip(run, single, strict=True)):
            changes[index] = max(changes[index], _FACTOR * _largest(own, one))
            means[index] = max(means[index], _FACTOR * _mean(own, one))
    return changes, means if _selects(source) else []


def _by_transform(
    source: Source,
    rounded: NetworkSession,
    transform: Transform,
    case: Telling,
    expected: Sequence[Array],
) -> tuple[list[float], list[float]]:
    """Return what the arithmetic of a file may change of each output: as in its references."""
    measures = [measure_for(port) for port in source.loaded.facts.outputs]
    tolerances = [measure.tolerances[transform.name] for measure in measures]
    feeds = list(case.feeds.values())
    pairs = list(zip(rounded.all(feeds), expected, strict=True))
    changes = []
    rows = zip(tolerances, measures, pairs, strict=True)
    for tolerance, measure, (own, right) in rows:
        least = tolerance.minimum * _peak(measure, right)
        changes.append(max(least, tolerance.factor * _largest(own, right)))
    if not _selects(source) and not any(tolerance.by_mean for tolerance in tolerances):
        return changes, []
    means = [
        tolerance.factor * _mean(own, right)
        for tolerance, (own, right) in zip(tolerances, pairs, strict=True)
    ]
    return changes, means


def _selects(source: Source) -> bool:
    return any(site.has_near_ties for site in source.resolved.values())


def _within(changes: Sequence[float], limits: Sequence[float]) -> bool:
    return all(change <= limit for change, limit in zip(changes, limits, strict=True))


def _largest(got: Array, expected: Array) -> float:
    return float("inf") if got.shape != expected.shape else max_abs(got, expected)


def _mean(got: Array, expected: Array) -> float:
    return float("inf") if got.shape != expected.shape else mean_abs(got, expected)


def _peak(measure: Measure, expected: Array) -> float:
    largest_value = float(np.abs(expected).max(initial=0.0))
    return max(measure.peak(expected), largest_value)


def _place(case: Telling) -> str:
    shapes = {name: array.shape for name, array in case.feeds.items()}
    return f"at {sides_text(shapes)} ({case.content})"
