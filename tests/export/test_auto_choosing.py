"""The choice of ``--attn auto`` on given numbers: within the limit, and the fastest."""

from __future__ import annotations

import random

import pytest

from nystra.export.attention.registry import mechanism
from nystra.export.auto.costs import Calls, CostTable
from nystra.export.auto.result import Found
from nystra.export.auto.search import choose, uniform_plans
from nystra.export.auto.trials import Tried, UniformPlan

FULL = mechanism("full")
OPTIONS = tuple(mechanism("nystra", landmarks=(size, size)) for size in range(2, 9))


def plans_of(times: dict[str, list[float]]) -> list[UniformPlan]:
    """Return the plans of sites with these times, of which the first is as trained."""
    calls = Calls(of={path: [path] for path in times})
    rows = {path: (FULL, *OPTIONS[: len(row) - 1]) for path, row in times.items()}
    named = {path: dict(zip(map(str, rows[path]), row, strict=True)) for path, row in times.items()}
    return uniform_plans(rows, calls, CostTable(seconds=named))


def search(plans: list[UniformPlan], changes: list[float], budget: float, held_out: float) -> Found:
    expected = list(zip(plans[1:], changes, range(len(changes), 0, -1), strict=True))

    def run(plan: UniformPlan, to_come: int) -> Tried:
        wanted, change, left = expected[len(runs)]
        assert (plan, to_come) == (wanted, left)
        runs.append(plan)
        return Tried(change, held_out * change)

    runs: list[UniformPlan] = []
    return choose(plans[0], plans[1:], budget, run)


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_the_fastest_within_the_budget(seed: int) -> None:
    draw = random.Random(seed)
    times = {path: [10.0, *(draw.uniform(1, 9) for _ in OPTIONS)] for path in "abc"}
    plans = plans_of(times)
    changes = [10 ** draw.uniform(-6, -2) for _ in OPTIONS]
    for budget in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0):
        for held_out in (0.5, 2.0):
            found = search(plans, changes, budget, held_out)
            allowed = [sum(row[0] for row in times.values())]
            for at, change in enumerate(changes):
                if max(1.0, held_out) * change <= budget:
                    allowed.append(sum(row[at + 1] for row in times.values()))
            assert found.chosen.time() == pytest.approx(min(allowed))
            assert list(found.tried) == plans[1:]


def test_a_site_stays_as_trained_where_a_candidate_is_missing_or_hardly_faster() -> None:
    plans = plans_of({"a": [10.0, 5.0, 1.0], "b": [10.0, 9.5], "c": [10.0], "d": [10.0, 9.0, 12.0]})
    trained, first, second = plans
    assert trained.sites == dict.fromkeys("abcd", FULL)
    assert first.sites == {"a": OPTIONS[0], "b": FULL, "c": FULL, "d": OPTIONS[0]}
    assert second.sites == {"a": OPTIONS[1], "b": FULL, "c": FULL, "d": FULL}
    assert [plan.time() for plan in plans] == [40.0, 34.0, 31.0]
    assert first.name == str(OPTIONS[0])
    assert plans_of({"a": [10.0, 9.5], "b": [1.0, 2.0]})[1:] == []
