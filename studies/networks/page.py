"""Writes the results into the page and README."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from studies.networks import exporting, finding
from studies.networks.children import Outcome, read
from studies.networks.small import SMALL

ROOT = Path(__file__).resolve().parents[2]
PAGE, README = ROOT / "studies" / "measurements" / "networks.md", ROOT / "README.md"
MARKS = "<!-- table: studies/networks/{} -->\n", "<!-- end of the table -->\n"

WIDTH = 140  # characters of a line of text
AGREES = 1e-4  # of outputs in 0..1
SEEN = 0.01  # the share of pixels that clipping must leave for a comparison to see anything
ONE_SIZE = {
    "IPT": "it cuts the image into as many patches as its sides say",
    "RGT": "it chooses its number of recursions by the sides",
    "RestoreFormer": "sides up to 32, one cell after its strides, go another way through PyTorch",
    "RetinexFormer": "from 3000 pixels on it computes another way, chosen by the sides",
}  # why a network has no file for any size, where the tracer's words do not tell
OTHER_SOFTMAXES = {
    "spandrel/DCTLSA": "24 normalize features of linear attention",
    "spandrel/HVICIDNet": "1 of a block whose result the network does not use",
    "spandrel/MixDehazeNet": "2 weigh branches",
    "spandrel/SeemoRe": "2 weigh experts",
    "spandrel_extra_arches/CodeFormer": "1 chooses entries of a codebook",
    "spandrel_extra_arches/MIRNet2": "80 weigh branches, or pixels in a mean: without queries",
    "transformers/SAM 2": "6 whose results the network does not use",
    "transformers/SigLIP": "1 of a block whose result the network does not use",
    "toys/LinearAttention": "2 normalize features of linear attention",
    "toys/Router": "1 weighs experts",
}  # softmaxes that are in no column, by reading the code
_FIXES = "Specializations unexpectedly required"


def texts() -> dict[Path, str]:
    """Return what the page and README say of the results so far."""
    exported, counts = _exports(read(exporting.RESULTS))
    page = _between(PAGE.read_text(encoding="utf-8"), "exporting.py", exported)
    page = _between(page, "finding.py", _found(read(finding.RESULTS)))
    readme, places = re.subn(
        r"\d+ of \d+ export, with the same output",
        f"{counts} export, with the same output",
        README.read_text(encoding="utf-8"),
    )
    if places != 1:
        raise ValueError(
            f"{README}: expected 'N of M export, with the same output' once, found it {places}x"
        )
    return {PAGE: page, README: readme}


def _between(page: str, name: str, table: str) -> str:
    begin, end = MARKS[0].format(name), MARKS[1]
    before, rest = page.split(begin)
    return f"{before}{begin}{table}{end}{rest.partition(end)[2]}"


def _table(head: str, rows: Mapping[str, tuple[str, ...]]) -> str:
    columns = head.count("|") - 1
    lines = [
        f"| {' | '.join((name, *(cell.replace('|', '/') for cell in rows[name])))} |\n"
        for name in sorted(rows, key=str.lower)
    ]
    return f"{head}\n|{' --- |' * columns}\n{''.join(lines)}"


def _exports(results: Mapping[str, Outcome]) -> tuple[str, str]:
    """Return the table of exports, and how many of how many agree."""
    exported = [outcome for outcome in results.values() if "nodes" in outcome]
    dynamic = sum(outcome["static"] is None for outcome in exported)
    agreeing, listed = sum(map(_agrees, exported)), len(SMALL)
    counts = (
        f"{listed} architectures, {len(results)} of them tried: {dynamic} export for any "
        f"size, {len(exported) - dynamic} for one size, {len(results) - len(exported)} do not; "
        f"{agreeing} agree with spandrel.\n"
    ) + _untried(SMALL.keys() - results.keys())
    head = "| architecture | read by | exports | linear attention | against spandrel |"
    rows = {name: _export_row(name, outcome) for name, outcome in results.items()}
    return f"{counts}\n{_table(head, rows)}", f"{agreeing} of {listed}"


def _untried(names: set[str]) -> str:
    return f"Not tried yet: {', '.join(sorted(names, key=str.lower))}.\n" if names else ""


def _export_row(name: str, outcome: Outcome) -> tuple[str, ...]:
    reader = str(outcome.get("read_by", "spandrel:"))
    reader = "spandrel" if reader.startswith("spandrel:") else f"nystra ({reader})"
    reader += "".join(f", `--set {key}={value}`" for key, value in outcome.get("told", {}).items())
    if "nodes" not in outcome:
        return (reader, f"no: {outcome['failed']}", "-", "-")
    why = ONE_SIZE.get(name, outcome.get("dynamic", ""))
    size = "any size" if outcome["static"] is None else f"one size: {why}"
    return (reader, size, outcome.get("linear", "as trained: no site"), _agreement(outcome))


def _agrees(outcome: Outcome) -> bool:
    """Tell whether a file agrees with spandrel at every size, where there is something to see."""
    return all(
        size["difference"] <= AGREES and size["seen"] >= SEEN for size in outcome["compared"]
    )


def _agreement(outcome: Outcome) -> str:
    compared = outcome["compared"]
    sizes = ", ".join(size["size"] for size in compared)
    if min(size["seen"] for size in compared) < SEEN:
        return f"clipped to nothing at {sizes}; against PyTorch only"
    worst = max(size["difference"] for size in compared)
    return f"{worst:.0e} at {sizes}" + ("" if _agrees(outcome) else " (**differs**)")


def _found(results: Mapping[str, Outcome]) -> str:
    """Return the table of attention that is found."""
    with_attention = {
        name: outcome for name, outcome in results.items() if outcome.get("softmaxes", 1)
    }
    without = [name for name in results if name not in with_attention]
    names = finding.names()
    searched = [outcome for outcome in with_attention.values() if "map" in outcome]
    sums = {level: sum(outcome[level] for outcome in searched) for level in ("map", "tokens")}
    counts = (
        f"{len(names)} networks, {len(results)} of them tried. {len(without)} compute no softmax: "
        f"{', '.join(sorted(without, key=str.lower)) or '-'}. In the others {sums['map']} "
        f"attentions became sites of a map and {sums['tokens']} of tokens."
    )
    text = textwrap.fill(counts, WIDTH) + "\n" + _untried(set(names) - results.keys())
    head = (
        "| network | softmaxes | map | tokens | as trained, and why tokens | sizes | difference | "
        "seconds |"
    )
    rows = {name: _found_row(name, outcome) for name, outcome in with_attention.items()}
    return f"{text}\n{_table(head, rows)}"


def _found_row(name: str, outcome: Outcome) -> tuple[str, ...]:
    total = str(outcome.get("softmaxes", "-"))
    if "map" not in outcome:
        return (total, "-", "-", f"not searched: {outcome['failed']}", "-", "-", "-")
    whys = [f"{count} {why}" for why, count in sorted(outcome["reasons"].items())]
    reasons = "; ".join([*whys, *([OTHER_SOFTMAXES[name]] if name in OTHER_SOFTMAXES else [])])
    size = "any" if outcome["any_size"] else "one"
    if why := outcome.get("why"):
        why = "PyTorch fixes a side" if _FIXES in why else why
        size += f": {ONE_SIZE.get(name.removeprefix('spandrel/'), why)}"
    worst = max(outcome["differences"].values())
    return (
        total,
        str(outcome["map"]),
        str(outcome["tokens"]),
        reasons or "-",
        size,
        f"{worst:.0e}",
        f"{outcome['seconds']:.0f}",
    )
