"""Draw figure 5 of the PSAL paper: the error of colorization over memory and operations.

    python -m studies.psal.costs_figure build/psal_colorization/table.json figure.png

Errors are those that ``studies.psal.colorization`` measured on its crops, each network with the
attention that it was trained with. Memory and operations are computed for an image of ``--side``
pixels, local attention and Performer with the paper's window and features.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from studies.psal.memory import GB, floats, operations

METHODS = {
    "full": "full",
    "local": "local",
    "linear": "linear",
    "performer": "performer",
    "reformer": "reformer",
    "psal3": "psal 3",
    "psal3-aggregated": "psal 3 aggregated",
}
"""Name of an attention in the table of errors -> in ``studies.psal.memory``."""


def main() -> None:
    """Draw it, and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side", type=int, default=256)
    options = parser.parse_args()
    errors = json.loads(options.table.read_text())
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    memory, work = figure.subplots(1, 2, sharey=True)
    for trained, method in METHODS.items():
        if trained not in errors:
            continue
        error = float(np.mean(errors[trained][trained]))
        gigabytes = 4 * floats(method, options.side) / GB
        gmac = operations(method, options.side) / 1e9
        memory.plot(gigabytes, error, "o", label=method)
        work.plot(gmac, error, "o")
        print(f"{method:18} error {error:.5f}, {gigabytes:.3f} GB, {gmac:,.1f} G multiply-adds")
    memory.set(xscale="log", xlabel=f"GB at {options.side}x{options.side}")
    memory.set(yscale="log", ylabel="mean squared error")
    work.set(xscale="log", xlabel="10^9 multiply-adds")
    for axes in (memory, work):
        axes.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
