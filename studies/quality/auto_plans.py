"""Compare the choice of ``--attn auto`` with uniform plans.

Data is not shipped: give folders of small images and their ground truth::

    OMP_NUM_THREADS=1 python -m studies.quality.auto_plans --folder build/auto \\
        --set Set14 Set14/image_SRF_2 Set14/image_SRF_2

Measurements are kept in the folder, so that a repetition is fast. Without ``--set`` only times are
printed, the only meaningful figures of generated weights.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nystra.export import ExportOptions
from nystra.export.attention.candidates import candidates
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.site import find_sites, neutral, swap
from nystra.export.auto_options import AutoOptions
from nystra.export.load.stage import prepare
from nystra.export.plan.stage import Planned, make_plan
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import LoadedModel, load
from nystra.models.pretrained import checkpoint_path
from studies.quality.measure import ImageSet, Result, measure

BUDGETS = (40.0, 45.0, 50.0, 55.0)
UNIFORM = (
    *("nystra", "nystromformer", "cluster clusters=2x2 block=4"),
    *("cluster clusters=4x4 block=4", "cluster clusters=4x4 block=8"),
)
"""The uniform plans that are run on the sets; of all others the time is told."""


def main() -> None:
    """Print one table per network as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", action="append", help="checkpoint or shipped name; repeatable")
    parser.add_argument("--folder", type=Path, required=True, help="for what is measured")
    parser.add_argument(
        "--set", nargs=3, action="append", default=[], metavar=("NAME", "INPUTS", "TRUTHS")
    )
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, metavar="DB")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    sets = [ImageSet(name, Path(inputs), Path(truths)) for name, inputs, truths in args.set]
    for name in args.model or ["swinir_x2_w16", "swinir_x2_w32_nobias"]:
        table(name, args.folder, sets, args.budgets)


def table(name: str, folder: Path, sets: list[ImageSet], budgets: Sequence[float]) -> None:
    """Choose for each limit and print time and accuracy of the plans."""
    model = load(name)
    print(f"\n### {name}\n", flush=True)
    heads = ["plan", "sites", "attention, ms", "as fast", "chosen on", "held out"]
    heads += [f"{test_set.name} PSNR | {test_set.name} against full" for test_set in sets]
    line = f"| {' | '.join(heads)} |"
    print(f"{line}\n|{' --- |' * (line.count('|') - 1)}", flush=True)
    trained = neutral(model.network)
    full = [_quality(model, trained, test_set) for test_set in sets]
    results = {budget: choose(name, folder, budget) for budget in budgets}
    figures = results[budgets[0]].proposal.figures
    seconds = figures["attention_seconds_as_trained"]
    row("as trained", trained, {"attention_seconds": seconds}, seconds, full, full)
    for text, measured in figures["plans"].items():
        if text == "chosen":
            continue
        mechanism = text.removesuffix(" everywhere")
        plan = _everywhere(model, mechanism)
        run = [_quality(model, plan, each) for each in sets] if mechanism in UNIFORM else []
        row(text, plan, measured, seconds, run, full)
    for budget, result in results.items():
        run = [_quality(model, result.resolved, test_set) for test_set in sets]
        chosen = result.proposal.figures["plans"]["chosen"]
        row(f"**auto, {budget:g} dB**", result.resolved, chosen, seconds, run, full)


def choose(name: str, folder: Path, budget: float) -> Planned:
    """Return the plan of the search."""
    costs = folder / f"{Path(name).stem}.costs.json"
    options = ExportOptions(AutoOptions(costs), min_psnr=budget, overwrite=True)
    prepared = prepare(checkpoint_path(name), options, lambda _: None)
    return make_plan(prepared, folder, lambda _: None)


def _everywhere(model: LoadedModel, text: str) -> dict[str, Mechanism]:
    """Return the plan with the candidate of a text at every site that has it."""
    return {
        site.path: next((each for each in candidates(site) if str(each) == text), Full())
        for site in find_sites(model.network)
    }


def row(
    text: str,
    plan: Mapping[str, Mechanism],
    measured: Mapping[str, Any],
    trained: float,
    run: list[Result],
    full: list[Result],
) -> None:
    """Print a row of the table."""
    counts = Counter(map(str, plan.values()))
    seconds = measured["attention_seconds"]
    cells = [
        text,
        ", ".join(f"{count} {name}" for name, count in counts.items()),
        f"{1e3 * seconds:.1f}",
        f"{trained / seconds:.2f}x",
        *(_psnr(measured.get(key)) for key in ("psnr_seen", "psnr_held_out")),
    ]
    for result, exact in zip(run, full, strict=False):
        change = result.quality.psnr - exact.quality.psnr
        against = result.against(exact)
        cells.append(f"{result.quality.psnr:.2f}" + (f" ({change:+.3f})" if change else ""))
        cells.append(_psnr(float(np.mean(against)), min(against)))
    cells += [""] * (2 * (len(full) - len(run)))
    print(f"| {' | '.join(cells)} |", flush=True)


def _psnr(mean: float | None, worst: float | None = None) -> str:
    if mean is None or not math.isfinite(mean):
        return "same"
    return f"{mean:.1f}" if worst is None else f"{mean:.1f} ({worst:.1f})"


def _quality(model: LoadedModel, plan: Mapping[str, Mechanism], images: ImageSet) -> Result:
    return measure(model, NetworkSession(swap(model.network, plan, "operator")), images)


if __name__ == "__main__":
    main()
