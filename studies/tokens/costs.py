"""Time and memory of attention over a whole map: exact, linear, and PyTorch's fused one.

    python -m studies.tokens.costs --out studies/tokens/costs.json

One thread, processor time, medians of rounds in which all run in turn. Memory is what one run adds
to a process of its own, without the packed input and the result.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from torch.export import Dim

from nystra.core.json_text import stable_json
from nystra.export import mechanism
from nystra.export.attention.implementation import implement
from nystra.export.rewrite.site_modules import FoundMap
from nystra.export.tracing.trace import trace_piece
from nystra.plugins.library import library_path
from studies.performance.peak import peak_above

HEADS, CHANNELS = 2, 32
SIDES = {1024: (32, 32), 4096: (64, 64), 8192: (64, 128), 16384: (128, 128)}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("full", {}),
    "nystra, 16 landmarks": ("nystra", {}),
    "nystra, 64 landmarks": ("nystra", {"landmarks": (8, 8)}),
    "cluster": ("cluster", {}),
    "cluster, 16 and 4": ("cluster", {"clusters": (4, 4), "block": 4}),
    "cluster, 4 of order 1": ("cluster", {"order": 1}),
    "cluster, 16 of order 1": ("cluster", {"clusters": (4, 4), "order": 1}),
}
SDPA = "PyTorch's SDPA"
_TRACED = (21, 26)


def attention(kind: str, folder: Path, tokens: int) -> Callable[[], Any]:
    """Return a call of one kind of attention on a random map of so many tokens."""
    rows, columns = SIDES[tokens]
    shape = (1, rows, columns, 3 * HEADS * CHANNELS)
    packed = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    if kind == SDPA:
        torch.set_num_threads(1)
        site = FoundMap(HEADS, CHANNELS, CHANNELS, CHANNELS**-0.5)
        tensor = torch.from_numpy(packed)
        return torch.no_grad()(lambda: site(tensor))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(library_path()))
    file = str(folder / f"{kind}.onnx")
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"packed": packed})


def write(folder: Path) -> None:
    """Write a file of any size for each kind but PyTorch's."""
    free = ({1: Dim("height", min=1, max=1 << 14), 2: Dim("width", min=1, max=1 << 14)},)
    for kind, (name, settings) in KINDS.items():
        site = FoundMap(HEADS, CHANNELS, CHANNELS, CHANNELS**-0.5)
        chosen: Any = implement(mechanism(name, **settings).at(None), site, "operator")
        site.implementation = chosen
        examples = (torch.zeros(1, *_TRACED, 3 * HEADS * CHANNELS),)
        model = trace_piece(site.eval(), examples, free, 20, ["packed"], "attended")
        (folder / f"{kind}.onnx").write_bytes(model.SerializeToString())


def _added(case: tuple[str, Path, int]) -> float:
    """Return the MB that a run adds to this process, which ran 1,024 tokens before."""
    attention(case[0], case[1], 1024)()
    result = 4 * case[2] * HEADS * CHANNELS
    return max(peak_above(attention(*case)) - result, 0) / 1e6


def main() -> None:
    """Measure, print a table in Markdown, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("build/tokens"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, nargs="*", default=list(SIDES), choices=SIDES)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    write(chosen.folder)
    kinds = [*KINDS, SDPA]
    rows: list[dict[str, Any]] = []
    print(f"| tokens | {' | '.join(kinds)} |")
    print("| ---: |" + " ---: |" * len(kinds))
    for tokens in chosen.tokens:
        calls = [attention(kind, chosen.folder, tokens) for kind in kinds]
        times: list[list[float]] = [[] for _ in kinds]
        for turn in range(chosen.rounds + 1):
            for call, own in zip(calls, times, strict=True):
                start = time.process_time()
                call()
                own += [1e3 * (time.process_time() - start)] * (turn > 0)
        for kind, own in zip(kinds, times, strict=True):
            with multiprocessing.get_context("spawn").Pool(1) as apart:
                memory = apart.map(_added, [(kind, chosen.folder, tokens)])[0]
            row = {"kind": kind, "tokens": tokens, "ms": statistics.median(own), "mb": memory}
            rows.append(row | {"all_ms": own})
        cells = [f"{row['ms']:.1f} ms, {row['mb']:.0f} MB" for row in rows[-len(kinds) :]]
        print(f"| {tokens:,} | {' | '.join(cells)} |", flush=True)
    chosen.out.write_bytes(stable_json(json.loads(json.dumps(rows))))


if __name__ == "__main__":
    main()
