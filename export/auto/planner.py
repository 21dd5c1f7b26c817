"""``--attn auto``: candidates, their times and changes, and the verified selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...core.errors import NystraError
from ...models.loading import LoadedModel
from ..attention.candidates import candidates, uniform_plans
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import find_sites
from ..auto_options import DEFAULT_BUDGET, AutoOptions
from ..load.stage import Prepared
from .changes import measure_changes
from .costs import CostTable, read_costs, this_machine
from .knapsack import Item, Selection
from .proposal import Proposal
from .reasons import with_reasons
from .record import Record
from .result import AutoResult
from .search import Search
from .timing import Calls, measure_costs, measure_rest, record_calls
from .verification import Verified, Verifier

Progress = Callable[[str], None]
Candidates = Mapping[str, Sequence[Mechanism]]


def find_plan(
    prepared: Prepared, options: AutoOptions, folder: Path, progress: Progress
) -> Proposal:
    """Return the fastest plan that was found to keep the budget.

    Args:
        prepared: The network and its pictures.
        options: What is wanted besides the budget.
        folder: Where what was measured is kept.
        progress: Is called with what is going on.

    Raises:
        NystraError: A bad table of costs, or a record of another checkpoint.
    """
    loaded, pictures = prepared.loaded, prepared.pictures
    record = _record(prepared, folder)
    every = _candidates(loaded, options.keep_full, coarse=pictures.coarse)
    progress("1/100 time attention")
    calls = record_calls(loaded.network, loaded.facts)
    costs = _costs(options.costs, loaded, every, calls, record, progress)
    useful = _useful(every, costs, calls)
    measured = measure_changes(
        loaded.network, loaded.facts, pictures.seen, useful, record, progress
    )
    rows = {
        path: [
            Item(
                str(mechanism),
                costs.cost(calls.of[path], mechanism),
                measured[path][str(mechanism)],
            )
            for mechanism in row
        ]
        for path, row in useful.items()
    }
    mechanisms = {str(mechanism): mechanism for row in useful.values() for mechanism in row}
    uniform = {
        name: {path: _option(rows[path], str(mechanism)) for path, mechanism in sites.items()}
        for name, sites in uniform_plans(useful).items()
    }
    budget = DEFAULT_BUDGET if prepared.options.min_psnr is None else prepared.options.min_psnr
    verifier = Verifier(loaded.network, loaded.facts, pictures)
    search = _search(rows, budget, verifier, mechanisms, progress)
    choice = search.run(uniform.values())
    sites = with_reasons(rows, choice, mechanisms)
    result = AutoResult(
        loaded=loaded,
        pictures=pictures,
        budget=budget,
        options=rows,
        choice=choice,
        plan=sites,
        mechanisms=mechanisms,
        verified=search.verify(choice),
        uniform={name: (start, search.verify(start)) for name, start in uniform.items()},
        tried=tuple(search.tried),
        rest=costs.rest.get(loaded.checkpoint.sha256),
    )
    if options.report is not None:
        progress("100/100 draw the report")
        options.report(result)
    warnings = (*_foreign(costs, options.costs), *result.warnings())
    return Proposal(Plan(sites=dict(sites)), result.summary(), result.as_dict(), warnings)


def _candidates(loaded: LoadedModel, keep_full: Sequence[str], *, coarse: bool) -> Candidates:
    offered = {site.path: candidates(site, coarse=coarse) for site in find_sites(loaded.network)}
    return offered | {path: offered[path][:1] for path in keep_full}


def _costs(
    path: Path | None,
    loaded: LoadedModel,
    every: Candidates,
    calls: Calls,
    record: Record,
    progress: Progress,
) -> CostTable:
    """Return the table of the file, or that of the record, completed by measurements."""
    sha256 = loaded.checkpoint.sha256
    if path is not None and path.exists():
        table = read_costs(path)
        _refuse_incomplete(table, every, calls, path)
        same_machine = table.machine == this_machine()
    else:
        known, same_machine = record.costs, True
        usable = known is not None and known.machine == this_machine()
        table = known if known is not None and usable else CostTable()
        measure_costs(calls, every, table, progress)
    if same_machine and sha256 not in table.rest:
        measure_rest(loaded.network, loaded.facts, calls, table, sha256)
    record.costs = table
    if path is not None and not path.exists():
        table.write(path)
    return table


def _record(prepared: Prepared, folder: Path) -> Record:
    """Open what was measured before, or begin anew."""
    checkpoint = prepared.loaded.checkpoint
    path = folder / f"{checkpoint.path.stem}.auto.json"
    return Record.open(
        path, prepared.loaded, prepared.pictures.seen, replace=prepared.options.overwrite
    )


def _refuse_incomplete(table: CostTable, every: Candidates, calls: Calls, path: Path) -> None:
    lacking = [
        (site, call) for site, row in every.items() for call in table.lacks(calls.of[site], row)
    ]
    if lacking:
        site, call = lacking[0]
        raise NystraError(
            f"the costs {path} lack the geometry of {len(lacking)} sites of this network, or "
            f"candidates there, first of {site} ({call:.120}): they are of another network or "
            "another nystra; give a name that is not there yet, and it is measured and written"
        )


def _foreign(table: CostTable, path: Path | None) -> tuple[str, ...]:
    """Return a word where the times are of another machine."""
    changed = [
        f"{key} {table.machine.get(key)}, here {value}"
        for key, value in this_machine().items()
        if table.machine.get(key) != value
    ]
    if path is None or not changed:
        return ()
    text = f"the costs {path} were measured elsewhere ({'; '.join(changed)})"
    return (f"{text}: the plan is the fastest there, not here",)


def _useful(every: Candidates, costs: CostTable, calls: Calls) -> Candidates:
    """Return the candidates without those that are no faster than what a site came with."""
    return {
        path: [
            row[0],
            *(
                mechanism
                for mechanism in row[1:]
                if costs.cost(calls.of[path], mechanism) < costs.cost(calls.of[path], row[0])
            ),
        ]
        for path, row in every.items()
    }


def _option(row: Sequence[Item], name: str) -> Item:
    return next(option for option in row if option.name == name)


def _search(
    options: Mapping[str, Sequence[Item]],
    budget: float,
    verifier: Verifier,
    mechanisms: Mapping[str, Mechanism],
    progress: Progress,
) -> Search:
    def plan(choice: Selection) -> dict[str, Mechanism]:
        return {path: mechanisms[option.name] for path, option in choice.items()}

    verified = 0

    def verify(choice: Selection) -> Verified:
        nonlocal verified
        verified += 1
        progress(f"100/100 verify plan {verified}")
        return verifier(plan(choice))

    def shares(choice: Selection) -> Mapping[str, float]:
        progress("100/100 second pass")
        return verifier.shares(plan(choice))

    return Search(options, 10.0 ** (-budget / 10.0), verify, shares)
