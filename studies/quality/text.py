"""Rows of figures as Markdown: one table per model, sets side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Column = tuple[str, str, Callable[[Row], str]]

_KEYS: tuple[Column, ...] = (
    ("factor", "logits times", lambda row: f"{row['factor']:g}"),
    ("keys", "keys (least), largest logit",
     lambda row: f"{row['keys']:.0f} ({row['least_keys']:.0f}), {row['largest']:.0f}"),
    ("size", "image", lambda row: row["size"]),
    ("plan", "plan", lambda row: row["plan"]),
    ("file", "file", lambda row: row["file"]),
)  # fmt: skip
_FIGURES: tuple[Column, ...] = (
    ("psnr", "PSNR", lambda row: f"{row['psnr']:.2f}{_change(row)}"),
    ("ssim", "SSIM", lambda row: f"{row['ssim']:.4f}"),
    ("against_full", "against full",
     lambda row: f"{row['against_full']:.1f} ({row['against_full_worst']:.1f})"),
    ("guarded", "guarded", lambda row: f"{row['guarded']:.2%}"),
    ("psnr_torch", "PyTorch", lambda row: f"{row['psnr_torch']:.2f}"),
    ("largest_difference", "largest difference", lambda row: f"{row['largest_difference']:.4f}"),
    ("seconds", "ms", lambda row: f"{1e3 * row['seconds']:.0f}"),
    ("ratio", "full / plan", lambda row: f"{row['ratio']:.2f}"),
    ("memory", "memory, MB", lambda row: f"{row['memory'] / 1e6:.0f}"),
)  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as Markdown, one table per model; empty columns are left out."""
    models = dict.fromkeys(row["model"] for row in rows)
    return "\n\n".join(
        f"`{model}`:\n\n{_table([row for row in rows if row['model'] == model])}"
        for model in models
    )


def _table(rows: Sequence[Row]) -> str:
    keys = [column for column in _KEYS if _used(column, rows)]
    sets = list(dict.fromkeys(row.get("set") for row in rows))
    figures = [
        (one_set, column)
        for one_set in sets
        for column in _FIGURES
        if _used(column, [row for row in rows if row.get("set") == one_set])
    ]
    lines: dict[tuple[str, ...], dict[Any, Row]] = {}
    for row in rows:
        place = tuple(form(row) for _, _, form in keys)
        lines.setdefault(place, {})[row.get("set")] = row
    head = [title for _, title, _ in keys]
    head += [f"{name} {title}" if name else title for name, (_, title, _) in figures]
    body = [
        [*place, *(_cell(by_set.get(name), column) for name, column in figures)]
        for place, by_set in lines.items()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def _used(column: Column, rows: Sequence[Row]) -> bool:
    return any(row.get(column[0]) is not None for row in rows)


def _cell(row: Row | None, column: Column) -> str:
    return "" if row is None or row.get(column[0]) is None else column[2](row)


def _change(row: Row) -> str:
    change = row.get("change")
    return "" if change is None or row["plan"] == "full" else f" ({change:+.2f})"
