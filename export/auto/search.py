"""``--attn auto``: the fastest plan that keeps a limit of change, chosen per class of sites.

Sites that pass equal shapes and geometry to attention are a class, or two, the first half and the
rest, where that gives few classes; all sites of a class get one mechanism. The times of the classes
add up. Their changes of the output nearly do, so the sums only say which plans are worth a run:
what is chosen is the fastest plan that kept the limit when the whole network ran.

1. Each candidate is timed at each class; those that are hardly faster than as trained are dropped.
2. Each candidate is run at each class alone, and at all classes that support it (a uniform plan).
3. The plans near the frontier of time and sum of changes are run, the fastest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...core.ports.port import size_text
from ...models.loading import LoadedModel
from ..attention.candidates import candidates
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites
from ..auto_options import DEFAULT_BUDGET, AutoOptions, Proposal
from ..load.stage import Prepared
from ..targets import TENSORRT
from .costs import Calls, CostTable, costs_of, foreign_warnings, record_calls
from .result import Found, SiteClass, describe, time_of
from .trials import Choice, Record, Trials, Tried

LEAST_GAIN = 1.1
"""Speedup over the attention as trained that a candidate needs at a class: less is within the noise
of timing."""

LEAST_ON_A_GPU = 32 * 32
"""Tokens of a window from which linear attention may be faster on a GPU, by the count of
instructions: below, exact attention on tensor cores needs fewer. Not measured on a GPU."""

MOST_HALVED = 6
"""Classes up to which the first half of the sites of each shape is a class of its own: changes of
the output differ most between the first and the last sites."""

ROUNDS, MOST_NEAR = 4, 24
"""Plans that are run to learn how changes add up, and then near the frontier."""

NEAR = 1.3
"""How far the change of a plan may be from the sum of its classes, for plans near the frontier."""

_FEW = 5000
"""Plans up to which all are compared; of more, only those that no other plan surpasses."""

Progress = Callable[[str], None]


def find_plan(
    prepared: Prepared, options: AutoOptions, folder: Path, progress: Progress
) -> Proposal:
    """Return the fastest plan found that keeps the budget.

    Args:
        prepared: The network and its images.
        options: The options other than the budget.
        folder: The folder of the measurements.
        progress: Called with progress messages.

    Raises:
        NystraError: A bad table of costs, or a record of another checkpoint.
    """
    loaded, images = prepared.loaded, prepared.images
    record = Record(folder, loaded, replace=prepared.options.overwrite)
    exact = exact_on_a_gpu(loaded) if prepared.options.target == TENSORRT else []
    sites = {
        site.path: candidates(site, coarse=images.coarse) for site in find_sites(loaded.network)
    }
    sites |= {path: sites[path][:1] for path in (*options.keep_full, *exact)}
    progress("time attention")
    calls = record_calls(loaded.network, loaded.facts)
    record.costs = costs = costs_of(options.costs, sites, calls, record.costs, progress)
    classes = classes_of(sites, calls, costs)
    budget = DEFAULT_BUDGET if prepared.options.min_psnr is None else prepared.options.min_psnr
    idle = "" if any(len(each.options) > 1 for each in classes) else _no_gain(loaded, exact)
    if idle:
        progress(idle)
        found = Found(tuple(each.trained for each in classes), {}, {}, {})
    else:
        trials = Trials(loaded, images, record, [each.paths for each in classes], progress)
        record.write()
        found = choose(classes, 10.0 ** (-budget / 10.0), trials)
    proposal = describe(classes, found, budget, images, size_text(calls.size), idle)
    foreign = foreign_warnings(costs, options.costs)
    return replace(proposal, warnings=(*foreign, *proposal.warnings))


def classes_of(
    sites: dict[str, list[Mechanism]], calls: Calls, costs: CostTable
) -> list[SiteClass]:
    """Return the classes of sites, each with the candidates that are faster than as trained.

    Args:
        sites: Path of a site -> its candidates, as trained first.
        calls: The calls of the sites.
        costs: The times of the candidates at these calls.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for path, row in sites.items():
        alike.setdefault((*calls.of[path], "|", *map(str, row)), []).append(path)
    groups = list(alike.values())
    if 2 * len(groups) <= MOST_HALVED:
        cut = [(paths, len(paths) // 2) for paths in groups]
        groups = [part for paths, at in cut for part in (paths[:at], paths[at:]) if part]
    classes = []
    for paths in groups:
        called = calls.of[paths[0]]
        seconds = {each: len(paths) * costs.cost(called, each) for each in sites[paths[0]]}
        trained, *others = seconds
        kept = [each for each in others if seconds[each] * LEAST_GAIN <= seconds[trained]]
        options = {each: seconds[each] for each in (trained, *kept)}
        classes.append(SiteClass(tuple(paths), options))
    return classes


def choose(
    classes: Sequence[SiteClass], budget: float, run: Callable[[Choice, int], Tried]
) -> Found:
    """Return the fastest choice that keeps the budget among those that are worth a run.

    Args:
        classes: The classes and their options.
        budget: Mean squared change that a plan may make.
        run: Runs a choice; also gets how many are expected to come.
    """
    trained: Choice = tuple(row.trained for row in classes)
    tried = {trained: Tried(0.0, 0.0)}
    single = {
        (at, option): (*trained[:at], option, *trained[at + 1 :])
        for at, row in enumerate(classes)
        for option in row.options
    }
    named = dict.fromkeys(option for at, option in single if option != trained[at])
    uniform = {
        str(each): tuple(each if each in row.options else row.trained for row in classes)
        for each in named
    }
    to_come = len(single) - len(classes) + len(uniform) + ROUNDS + MOST_NEAR

    def attempt(choice: Choice) -> float:
        nonlocal to_come
        if choice not in tried:
            tried[choice] = run(choice, to_come)
        to_come -= choice != trained
        return tried[choice].worst

    def seconds(choice: Choice) -> float:
        return time_of(classes, choice)

    alone = {key: attempt(choice) for key, choice in single.items()}
    for choice in uniform.values():
        attempt(choice)
    frontier = near_frontier(classes, alone)
    factor = 1.0  # of the change of a plan over the sum of the changes of its classes
    for _ in range(ROUNDS):
        within = [choice for choice, change in frontier.items() if change * factor <= budget]
        choice = min(within, key=seconds)
        known = choice in tried
        worst = attempt(choice)
        if frontier[choice] == 0.0 or worst == 0.0:
            break
        factor = worst / frontier[choice]
        if known:
            break
    best = min((each for each in tried if tried[each].worst <= budget), key=seconds)
    near = [
        choice
        for choice, change in frontier.items()
        if seconds(choice) < seconds(best) and change * factor <= budget * NEAR
    ]
    near = sorted(near, key=seconds)[:: -(-len(near) // MOST_NEAR) or 1]
    to_come = len(near)
    best = next((choice for choice in near if attempt(choice) <= budget), best)
    return Found(best, alone, uniform, tried)


def near_frontier(
    classes: Sequence[SiteClass], alone: Mapping[tuple[int, Mechanism], float]
) -> dict[Choice, float]:
    """Return choices with the sums of their changes: of few all, of many the undominated ones.

    Args:
        classes: The classes and their options.
        alone: Class and option -> change with that class alone replaced.
    """
    sums: dict[Choice, float] = {(): 0.0}
    for at, row in enumerate(classes):
        sums = {
            (*choice, option): change + alone[at, option]
            for choice, change in sums.items()
            for option in row.options
        }
        if len(sums) <= _FEW:
            continue
        ordered = sorted(sums, key=lambda choice: (time_of(classes, choice), sums[choice]))
        best, kept = float("inf"), {}
        for choice in ordered:
            if sums[choice] < best:
                best = kept[choice] = sums[choice]
        sums = kept
    return sums


def exact_on_a_gpu(loaded: LoadedModel) -> list[str]:
    """Return the sites that stay as trained for a GPU: windows below `LEAST_ON_A_GPU` tokens.

    Times are taken on this machine's CPU and do not rank what a GPU runs.
    """
    sites = find_sites(loaded.network)
    return [site.path for site in sites if site.tokens is not None and site.tokens < LEAST_ON_A_GPU]


def _no_gain(loaded: LoadedModel, exact: Sequence[str]) -> str:
    sites = find_sites(loaded.network)
    if len(exact) == len(sites):
        return (
            f"the file is for a GPU, and the windows of all {len(sites)} sites have less than "
            f"{LEAST_ON_A_GPU} tokens: exact attention is expected to be the fastest there"
        )
    counts = {site.tokens for site in sites if site.tokens is not None}
    tokens = f" of {min(counts)} tokens" if len(counts) == 1 else ""
    return (
        f"no candidate is {LEAST_GAIN:g} times as fast as trained at any of the {len(sites)} "
        f"sites{tokens} on this machine, so none was tried on images"
    )
