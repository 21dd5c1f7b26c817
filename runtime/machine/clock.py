"""Timing several functions against each other on a machine whose speed drifts."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.errors import NystraError


@dataclass(frozen=True)
class Timing:
    """What `interleaved` measured.

    Attributes:
        medians: Name -> median seconds of a call.
        ratios: (first, second) -> median over the rounds of time(first) / time(second).
        rounds: How many rounds were timed.
        seconds: Seconds the timed rounds took in all.
    """

    medians: dict[str, float]
    ratios: dict[tuple[str, str], float]
    rounds: int
    seconds: float


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    seconds: float = 10.0,
    *,
    warmup: int = 1,
    minimum: int = 3,
    maximum: int = 100,
) -> Timing:
    """Time several functions in interleaved rounds.

    Each round calls every function once, alternating between forward and reverse order, so that a
    drift of the machine affects all of them equally; ratios are computed within a round.

    Args:
        functions: Name -> function.
        seconds: No round starts after this time (warm-up included) once one round is done; a round
            is never interrupted.
        warmup: Untimed rounds at the beginning.
        minimum: Rounds that run even if the time is exceeded, up to three times the time.
        maximum: Maximum number of rounds.

    Raises:
        NystraError: There are no functions.
    """
    if not functions:
        raise NystraError("got no functions to time, expected one or more")
    begin = time.perf_counter()
    for _ in range(warmup):
        for function in functions.values():
            function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    start = time.perf_counter()
    rounds = 0
    while rounds < maximum:
        for name in order if rounds % 2 == 0 else reversed(order):
            before = time.perf_counter()
            functions[name]()
            times[name].append(time.perf_counter() - before)
        rounds += 1
        spent = time.perf_counter() - begin
        if spent >= (seconds if rounds >= minimum else 3.0 * seconds):
            break
    ratios = {
        (first, second): statistics.median(
            a / max(b, 1e-12) for a, b in zip(times[first], times[second], strict=True)
        )
        for first in functions
        for second in functions
        if first != second
    }
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Timing(medians, ratios, rounds, time.perf_counter() - start)


def least_seconds(
    functions: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 3,
    most_rounds: int = 3,
    seconds: float = 0.0,
    drop: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the shortest time of a call of each function, called in turns, in seconds.

    Whatever else the machine does only ever adds to a time.

    Args:
        functions: Name -> function.
        rounds: Calls of each at least.
        most_rounds: Calls of each at most.
        seconds: No further round begins after this time, once ``rounds`` rounds are done.
        drop: A function that took this many times as long as the first one in those rounds is no
            longer called.
        clock: Returns the time in seconds.
    """
    least = dict.fromkeys(functions, math.inf)
    running = list(functions)
    begin = clock()
    for done in range(max(rounds, most_rounds)):
        if done >= rounds and clock() - begin > seconds:
            break
        for name in running:
            start = clock()
            functions[name]()
            least[name] = min(least[name], clock() - start)
        if done + 1 == rounds:
            running = [name for name in running if least[name] <= drop * least[running[0]]]
    return least
