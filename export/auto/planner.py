"""``--attn auto``: candidates, their times, and the choice among the faster ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import NystraError
from ...models.loading import LoadedModel
from ..attention.candidates import candidates
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import find_sites
from ..auto_options import DEFAULT_BUDGET, AutoOptions
from ..load.stage import Prepared
from ..targets import TENSORRT
from .choosing import Candidates, Offer, choose, keep_trained
from .costs import CostTable, read_costs, this_machine
from .proposal import Proposal
from .record import Record
from .timing import Calls, measure_costs, record_calls

LEAST_GAIN = 1.1
"""Speedup over the attention as trained that a candidate needs at a site: less is within the noise
of timing, and measuring its change of the output takes as long as for any other."""

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
    record = _record(prepared, folder)
    exact = exact_on_a_gpu(loaded) if prepared.options.target == TENSORRT else []
    every = _candidates(loaded, [*options.keep_full, *exact], coarse=images.coarse)
    progress("time attention")
    calls = record_calls(loaded.network, loaded.facts)
    costs = _costs(options.costs, every, calls, record, progress)
    budget = DEFAULT_BUDGET if prepared.options.min_psnr is None else prepared.options.min_psnr
    offer = Offer(loaded, images, budget, _useful(every, costs, calls), costs, calls)
    if offer.is_empty:
        result = keep_trained(offer, _no_gain(loaded, exact))
        progress(result.idle)
    else:
        result = choose(offer, record, progress)
    if options.report is not None:
        progress("draw the report")
        options.report(result)
    warnings = (*_foreign(costs, options.costs), *result.warnings())
    return Proposal(Plan(sites=dict(result.plan)), result.summary(), result.as_dict(), warnings)


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


def _candidates(loaded: LoadedModel, keep_full: Sequence[str], *, coarse: bool) -> Candidates:
    offered = {site.path: candidates(site, coarse=coarse) for site in find_sites(loaded.network)}
    return offered | {path: offered[path][:1] for path in keep_full}


def _costs(
    path: Path | None,
    every: Candidates,
    calls: Calls,
    record: Record,
    progress: Progress,
) -> CostTable:
    """Return the table of the file, or that of the record, completed by measurements."""
    if path is not None and path.exists():
        table = read_costs(path)
        _refuse_incomplete(table, every, calls, path)
    else:
        known = record.costs
        usable = known is not None and known.machine == this_machine()
        table = known if known is not None and usable else CostTable()
        measure_costs(calls, every, table, progress)
    record.costs = table
    if path is not None and not path.exists():
        table.write(path)
    return table


def _record(prepared: Prepared, folder: Path) -> Record:
    """Open earlier measurements, or begin again."""
    checkpoint = prepared.loaded.checkpoint
    path = folder / f"{checkpoint.path.stem}.auto.json"
    return Record.open(
        path, prepared.loaded, prepared.images.seen, replace=prepared.options.overwrite
    )


def _refuse_incomplete(table: CostTable, every: Candidates, calls: Calls, path: Path) -> None:
    lacking = [
        (site, call) for site, row in every.items() for call in table.lacks(calls.of[site], row)
    ]
    if lacking:
        site, call = lacking[0]
        raise NystraError(
            f"the costs {path} have no entry for {len(lacking)} sites of this network or their "
            f"candidates, first {site} ({call:.120}): they are for another network or version of "
            "nystra; give the name of a new file, which will be measured and written"
        )


def _foreign(table: CostTable, path: Path | None) -> tuple[str, ...]:
    """Return a warning if the times are from another machine."""
    changed = [
        f"{key} {table.machine.get(key)}, here {value}"
        for key, value in this_machine().items()
        if table.machine.get(key) != value
    ]
    if path is None or not changed:
        return ()
    text = f"the costs {path} were measured elsewhere ({'; '.join(changed)})"
    return (f"{text}: the plan is the fastest on that machine, not on this one",)


def _useful(every: Candidates, costs: CostTable, calls: Calls) -> Candidates:
    """Return the candidates without those that are hardly faster at their site."""

    def gains(path: str, mechanism: Mechanism) -> bool:
        own = costs.cost(calls.of[path], every[path][0])
        return costs.cost(calls.of[path], mechanism) * LEAST_GAIN <= own

    return {
        path: [row[0], *(mechanism for mechanism in row[1:] if gains(path, mechanism))]
        for path, row in every.items()
    }
