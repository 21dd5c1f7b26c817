"""The choice of ``--attn auto`` on given numbers: within the limit, fast, deterministic."""

from __future__ import annotations

import itertools
import random

import pytest

from nystra.export.attention.registry import mechanism
from nystra.export.auto.result import Found, SiteClass, time_of
from nystra.export.auto.search import MOST_NEAR, ROUNDS, choose, near_frontier
from nystra.export.auto.trials import Choice, Tried

FULL = mechanism("full")
OPTIONS = tuple(mechanism("nystra", landmarks=(size, size)) for size in range(2, 9))


def random_classes(
    seed: int, count: int = 3, options: int = 5
) -> tuple[list[SiteClass], list[list[float]]]:
    """Return classes of two sites, and the change of each option."""
    draw, classes, changes = random.Random(seed), [], []
    for at in range(count):
        times = (10.0, *(draw.uniform(1, 9) for _ in range(options)))
        row = dict(zip((FULL, *OPTIONS[:options]), times, strict=True))
        classes.append(SiteClass((f"{at}.a", f"{at}.b"), row))
        changes.append([0.0, *(10 ** draw.uniform(-6, -2) for _ in range(options))])
    return classes, changes


def searched(
    classes: list[SiteClass],
    changes: list[list[float]],
    budget: float,
    factor: float = 1.0,
    held_out: float = 0.9,
) -> tuple[Found, int]:
    """Search where a whole plan changes ``factor`` times the sum of its classes, if several."""
    runs = 0

    def run(choice: Choice, _: int) -> Tried:
        nonlocal runs
        runs += 1
        parts = changes_of(classes, changes, choice)
        total = sum(parts) * (factor if sum(part > 0 for part in parts) > 1 else 1.0)
        return Tried(total, held_out * total)

    return choose(classes, budget, run), runs


def changes_of(classes: list[SiteClass], changes: list[list[float]], choice: Choice) -> list[float]:
    """The change of each class."""
    return [changes[at][[*row.options].index(choice[at])] for at, row in enumerate(classes)]


def optimum(classes: list[SiteClass], changes: list[list[float]], budget: float) -> float:
    """The shortest time, by trying every choice."""
    every = itertools.product(*(row.options for row in classes))
    return min(
        time_of(classes, choice)
        for choice in every
        if sum(changes_of(classes, changes, choice)) <= budget
    )


@pytest.mark.parametrize("seed", range(6))
def test_where_changes_add_up_the_choice_is_the_fastest(seed: int) -> None:
    classes, changes = random_classes(seed)
    for budget in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0):
        found, runs = searched(classes, changes, budget)
        assert time_of(classes, found.choice) == optimum(classes, changes, budget)
        assert runs <= 15 + 5 + ROUNDS + MOST_NEAR
        assert found == searched(classes, changes, budget)[0]


@pytest.mark.parametrize("factor", [0.3, 0.8, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_what_does_not_add_up_is_measured(seed: int, factor: float) -> None:
    classes, changes = random_classes(seed)
    found, _ = searched(classes, changes, 1e-3, factor)
    assert found.tried[found.choice].worst <= 1e-3
    several = [[factor * change for change in row] for row in changes]
    assert time_of(classes, found.choice) <= 1.1 * optimum(classes, several, 1e-3)


def test_of_many_classes_only_some_plans_are_compared_and_none_of_the_fastest_is_missing() -> None:
    classes, changes = random_classes(2, 6, 5)
    alone = {
        (at, option): change
        for at, row in enumerate(changes)
        for option, change in zip(classes[at].options, row, strict=True)
    }
    frontier = near_frontier(classes, alone)
    assert len(frontier) < 6**6 / 10
    for budget in (1e-5, 1e-4, 1e-3, 1e-2):
        within = [time_of(classes, each) for each in frontier if frontier[each] <= budget]
        assert min(within) == pytest.approx(optimum(classes, changes, budget), rel=1e-12)
    found, runs = searched(classes, changes, 1e-3, 1.2)
    assert found.tried[found.choice].worst <= 1e-3
    assert runs <= 30 + 5 + ROUNDS + MOST_NEAR


def test_no_uniform_plan_that_keeps_the_budget_is_faster() -> None:
    classes, changes = random_classes(3)
    uniform: Choice = (OPTIONS[0],) * 3
    budget = 1.5 * sum(row[1] for row in changes)
    found, _ = searched(classes, changes, budget, 1.5)
    assert found.uniform[str(OPTIONS[0])] == uniform
    assert time_of(classes, found.choice) <= time_of(classes, uniform)


def test_held_out_images_have_to_keep_the_budget_too() -> None:
    classes = [SiteClass(("a",), {FULL: 10.0, OPTIONS[0]: 1.0, OPTIONS[1]: 5.0})]
    changes = [[0.0, 1e-6, 1e-9]]
    assert searched(classes, changes, 1e-4, held_out=1e4)[0].choice == (OPTIONS[1],)
    assert searched(classes, changes, 1e-4, held_out=1.0)[0].choice == (OPTIONS[0],)


def test_nothing_that_changes_keeps_a_budget_of_zero() -> None:
    classes, changes = random_classes(1)
    assert searched(classes, changes, 0.0)[0].choice == (FULL,) * 3
