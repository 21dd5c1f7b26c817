"""The choice of ``--attn auto`` on given numbers: within the limit, and the fastest."""

from __future__ import annotations

import random

import pytest

from nystra.export.attention.registry import mechanism
from nystra.export.auto.search import UniformPlan, choose

FULL = mechanism("full")
OPTIONS = tuple(mechanism("nystra", landmarks=(size, size)) for size in range(2, 9))


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_the_fastest_within_the_budget(seed: int) -> None:
    draw = random.Random(seed)
    trained = UniformPlan("as trained", {"a": FULL}, 10.0)
    plans = [
        UniformPlan(
            str(option),
            {"a": option},
            draw.uniform(1, 12),
            10 ** draw.uniform(-6, -2),
            10 ** draw.uniform(-6, -2),
        )
        for option in OPTIONS
    ]
    for budget in (0.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0):
        allowed = [trained.seconds]
        for plan in plans:
            if max(plan.seen, plan.held_out) <= 10 ** (-budget / 10):
                allowed.append(plan.seconds)
        assert choose(trained, plans, budget).seconds == min(allowed)
