"""The gain of faster mechanisms for a network that keeps full attention, measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

from ...core.arrays import Array
from ...core.ports.port import Port
from ...models.sites import WindowSite
from ...plugins import native
from ...runtime.metrics.measures import measure_for
from ...runtime.timing.turns import measure_shortest
from ..attention.cluster.parameters import Cluster
from ..attention.full.parameters import Full
from ..attention.implementation import find_unsupported_reason
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import find_sites, resolve, swap
from ..auto_options import DEFAULT_BUDGET
from ..load.images import Feeds
from ..plan.settings import choose_settings
from ..pytorch.network_session import NetworkSession

MIN_WINDOW = 16
"""Side of windows from which on a suggestion is made."""

UNIFORM = tuple(Cluster(**parameters) for parameters, always in Cluster.candidates if always)
"""Uniform plans that ``auto`` also tries, the fastest first: its result is not slower than one of
them that reaches the limit."""

_ROUNDS = 3
_WORTH = 1.05  # times as fast


def suggestion(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    samples: Mapping[str, Feeds],
    output: Port,
) -> str:
    """Return speedup and loss of ``cluster`` and ``auto``; "" if ``cluster`` is not faster.

    All run in PyTorch on the operators' kernels, in turn, on the smallest image. The speedup of
    ``auto`` is a lower bound: the fastest of `UNIFORM` that keeps its budget.

    Args:
        network: The loaded network.
        resolved: Mechanism of every site.
        samples: Inputs by name of the image.
        output: The output of the network.
    """
    sites = {}
    for site in find_sites(network):
        module = site.module
        is_full = isinstance(resolved[site.path], Full)
        if not isinstance(module, WindowSite) or not is_full:
            continue
        is_large = min(module.geometry.window) >= MIN_WINDOW and not module.geometry.overlapping
        if is_large and not find_unsupported_reason(Cluster(), module):
            sites[site.path] = module
    if not sites or not native.available():
        return ""
    smallest = min(samples, key=lambda name: _pixels(samples[name]))
    arrays = list(samples[smallest].values())
    plan = Plan(Full(), dict.fromkeys(sites, Cluster()))
    exported = choose_settings(
        network, output, plan, resolve(plan, network), {smallest: samples[smallest]}
    )

    def everywhere(mechanism: Cluster) -> Callable[[], Array]:
        changed: dict[str, Mechanism] = {path: exported.sites[path] for path in sites}
        if mechanism != Cluster():
            changed = {}
            for path, module in sites.items():
                changed[path] = mechanism.at(module.geometry)
        swapped = swap(network, {**resolved, **changed}, "operator")
        backend = NetworkSession(swapped)
        return lambda: backend(*arrays)

    trained = NetworkSession(swap(network, resolved, "operator"))
    measure = measure_for(output)
    exact = trained(*arrays)
    runs = {mechanism: everywhere(mechanism) for mechanism in (Cluster(), *UNIFORM)}
    figures = {}
    for mechanism, run in runs.items():
        figures[mechanism] = measure.value(run(), exact)
    keeping = [mechanism for mechanism in UNIFORM if figures[mechanism] >= DEFAULT_BUDGET]
    named = dict.fromkeys((Cluster(), *keeping[:1]))
    timed: dict[str, Callable[[], object]] = {"trained": lambda: trained(*arrays)}
    timed |= {str(mechanism): runs[mechanism] for mechanism in named}
    seconds = measure_shortest(timed, rounds=_ROUNDS)
    ratios = {mechanism: seconds["trained"] / seconds[str(mechanism)] for mechanism in named}
    if ratios[Cluster()] < _WORTH:
        return ""
    text = (
        f"`mechanism` cluster: {ratios[Cluster()]:.1f} times as fast, "
        f"{measure.text(figures[Cluster()])} against full attention"
    )
    if measure.headline == "psnr":
        text += f"; `mechanism` auto, {DEFAULT_BUDGET:g} dB: "
        if keeping:
            text += f"at least {ratios[keeping[0]]:.1f} times, as {keeping[0]} everywhere"
        else:
            text += "some sites only"
    return f"{text} (one image in PyTorch on the operators' kernels)"


def _pixels(feeds: Feeds) -> int:
    return sum(array.size for array in feeds.values())
