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
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nystra.export import ExportOptions
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.site import neutral, swap
from nystra.export.auto.knapsack import Selection, seconds
from nystra.export.auto.result import AutoResult
from nystra.export.auto.verification import Verified
from nystra.export.auto_options import AutoOptions
from nystra.export.load.stage import prepare
from nystra.export.plan.stage import make_plan
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import LoadedModel, load
from nystra.models.pretrained import checkpoint_path
from nystra.runtime.metrics.measures import decibels
from studies.quality.measure import ImageSet, Result, measure

BUDGETS = (40.0, 45.0, 50.0, 55.0)
UNIFORM = ("nystra", "nystromformer", "cluster clusters=2x2", "cluster", "cluster block=8")
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
    full = [_quality(model, neutral(model.network), test_set) for test_set in sets]
    results = {budget: choose(name, folder, budget) for budget in budgets}
    first = results[budgets[0]]
    exact = Verified(0.0, 0.0)
    row(model, "as trained", first, first.trained, exact, list(zip(sets, full, strict=True)), full)
    for text, (choice, verified) in first.uniform.items():
        wanted = sets if text in UNIFORM else []
        run = [
            (test_set, _quality(model, mechanisms(first, choice), test_set)) for test_set in wanted
        ]
        row(model, f"{text} everywhere", first, choice, verified, run, full)
    for budget, result in results.items():
        run = [(test_set, _quality(model, result.plan, test_set)) for test_set in sets]
        text = f"**auto, {budget:g} dB**"
        row(model, text, result, result.choice, result.verified, run, full)


def choose(name: str, folder: Path, budget: float) -> AutoResult:
    """Return the choice of the planner."""
    results: list[AutoResult] = []
    costs = folder / f"{Path(name).stem}.costs.json"
    planner = AutoOptions(costs, report=results.append)
    options = ExportOptions(planner, min_psnr=budget, overwrite=True)
    make_plan(prepare(checkpoint_path(name), options, lambda _: None), folder, lambda _: None)
    return results[0]


def mechanisms(result: AutoResult, choice: Selection) -> dict[str, Mechanism]:
    """Return a choice as the mechanism of each site."""
    return {path: result.mechanisms[option.name] for path, option in choice.items()}


def row(
    model: LoadedModel,
    text: str,
    result: AutoResult,
    choice: Selection,
    verified: Verified,
    run: list[tuple[ImageSet, Result]],
    full: list[Result],
) -> None:
    """Print a row of the table."""
    counts: dict[str, int] = {}
    for option in choice.values():
        counts[option.name] = counts.get(option.name, 0) + 1
    cells = [
        text,
        ", ".join(f"{count} {name}" for name, count in counts.items()),
        f"{1e3 * seconds(choice):.1f}",
        f"{seconds(result.trained) / seconds(choice):.2f}x",
        _psnr(decibels(verified.seen)),
        _psnr(decibels(verified.held_out)),
    ]
    for (_, measured), exact in zip(run, full, strict=False):
        change = measured.quality.psnr - exact.quality.psnr
        against = measured.against(exact)
        cells.append(f"{measured.quality.psnr:.2f}" + (f" ({change:+.3f})" if change else ""))
        cells.append(_psnr(float(np.mean(against)), min(against)))
    cells += [""] * (2 * (len(full) - len(run)))
    print(f"| {' | '.join(cells)} |", flush=True)


def _psnr(mean: float, worst: float | None = None) -> str:
    text = f"{mean:.1f}" if worst is None else f"{mean:.1f} ({worst:.1f})"
    return text if math.isfinite(mean) else "same"


def _quality(model: LoadedModel, plan: Mapping[str, Mechanism], images: ImageSet) -> Result:
    return measure(model, NetworkSession(swap(model.network, plan, "operator")), images)


if __name__ == "__main__":
    main()
