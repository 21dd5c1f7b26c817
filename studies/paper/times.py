"""Times of linear attention against full attention in the same fused form, on one thread.

Runs are interleaved within each round. Processor time is measured, so that other programs have
little effect; they still share caches and memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import resolve, swap
from nystra.models.dehazeformer.network import DehazeFormer
from nystra.models.uformer.network import Uformer
from nystra.plugins.operators.window_softmax import torch_op
from studies.performance import networks, operators
from studies.performance.bars import measure
from studies.psal.memory import resident
from studies.quality.tables import nystra, nystromformer

Row = dict[str, Any]
Times = Mapping[str, Sequence[float]]

WINDOWS = (8, 16, 32, 64)
OPERATORS = {
    "full": "softmax",
    "nystra": "nystrom",
    "nystromformer": "nystromformer",
    "cluster": "cluster",
}
PLANS: dict[str, Mechanism] = {
    "full": Full(),
    "nystra": nystra(16),
    "nystromformer": nystromformer(16),
    "cluster": Cluster(),
}
MATRIX = "full, scores as a matrix"
PUBLISHED = "full, window 8 with bias and mask"


@dataclass(frozen=True)
class Case:
    """A network at the paper's window, and as published; weights are random.

    Attributes:
        what: It is.
        wide: Builds it as PnP-Nystra runs it, without bias and mask.
        published: Builds it with its own window, bias and mask.
        side: Of the image: the least, since what a window costs does not depend on it.
    """

    what: str
    wide: Callable[[], nn.Module]
    published: Callable[[], nn.Module]
    side: int


def uformer_b(window: int) -> Uformer:
    """Return Uformer-B at that window; the published one at 8."""
    torch.manual_seed(0)
    own = window == 8
    return Uformer(
        img_size=128,
        depths=[1, 2, 8, 8, 2, 8, 8, 2, 1],
        window_size=window,
        modulator=own,
        position_bias=own,
        mask=own,
    ).eval()


def dehazeformer_b(window: int) -> DehazeFormer:
    """Return DehazeFormer-B at that window; the published one at 8."""
    torch.manual_seed(0)
    return DehazeFormer(window_size=window).eval()


def _swinir(window: int) -> nn.Module:
    return networks.network("w8-" if window == 8 else "w32-")


CASES = {
    "swinir": Case("SwinIR-M x2, window 32", lambda: _swinir(32), lambda: _swinir(8), 64),
    "uformer64": Case("Uformer-B, window 64", lambda: uformer_b(64), lambda: uformer_b(8), 128),
    "uformer32": Case("Uformer-B, window 32", lambda: uformer_b(32), lambda: uformer_b(8), 128),
    "dehazeformer": Case(
        "DehazeFormer-B, window 32", lambda: dehazeformer_b(32), lambda: dehazeformer_b(8), 128
    ),
}


def window_rows(rounds: int, windows: Sequence[int] = WINDOWS) -> list[Row]:
    """Time one attention of SwinIR-M, 16,384 tokens, cut into windows of each side."""
    names = {
        (window, plan): f"{kind}-{window}" for window in windows for plan, kind in OPERATORS.items()
    }
    runs = {name: operators.runner(name, 1) for name in names.values()}
    times = measure(runs, rounds, time.thread_time)
    return [
        row
        for window in windows
        for row in _rows({"window": window}, {plan: times[names[window, plan]] for plan in PLANS})
    ]


def scaling_rows(rounds: int, sides: Sequence[int]) -> list[Row]:
    """Time one attention of SwinIR-M in a single window of each side, N = side^2 tokens.

    Small windows are run often enough in a turn to make 16,384 tokens together.
    """
    rows = []
    for side in sides:
        repeats = max(1, operators.SIDE**2 // side**2)
        runs = {
            plan: _repeated(operators.runner(f"{kind}-{side}", 1, side), repeats)
            for plan, kind in OPERATORS.items()
        }
        times = measure(runs, rounds, time.thread_time)
        single = {plan: [ms / repeats for ms in values] for plan, values in times.items()}
        rows += _rows({"tokens": side**2}, single)
    return rows


def memory_rows(sides: Sequence[int]) -> list[Row]:
    """Measure what the first run in a window of each side adds to this process, in MB.

    *Scores as a matrix* are PyTorch's, and come last: what a run leaves must not serve another.
    """
    torch.set_num_threads(1)
    rows: list[Row] = []
    for side in sides:
        runs = {
            plan: operators.runner(f"{kind}-{side}", 1, side) for plan, kind in OPERATORS.items()
        }
        shape = operators.HEADS, side**2, operators.HEAD_DIM
        matrix = partial(networks.explicit_attention, *(torch.rand(shape) for _ in "qkv"), 1.0)
        added = {plan: _added(run) for plan, run in reversed(runs.items())}
        added[MATRIX] = _added(matrix)
        rows.append({"tokens": side**2, **{plan: f"{added[plan]:.1f}" for plan in (MATRIX, *runs)}})
    return rows


def _added(run: Callable[[], object]) -> float:
    before, _ = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    run()
    return (resident()[1] - before) / 1e6


def _repeated(run: Callable[[], None], repeats: int) -> Callable[[], None]:
    def turn() -> None:
        for _ in range(repeats):
            run()

    return turn


NETWORK_PLANS = (*PLANS, MATRIX, PUBLISHED)


def network_rows(rounds: int, case: Case, plans: Sequence[str] = NETWORK_PLANS) -> list[Row]:
    """Time a whole network in PyTorch, with the operators' kernels as attention.

    Args:
        rounds: Turns of every plan.
        case: The network.
        plans: Some of ``NETWORK_PLANS``; ``full`` is timed in any case.
    """
    torch.set_num_threads(1)
    wide, published = case.wide(), case.published()
    image = torch.rand((1, 3, case.side, case.side), generator=torch.Generator().manual_seed(1))
    runs = {plan: _eager(_swapped(wide, what), image) for plan, what in PLANS.items()}
    matrix = _eager(wide, image)

    def unfused() -> object:
        with mock.patch.object(torch_op, "softmax_attention", networks.explicit_attention):
            return matrix()

    runs[MATRIX] = unfused
    runs[PUBLISHED] = _eager(_swapped(published, Full()), image)
    chosen = {plan: runs[plan] for plan in ("full", *plans)}
    times = measure(chosen, rounds, time.process_time)
    return _rows({"network": f"{case.what}, {case.side}x{case.side}"}, times)


def _swapped(network: nn.Module, mechanism: Mechanism) -> nn.Module:
    """Return the network with one mechanism wherever it is defined, on the kernels."""
    return swap(network, resolve(Plan(default=mechanism), network), "operator")


def _eager(network: nn.Module, image: torch.Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return network(image)

    return run


def _rows(about: Row, times: Times) -> list[Row]:
    """Return one row per plan: median milliseconds, and full attention's ratio in each round."""
    rows = []
    for plan, own in times.items():
        ratios = [full / other for full, other in zip(times["full"], own, strict=True)]
        figures = {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        rows.append({**about, "plan": plan, "ms": statistics.median(own), **figures})
    return rows
