"""What ``cluster`` would do to a network that keeps full attention: one line, measured here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from torch import nn

from ..models.sites import WindowSite
from ..plugins import native
from ..plugins.ports.port import Port
from ..runtime.checking.measures import measure_for
from .attention.cluster.parameters import Cluster
from .attention.computing import unserved
from .attention.full.parameters import Full
from .attention.mechanism import Mechanism
from .attention.site import find_sites, swap
from .pictures import Feeds
from .torch_backend import TorchBackend

LEAST_WINDOW = 16
"""Side of the windows from which on it is worth a word."""

_ROUNDS = 3
_WORTH = 1.05  # times as fast


def suggestion(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    samples: Mapping[str, Feeds],
    output: Port,
) -> str:
    """Return what ``cluster`` at all large windows would gain and lose, or "" where nothing.

    Both networks run in PyTorch on the operators' kernels, in turn, on the smallest picture.

    Args:
        network: The loaded network.
        resolved: Mechanism of every site.
        samples: Inputs by name of the picture.
        output: What the network gives.
    """
    changed = {
        site.path: Cluster().at(site.module.geometry)
        for site in find_sites(network)
        if isinstance(site.module, WindowSite)
        and min(site.module.geometry.window) >= LEAST_WINDOW
        and isinstance(resolved[site.path], Full)
        and not unserved(Cluster(), site.module)
    }
    if not changed or not native.available():
        return ""
    arrays = list(min(samples.values(), key=_pixels).values())
    full = TorchBackend(swap(network, resolved, "operator"))
    clustered = TorchBackend(swap(network, {**resolved, **changed}, "operator"))
    measure = measure_for(output)
    kept = measure.text(measure.value(clustered(*arrays), full(*arrays)))
    turns = [
        (_seconds(lambda: full(*arrays)), _seconds(lambda: clustered(*arrays)))
        for _ in range(_ROUNDS)
    ]
    least_full, least_clustered = (min(times) for times in zip(*turns, strict=True))
    ratio = least_full / least_clustered  # the least times: others may load the machine
    if ratio < _WORTH:
        return ""
    return (
        f"--attn cluster: {ratio:.1f} times as fast, {kept} against full attention (one picture in "
        "PyTorch on the operators' kernels); --attn auto keeps what you ask for"
    )


def _pixels(feeds: Feeds) -> int:
    return sum(array.size for array in feeds.values())


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
