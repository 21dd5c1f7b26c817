"""What an export makes of a module: a module with its attention replaced, and a model file.

Everything here that accelerates a module reaches the export through these two functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ...core.errors import UnsupportedModelError
from ...core.ports.port import Port
from ...models.own.network import OwnNetwork
from ..attention.implementation import Form
from ..attention.plan import Plan
from ..attention.site import refuse_untrained, resolve, swap
from ..load.network import load_fixed
from ..options import ExportOptions
from ..pipeline import export_module
from ..rewrite.graph_network import GraphNetwork
from .in_torch import in_torch


@dataclass(frozen=True)
class Replaced:
    """A network with its attention replaced.

    Attributes:
        network: Takes the network's inputs at any size that it takes; its attention is one
            operator of ``torch.ops.nystra`` a site. Its weights are those of the network where
            they are float32 on the CPU.
        plain: Returns the same with the attention in plain PyTorch.
        sites: Number of replaced sites.
        inputs: Its inputs, with the lengths that it needs.
        minimum: Smallest side that it takes, in pixels.
    """

    network: nn.Module
    plain: Callable[[], nn.Module]
    sites: int
    inputs: tuple[Port, ...]
    minimum: int


def replaced(own: OwnNetwork, plan: Plan, static: tuple[int, ...] | None = None) -> Replaced:
    """Return a network with its attention replaced; it is not exported.

    Args:
        own: The network.
        plan: The mechanism of each site.
        static: The only shape of its first input; None: any.

    Raises:
        NystraError: The network cannot be used, or the plan does not apply.
        UnsupportedModelError: It has no attention that can be replaced.
    """
    loaded = load_fixed(own, plan, {}, static)
    refuse_untrained(plan, loaded.network)
    plan = plan.for_architecture(loaded.facts.architecture)
    resolved = resolve(plan, loaded.network, loaded.unserved)
    if not resolved:
        reasons = "".join(f"; {sentence}" for sentence in loaded.warnings)
        raise UnsupportedModelError(f"no attention was found that can be replaced{reasons}")

    def swapped(form: Form) -> nn.Module:
        network = swap(loaded.network, resolved, form)
        return in_torch(network) if isinstance(network, GraphNetwork) else network

    return Replaced(
        swapped("operator"),
        lambda: swapped("plain"),
        len(resolved),
        loaded.facts.inputs,
        loaded.facts.size_minimum,
    )


def write_file(
    own: OwnNetwork, path: Path, plan: Plan, static: tuple[int, ...] | None = None
) -> None:
    """Write a network as a validated ONNX file of float32.

    Args:
        own: The network.
        path: The file.
        plan: The mechanism of each site.
        static: The only shape of its first input; None: any.

    Raises:
        NystraError: As `export_module`.
    """
    export_module(own, path, ExportOptions(plan, static=static, speed=False))
