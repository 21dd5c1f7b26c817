"""A page of the results on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .result import Row


def write_page(rows: Iterable[Row], file: Path) -> None:
    """Write the page of rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(rows))


def page(rows: Iterable[Row]) -> str:
    """The page as Markdown: the machine, each step, and tables of measurements."""
    rows = list(rows)
    parts = ["# nystra on a GPU", "Written by `.ci/gpu` from `result.json`; no figure by hand."]
    parts.append(_table(("stage", "step", "state", "seconds", "reason"), map(_state, rows)))
    for row in rows:
        for key, section in _SECTIONS.items():
            if row.data.get(key):
                parts += [f"## {row.stage}: {row.step}", section(row.data[key])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _state(row: Row) -> tuple[str, ...]:
    return row.stage, row.step, "ok" if row.ok else "FAILED", f"{row.seconds:.1f}", row.cause


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _facts(facts: Mapping[str, Any]) -> str:
    return _table(("what", "value"), ((key, _short(value)) for key, value in facts.items()))


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(one)}" for key, one in value.items())
    return " ".join(str(value).split())[:400]


def _conformance(tables: Mapping[str, Any]) -> str:
    rows = []
    for way, table in tables.items():
        worst = max(table.get("margins", {}).items(), key=lambda one: one[1], default=("-", 0.0))
        rows.append((way, table["rows"], table["failed"], f"{worst[1]:.2f} ({worst[0]})"))
    failures = [
        f"- {way}: {one.get('reason', one)}"
        for way, table in tables.items()
        for one in table["failures"][:20]
    ]
    head = ("way", "rows", "failed", "largest error, as a share of what is allowed")
    return "\n\n".join([_table(head, rows), "\n".join(failures)])


def _times(times: Sequence[Mapping[str, Any]]) -> str:
    """Median and spread of each case, and its memory bandwidth from inputs and outputs."""
    rows = []
    for one in times:
        if one.get("reason"):
            rows.append((one["case"], "-", "-", "-", one["reason"][:120]))
            continue
        middle = median(one["ms"])
        rate = one["bytes"] / max(middle, 1e-9) / 1e9  # bytes a millisecond, as TB/s
        spread = f"{min(one['ms']):.4g} to {max(one['ms']):.4g}"
        rows.append((one["case"], f"{middle:.4g}", spread, f"{rate:.3f}", ""))
    head = ("case", "ms", "least to most", "TB/s of input and output", "reason")
    return _table(head, rows)


def _bench(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for row in rows:
        where = (Path(row["model"]).name, row["backend"], "x".join(map(str, row["size"])))
        if not row["measured"]:
            lines.append((*where, "-", "-", "-", str(row["reason"])[:160]))
            continue
        times = (row["p50"], row["p90"], row["device_p50"])
        shown = ("-" if seconds is None else f"{seconds * 1e3:.2f}" for seconds in times)
        lines.append((*where, *shown, ""))
    head = ("model", "backend", "size", "ms", "90 %", "ms on the GPU", "reason")
    return _table(head, lines)


_SECTIONS: dict[str, Callable[[Any], str]] = {
    "facts": _facts,
    "conformance": _conformance,
    "times": _times,
    "bench": _bench,
}
"""Key of a row's data -> how it is shown."""
