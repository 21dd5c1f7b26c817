"""``--attn auto``: the fastest uniform plan that keeps a limit of change.

1. Each candidate is timed at each site. Where it is not supported, or hardly faster than what was
   trained, the site stays as trained.
2. Each plan with one candidate everywhere is run on the images.
3. The fastest plan that keeps the limit, on the images that were held out too, is chosen.
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
from .result import Found, describe
from .trials import Record, Trials, Tried, UniformPlan

LEAST_GAIN = 1.1
"""Speedup over the attention as trained that a candidate needs at a site: less is within the noise
of timing."""

LEAST_ON_A_GPU = 32 * 32
"""Tokens of a window from which linear attention may be faster on a GPU, by the count of
instructions: below, exact attention on tensor cores needs fewer. Not measured on a GPU."""

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
    trained, *plans = uniform_plans(sites, calls, costs)
    budget = DEFAULT_BUDGET if prepared.options.min_psnr is None else prepared.options.min_psnr
    idle = "" if plans else _no_gain(loaded, exact)
    if idle:
        progress(idle)
        found = Found(trained, trained, {})
    else:
        trials = Trials(loaded, images, record, progress)
        record.write()
        found = choose(trained, plans, 10.0 ** (-budget / 10.0), trials)
    proposal = describe(found, budget, images, size_text(calls.size), idle)
    foreign = foreign_warnings(costs, options.costs)
    return replace(proposal, warnings=(*foreign, *proposal.warnings))


def uniform_plans(
    sites: Mapping[str, Sequence[Mechanism]], calls: Calls, costs: CostTable
) -> list[UniformPlan]:
    """Return the plan as trained, and one for each candidate that is faster at some site.

    Args:
        sites: Path of a site -> its candidates, as trained first.
        calls: The calls of the sites.
        costs: The times of the candidates at these calls.
    """
    seconds = {
        path: {each: costs.cost(calls.of[path], each) for each in row}
        for path, row in sites.items()
    }
    trained = {path: row[0] for path, row in sites.items()}
    plans = [_plan("as trained", trained, seconds)]
    for candidate in dict.fromkeys(each for row in sites.values() for each in row[1:]):
        chosen = dict(trained)
        for path, row in seconds.items():
            own = row[trained[path]]
            if row.get(candidate, own) * LEAST_GAIN <= own:
                chosen[path] = candidate
        if chosen != trained:
            plans.append(_plan(str(candidate), chosen, seconds))
    return plans


def _plan(
    name: str, sites: Mapping[str, Mechanism], seconds: Mapping[str, Mapping[Mechanism, float]]
) -> UniformPlan:
    return UniformPlan(name, sites, {path: seconds[path][each] for path, each in sites.items()})


def choose(
    trained: UniformPlan,
    plans: Sequence[UniformPlan],
    budget: float,
    run: Callable[[UniformPlan, int], Tried],
) -> Found:
    """Return the fastest plan that keeps the budget, among all of them.

    Args:
        trained: The plan as trained, which changes nothing.
        plans: The others.
        budget: Mean squared change that a plan may make.
        run: Runs a plan; also gets how many are to come, this one included.
    """
    tried = {plan: run(plan, len(plans) - number) for number, plan in enumerate(plans)}
    within = [plan for plan in plans if tried[plan].worst <= budget]
    return Found(trained, min((*within, trained), key=UniformPlan.time), tried)


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
