"""The choice of ``--attn auto`` on given numbers: within the limit, fast, deterministic."""

from __future__ import annotations

import itertools
import random

import pytest

from nystra.export.auto.knapsack import Item, Selection, change, fastest, seconds
from nystra.export.auto.search import Search, names
from nystra.export.auto.verification import Verified

EXACT = Item("full", 10.0, 0.0)


def random_options(seed: int) -> dict[str, list[Item]]:
    draw = random.Random(seed)
    return {
        f"site{site}": [
            EXACT,
            *(Item(f"c{k}", draw.uniform(1, 9), 10 ** draw.uniform(-6, -2)) for k in range(4)),
        ]
        for site in range(5)
    }


def optimum(options: dict[str, list[Item]], budget: float) -> float:
    """The shortest time, by trying every choice."""
    paths = list(options)
    every = (dict(zip(paths, row, strict=True)) for row in itertools.product(*options.values()))
    return min(seconds(choice) for choice in every if change(choice) <= budget)


@pytest.mark.parametrize("seed", range(8))
def test_the_choice_keeps_the_budget_and_is_nearly_the_fastest(seed: int) -> None:
    options = random_options(seed)
    for budget in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        choice = fastest(options, budget)
        assert change(choice) <= budget
        assert seconds(choice) <= 1.12 * optimum(options, budget)
        assert choice == fastest(options, budget)


def test_no_budget_is_exact_and_a_large_one_is_the_fastest() -> None:
    options = random_options(1)
    assert set(names(fastest(options, 0.0)).values()) == {"full"}
    least = {path: min(row, key=lambda option: option.seconds) for path, row in options.items()}
    assert fastest(options, 1.0) == least


def searched(
    options: dict[str, list[Item]], budget: float, factor: float, starts: list[Selection]
) -> tuple[Search, Selection]:
    """Search where a whole plan changes ``factor`` times the sum of the changes of its sites."""

    def verify(choice: Selection) -> Verified:
        total = factor * sum(
            next(option.change for option in options[path] if option.name == name)
            for path, name in names(choice).items()
        )
        return Verified(total, 0.9 * total)

    def shares(choice: Selection) -> dict[str, float]:
        return {path: factor * option.change for path, option in choice.items() if option.change}

    search = Search(options, budget, verify, shares)
    return search, search.run(starts)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_what_does_not_add_up_is_corrected(seed: int, factor: float) -> None:
    options, budget = random_options(seed), 1e-3
    search, best = searched(options, budget, factor, [])
    assert search.verify(best).worst <= budget
    assert seconds(best) <= 1.12 * optimum(options, budget / factor)
    assert len(search.tried) < 40


def test_no_choice_that_was_tried_first_and_keeps_the_budget_is_faster() -> None:
    options = random_options(3)
    start = {path: row[1] for path, row in options.items()}
    budget = change(start)
    _, best = searched(options, budget, 1.0, [start])
    assert seconds(best) <= seconds(start)


def test_held_out_images_have_to_keep_the_budget_too() -> None:
    options = {"a": [EXACT, Item("fast", 1.0, 1e-6), Item("slow", 5.0, 1e-9)]}

    def verify(choice: Selection) -> Verified:
        true = {"full": 0.0, "fast": 1e-6, "slow": 1e-9}[choice["a"].name]
        return Verified(true, 1e4 * true)

    search = Search(options, 1e-4, verify, lambda _: {})
    assert names(search.run()) == {"a": "slow"}
