"""The last word of an export: its file against the network as it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from ..attention.cost import quadratic_bytes
from ..attention.site import neutral
from ..differences import nudge
from ..load.given import is_changed, run_as_given
from ..load.images import Feeds
from ..load.source import Source
from ..load.telling import Telling, split, telling_inputs
from ..pytorch.network_session import NetworkSession
from .references import mean_abs
from .tiles import is_of_others

_FACTOR = 2.0
"""A difference may be this multiple of that by rounding."""

_NUDGES = 2

_NOTHING_COMPARED = "the network as it was given returns numbers for no image of this comparison"

Run = Callable[[Feeds], list[Array]]


@dataclass(frozen=True)
class LastWord:
    """What a network returned for inputs that tell it from others.

    Attributes:
        source: The network, and the mechanism of each site.
        inputs: The inputs.
        expected: The outputs of each, of the network as it was given; of the planned network where
            that has other attention.
        faults: Where the network that was traced is another one, one sentence each.
    """

    source: Source
    inputs: tuple[Telling, ...]
    expected: tuple[list[Array], ...]
    faults: tuple[str, ...]

    @classmethod
    def of(cls, source: Source) -> LastWord:
        """Run a network as it was given; where its attention is replaced, the planned one too."""
        network, facts = source.loaded.network, source.loaded.facts
        exact = source.resolved == neutral(network)
        plain = any(site.has_near_ties for site in source.resolved.values())
        count = sum(tensor.numel() for tensor in network.parameters())
        step = max((facts.size_multiple, *(facts.window or ())))
        planned = NetworkSession(source.planned())
        inputs, expected, faults = [], [], list[str]()
        changed = is_changed(network)
        cases = telling_inputs(
            facts,
            step,
            count,
            quadratic=quadratic_bytes(network, facts, neutral(network)),
            plain=plain,
            changed=changed,
        )
        for telling in cases:
            given = _run_given(source, telling)
            if given is None:
                continue
            feeds, outputs = given
            case = Telling(feeds, telling.content)
            inputs.append(case)
            if exact:
                expected.append(outputs)
                continue
            if changed:
                own = NetworkSession(source.exact()).all(list(feeds.values()))
                faults += cls._faults(source, case, own, outputs, "the network that was traced")
            expected.append(planned.all(list(feeds.values())))
        if not inputs:
            faults.append(_NOTHING_COMPARED)
        return cls(source, tuple(inputs), tuple(expected), tuple(faults))

    def faults_of(self, session: Session) -> list[str]:
        """Return where a file differs from what is expected, one sentence each."""
        names = [port.name for port in self.source.loaded.facts.outputs]
        faults = []
        for case, expected in zip(self.inputs, self.expected, strict=True):
            try:
                outputs = session.run(case.feeds)
            except NystraError as error:
                faults.append(f"{_place(case)}: the file fails: {error}")
                continue
            got = [outputs[name] for name in names]
            faults += self._faults(self.source, case, got, expected, "the file")
        return faults

    @staticmethod
    def _faults(
        source: Source, case: Telling, got: Sequence[Array], expected: Sequence[Array], what: str
    ) -> list[str]:
        measures = [measure_for(port) for port in source.loaded.facts.outputs]
        limits = [
            ROUNDING * _peak(measure, own) for measure, own in zip(measures, expected, strict=True)
        ]
        changes = [_largest(own, right) for own, right in zip(got, expected, strict=True)]
        if _within(changes, limits):
            return []
        widened, means = _by_rounding(source, case, expected)
        limits = [max(pair) for pair in zip(limits, widened, strict=True)]
        if _within(changes, limits):
            return []
        if any(site.has_near_ties for site in source.resolved.values()):
            changed = [_mean(own, right) for own, right in zip(got, expected, strict=True)]
            if _within(changed, means):
                return []
        beyond = [pair for pair in zip(changes, limits, strict=True) if not pair[0] <= pair[1]]
        change, limit = beyond[0]
        text = (
            f"{_place(case)}: {what} differs from the network as it was given by {change:.1e}, "
            f"allowed {limit:.1e}"
        )
        return [text]


def _run_given(source: Source, telling: Telling) -> tuple[Feeds, list[Array]] | None:
    """Return inputs and outputs of the images that the network returns numbers for.

    Each image of a batch is run by itself, except in nystra's own networks, which say what they
    return for a batch: Nystromformer's published pseudoinverse is scaled over the whole of it. What
    the network does not take, nystra's padding does.
    """
    network, facts = source.loaded.network, source.loaded.facts
    count = len(next(iter(telling.feeds.values())))
    whole = "batch" in facts.inputs[0].lengths or not is_of_others(facts)
    images = [list(range(count))] if whole else [[at] for at in range(count)]
    kept: list[int] = []
    found: list[list[Array]] = []
    for image in images:
        arrays = list(split(telling.feeds, image).values())
        outputs = run_as_given(network, arrays)
        if outputs is None:
            outputs = _run_padded(network, arrays)
        if outputs is not None and all(np.isfinite(array).all() for array in outputs):
            kept += image
            found.append(outputs)
    if not kept:
        return None
    joined = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return split(telling.feeds, kept), joined


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

    The largest difference, and the mean one: where sites select keys, rounding changes the
    selection at other places in every run.
    """
    planned = source.planned()
    arrays = list(case.feeds.values())
    changes, means = [0.0] * len(expected), [0.0] * len(expected)
    runs = [NetworkSession(planned, torch.float64).all(arrays)]
    session = NetworkSession(planned)
    single = session.all(arrays)
    runs += [session.all(nudged) for nudged in islice(nudge(arrays), _NUDGES)]
    for run in runs:
        for place, (own, one) in enumerate(zip(run, single, strict=True)):
            changes[place] = max(changes[place], _FACTOR * _largest(own, one))
            means[place] = max(means[place], _FACTOR * _mean(own, one))
    return changes, means


def _within(changes: Sequence[float], limits: Sequence[float]) -> bool:
    return all(change <= limit for change, limit in zip(changes, limits, strict=True))


def _largest(got: Array, expected: Array) -> float:
    return float("inf") if got.shape != expected.shape else max_abs(got, expected)


def _mean(got: Array, expected: Array) -> float:
    return float("inf") if got.shape != expected.shape else mean_abs(got, expected)


def _peak(measure: Measure, expected: Array) -> float:
    return max(measure.peak(expected), float(np.abs(expected).max(initial=0.0)))


def _place(case: Telling) -> str:
    shapes = {name: array.shape for name, array in case.feeds.items()}
    return f"at {sides_text(shapes)} ({case.content})"
