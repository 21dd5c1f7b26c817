"""Timing several functions against each other on a machine whose speed drifts."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeVar

from ...core.errors import NystraError

Member = TypeVar("Member")


def turns(active: Callable[[], Sequence[Member]]) -> Iterator[Member]:
    """Yield the members of interleaved rounds, until none is active.

    Each round has every active member once, alternately in forward and reverse order, so that a
    drift of the machine affects all of them equally.

    Args:
        active: Returns the members of the next round.
    """
    for number in count():
        members = active()
        if not members:
            return
        yield from reversed(members) if number % 2 else members


def time_in_turns(
    functions: Mapping[str, Callable[[], object]],
    active: Callable[[Mapping[str, Sequence[float]]], Sequence[str]],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Call functions in interleaved rounds, and return the seconds of each call, by name.

    Args:
        functions: Name -> function.
        active: Seconds of the calls so far, by name -> names of the functions of the next round.
        clock: Returns the time in seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for name in turns(lambda: active(times)):
        start = clock()
        functions[name]()
        times[name].append(clock() - start)
    return times


def median_ratio(first: Iterable[float], second: Iterable[float]) -> float:
    """Return the median over the rounds of the first time / the second, while both have one."""
    pairs = zip(first, second, strict=False)
    return statistics.median(one / max(other, 1e-12) for one, other in pairs)


def time_interleaved(
    functions: Mapping[str, Callable[[], object]],
    seconds: float = 10.0,
    *,
    warmup: int = 1,
    minimum: int = 3,
    maximum: int = 100,
) -> dict[str, list[float]]:
    """Time several functions in interleaved rounds, and return the seconds of each call, by name.

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
    order = list(functions)

    def choose_names(times: Mapping[str, Sequence[float]]) -> Sequence[str]:
        rounds, elapsed = len(times[order[0]]), time.perf_counter() - begin
        late = rounds > 0 and elapsed >= (seconds if rounds >= minimum else 3.0 * seconds)
        return order if rounds < maximum and not late else []

    return time_in_turns(functions, choose_names)


def measure_shortest(
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
    begin = clock()

    def active(times: Mapping[str, Sequence[float]]) -> Sequence[str]:
        done = max(map(len, times.values()), default=0)
        if done < rounds:
            return list(functions)
        if done >= most_rounds or clock() - begin > seconds:
            return []
        running = [name for name in functions if len(times[name]) == done]
        if done > rounds:
            return running
        return [name for name in running if min(times[name]) <= drop * min(times[running[0]])]

    times = time_in_turns(functions, active, clock)
    return {name: min(own, default=math.inf) for name, own in times.items()}
