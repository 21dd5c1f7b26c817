"""The page of the table, and its chart."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from studies.engines.engines import ENGINES, GROUPS, LINEAR, PRECISIONS
from studies.engines.networks import NETWORKS

Outcome = Mapping[str, Any]
Rows = Mapping[str, Outcome]

FOLDER = Path(__file__).resolve().parents[1] / "measurements"
PAGE, CHART = FOLDER / "engines.md", FOLDER / "images" / "engines.png"
MARKS = "<!-- tables: studies.engines -->\n", "<!-- end of the tables -->\n"

BUSY = 0.1
"""Processors that others took in the rounds, on the mean, from which a row is marked."""

STAR = {"seconds": "", "processor": "\\*"}

TITLES = {
    "f32": "float32",
    "bf16": "bfloat16",
    "int8": "int8",
    LINEAR: "linear attention, whose output differs",
}
HEAD = (
    "| engine | ms (least to most) | ratio | processor ms | peak MB | open, first run s "
    "| PSNR dB | sizes |\n|" + " --- |" * 8 + "\n"
)


def write(results: Mapping[str, Rows]) -> None:
    """Write the tables into the page, and the chart."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    draw(results)


def with_tables(page: str, results: Mapping[str, Rows]) -> str:
    """Return the page with the tables of these results."""
    before, _, rest = page.partition(MARKS[0])
    tables = "\n".join(table(name, results[name]) for name in NETWORKS if name in results)
    text = f"{MARKS[0]}\n{summary(results)}\n{tables}\n{MARKS[1]}"
    return f"{before}{text}{rest.partition(MARKS[1])[2]}"


def basis(*outcomes: Outcome) -> str:
    """Return how outcomes are compared: by ``seconds`` of the clock, or of the processor.

    By the processor where others used the machine while one of them was measured.
    """
    return "processor" if any(map(is_busy, outcomes)) else "seconds"


def ran(rows: Rows, group: str, *, ours: bool | None = None) -> dict[str, Outcome]:
    """Return the rows of a group that have times, optionally only nystra's or the others'."""
    return {
        name: rows[name]
        for name, engine in ENGINES.items()
        if engine.group == group
        and rows.get(name, {}).get("seconds")
        and ours in (None, engine.ours)
    }


def milliseconds(outcome: Outcome, by: str) -> float:
    """Return the median of the times of a `basis`."""
    return 1e3 * statistics.median(outcome[by])


def fastest(rows: Mapping[str, Outcome]) -> Outcome | None:
    """Return the fastest row of an idle machine, or the one with the least processor time."""
    best = []
    for busy in (False, True):
        alike = [row for row in rows.values() if is_busy(row) == busy]
        best += sorted(alike, key=lambda row: milliseconds(row, basis(row)))[:1]
    return min(best, key=lambda row: milliseconds(row, "processor"), default=None)


def ratio(outcome: Outcome, other: Outcome) -> float:
    """Return the median over the rounds of one time divided by another."""
    by = basis(outcome, other)
    pairs = zip(outcome[by], other[by], strict=False)
    return statistics.median(own / its for own, its in pairs)


def summary(results: Mapping[str, Rows]) -> str:
    """Return the table of nystra against the best of the others, one line per network."""
    lines = [
        "| network | precision | nystra ms | best other engine | its ms | times as fast | peak MB "
        "| its peak MB |\n|" + " --- |" * 8
    ]
    for name, network in NETWORKS.items():
        for group in PRECISIONS:
            rows = results.get(name, {})
            ours, others = ran(rows, group, ours=True), ran(rows, group, ours=False)
            own, best = fastest(ours), fastest(others)
            if own is None or best is None:
                continue
            by = basis(own, best)
            (other,) = (ENGINES[key].label for key in others if others[key] is best)
            lines.append(
                f"| {network.label} | {TITLES[group]} | {milliseconds(own, by):.0f}{STAR[by]} "
                f"| {other} | {milliseconds(best, by):.0f}{STAR[by]} | {1 / ratio(own, best):.2f} "
                f"| {megabytes(own)} | {megabytes(best)} |"
            )
    return "\n".join(lines) + "\n"


def is_busy(outcome: Outcome) -> bool:
    """Whether other programs used the machine during the measurement."""
    return bool(outcome["others"] > BUSY)


def megabytes(outcome: Outcome) -> str:
    """Return the peak of the process."""
    return f"{outcome['peak'] / 1e6:.0f}"


def table(name: str, rows: Rows) -> str:
    """Return the section of a network."""
    network = NETWORKS[name]
    weights = "as shipped" if network.shipped else "from a seed"
    text = f"### {network.label}\n\n{network.side}x{network.side}, weights {weights}.\n"
    for group in GROUPS:
        names = [key for key, engine in ENGINES.items() if engine.group == group and key in rows]
        if names:
            lines = "".join(_line(key, rows) for key in names)
            threads = {rows[key]["threads"] for key in names if "threads" in rows[key]}
            on = f", threads: {', '.join(map(str, sorted(threads)))}" if threads else ""
            text += f"\n{TITLES[group]}{on}\n\n{HEAD}{lines}"
    return text


def _line(name: str, rows: Rows) -> str:
    engine, outcome = ENGINES[name], rows[name]
    sizes = "any" if engine.any_size else "one"
    if not outcome.get("seconds"):
        reason = str(outcome["reason"]).replace("|", "/").replace("<", "&lt;")
        return f"| {engine.label} | does not run: {reason} | | | | | | {sizes} |\n"
    times = [1e3 * seconds for seconds in outcome["seconds"]]
    other = fastest(ran(rows, engine.group, ours=not engine.ours))
    against = "" if other is None else f"{ratio(outcome, other):.2f}"
    lost = "equal" if outcome["psnr"] is None else f"{outcome['psnr']:.1f}"
    clock, used = (milliseconds(outcome, by) for by in ("seconds", "processor"))
    return (
        f"| {engine.label} | {clock:.0f} ({min(times):.0f} to {max(times):.0f})"
        f"{STAR[basis(outcome)]} | {against} | {used:.0f} | {megabytes(outcome)} "
        f"| {outcome['open']:.1f}, {outcome['first']:.1f} | {lost} | {sizes} |\n"
    )


def draw(results: Mapping[str, Rows]) -> None:
    """Draw times and memory of the others relative to nystra's, network by network."""
    from matplotlib.figure import Figure

    names = [name for name in reversed(NETWORKS) if fastest(ran(results.get(name, {}), "f32"))]
    figure = Figure(figsize=(11, 1.2 + 0.34 * len(names)), layout="constrained")
    panels = (("f32", milliseconds, "time, float32"), ("bf16", milliseconds, "time, bfloat16"))
    panels += (("f32", lambda row, _: row["peak"], "peak memory, float32"),)
    axes = figure.subplots(1, len(panels), sharey=True)
    colors = dict(zip(_labels(names, results), _COLORS, strict=False))
    for place, (group, value, title) in zip(axes, panels, strict=True):
        for height, name in enumerate(names):
            rows = results[name]
            ours, others = (ran(rows, group, ours=ours) for ours in (True, False))
            for key, row in others.items() if ours else ():
                label, by = _short(ENGINES[key].label), basis(row, *ours.values())
                times = value(row, by) / min(value(own, by) for own in ours.values())
                place.plot(times, height, "o", color=colors[label], ms=6)
        place.axvline(1, color="black", lw=1)
        place.set(xscale="log", title=f"{title}: nystra = 1")
        place.grid(visible=True, axis="x", which="both", alpha=0.25)
        ticks = [2.0**power for power in range(-1, 8) if 2.0**power <= 1.3 * place.get_xlim()[1]]
        place.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        place.minorticks_off()
    axes[0].set_yticks(range(len(names)), [NETWORKS[name].label.replace("`", "") for name in names])
    for label, color in colors.items():
        axes[0].plot([], [], "o", color=color, label=label)
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")
    CHART.parent.mkdir(exist_ok=True)
    figure.savefig(CHART, dpi=90, bbox_inches="tight", metadata={"Software": None})


_COLORS = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "k", "gold", "lime")


def _short(label: str) -> str:
    """Return the engine's name without its settings."""
    return label.partition(",")[0]


def _labels(names: Iterable[str], results: Mapping[str, Rows]) -> list[str]:
    """Return the engines that the chart shows, each once."""
    return list(
        dict.fromkeys(
            _short(ENGINES[key].label)
            for name in names
            for group in ("f32", "bf16")
            for key in ran(results[name], group, ours=False)
        )
    )
