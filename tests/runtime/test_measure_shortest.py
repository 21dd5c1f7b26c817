"""The shortest time of functions that are called in turns."""

from __future__ import annotations

from nystra.runtime.timing.turns import measure_shortest


class Machine:
    """A clock that functions advance by their duration, call by call."""

    def __init__(self, **times: list[float]) -> None:
        self.now, self.calls = 0.0, dict.fromkeys(times, 0)
        self.functions = {name: lambda name=name: self._run(name, times[name]) for name in times}

    def _run(self, name: str, times: list[float]) -> None:
        self.now += times[min(self.calls[name], len(times) - 1)]
        self.calls[name] += 1

    def clock(self) -> float:
        return self.now


def test_the_least_of_all_rounds() -> None:
    machine = Machine(a=[4.0, 2.0, 3.0], b=[1.0, 5.0, 6.0])
    assert measure_shortest(machine.functions, clock=machine.clock) == {"a": 2.0, "b": 1.0}
    assert machine.calls == {"a": 3, "b": 3}


def test_what_is_slow_drops_out_and_time_ends_the_rounds() -> None:
    machine = Machine(a=[1.0], slow=[2.5], b=[2.0])
    more = {"rounds": 2, "most_rounds": 9, "drop": 2.0, "clock": machine.clock}
    least = measure_shortest(machine.functions, seconds=15.0, **more)
    assert least == {"a": 1.0, "slow": 2.5, "b": 2.0}
    assert machine.calls == {"a": 4, "slow": 2, "b": 4}  # 11 s for two rounds, then 3 s each


def test_nothing_is_timed() -> None:
    assert measure_shortest({}) == {}
