"""Measure plans on images in PyTorch: against ground truth, and against full attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from nystra.export.attention.implementation import Form
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.nystra.sites import Windows
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import LoadedModel
from nystra.models.geometry import WindowGeometry
from nystra.plugins.operators.windows_torch import partition
from nystra.runtime.metrics.measures import clip_and_measure_psnr
from nystra.runtime.tasks.restoration.quality import QualityReport, validate_quality
from nystra.runtime.tasks.restoration.restorer import Restorer

Pixels = npt.NDArray[Any]
Change = Callable[[nn.Module], None]
WHOLE = 1 << 14  # pixels: a tile that no test image fills, so each is run whole


@dataclass(frozen=True)
class ImageSet:
    """Images with ground truth.

    Attributes:
        name: Name in tables.
        inputs: Folder of the inputs.
        truths: Folder of the ground truth.
        channel: What is compared: ``y`` (luma) or ``rgb``.
    """

    name: str
    inputs: Path
    truths: Path
    channel: str = "y"


@dataclass
class Result:
    """The outputs of a plan for a set.

    Attributes:
        quality: Against ground truth, exactly as ``nystra validate`` computes it.
        outputs: What the network gave for each image, (1, C, H, W), not clipped.
        guarded: Share of (token, head) pairs that the guard touches, mean over sites and images
            of equal weight; None without a guard, and for files, which do not tell.
    """

    quality: QualityReport
    outputs: list[Pixels] = field(repr=False)
    guarded: float | None = None

    def against(self, full: Result) -> list[float]:
        """Return the PSNR of each image against full attention: RGB, clipped, not rounded, dB."""
        pairs = zip(self.outputs, full.outputs, strict=True)
        return [clip_and_measure_psnr(got, expected) for got, expected in pairs]


def with_kernels(
    model: LoadedModel,
    parameters: Mechanism,
    change: Change | None = None,
    *,
    partial: bool = False,
) -> nn.Module:
    """Return the network with one mechanism everywhere, by the operators' CPU kernels."""
    return planned(model, parameters, change, "operator", partial=partial)


def planned(
    model: LoadedModel,
    parameters: Mechanism,
    change: Change | None = None,
    form: Form = "plain",
    *,
    partial: bool = False,
) -> nn.Module:
    """Return the network with one mechanism everywhere, plain PyTorch unless asked otherwise.

    Args:
        model: The network.
        parameters: The mechanism.
        change: A further change of the network.
        form: How the mechanism is computed.
        partial: Sites without a form of the mechanism keep full attention, as with ``--attn``.

    Raises:
        RuntimeError: A site falls back to full attention, so that the figure would not be the
            plan's.
    """
    parameters = parameters.for_network(model.facts.architecture, model.hyper)
    resolved = resolve(Plan(default=parameters), model.network)
    fallen = [site.reason for site in resolved.values() if site.name != parameters.name]
    if fallen and not (partial and len(fallen) < len(resolved)):
        raise RuntimeError(f"{len(fallen)} sites of the plan keep full attention: {fallen[0]}")
    network = swap(model.network, resolved, form)
    if change is not None:
        change(network)
    return network


def restorer(model: LoadedModel, function: Callable[[Pixels], Pixels]) -> Restorer:
    """Return a function on arrays with the interface of an exported file."""
    facts = model.facts
    return Restorer(
        function,
        facts.scale,
        facts.input_channels,
        facts.output_channels,
        facts.range,
        facts.range,
        facts.size_multiple,
        facts.size_minimum,
        facts.tiling,
    )


def measure(
    model: LoadedModel, network: nn.Module | Callable[[Pixels], Pixels], images: ImageSet
) -> Result:
    """Run a network, or a file's session, on a set, each image whole; compare its channel."""
    outputs: list[Pixels] = []
    counts = _count_guarded(network) if isinstance(network, nn.Module) else []
    run = NetworkSession(network) if isinstance(network, nn.Module) else network

    def record(image: Pixels) -> Pixels:
        output = run(image)
        outputs.append(output)
        return output

    quality = validate_quality(
        restorer(model, record), images.inputs, images.truths, channel=images.channel, tile=WHOLE
    )
    shares = [share for count in counts for share in count.shares]
    return Result(quality, outputs, float(np.mean(shares)) if shares else None)


class _Counted:
    """A mechanism that also records the share of tokens that its guard changes."""

    def __init__(self, inner: Windows) -> None:
        self.inner = inner
        self.shares: list[float] = []

    def __call__(self, qkv: Tensor, table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        out, share = self.inner.with_share(qkv, table, geometry)
        self.shares.append(share)
        return out


def _count_guarded(network: nn.Module) -> list[_Counted]:
    counts = []
    for site in find_sites(network):
        inner: Any = site.module.implementation
        if isinstance(inner, Windows) and inner.mechanism.guard > 0:
            counts.append(_Counted(inner))
            site.module.implementation = counts[-1]
    return counts


def drop_bias(network: nn.Module) -> None:
    """Let every site compute without its relative position bias."""
    for site in find_sites(network):
        inner: Any = site.module.implementation
        site.module.implementation = lambda qkv, _, geometry, inner=inner: inner(
            qkv, None, geometry
        )


def sharpen(factor: float) -> Change:
    """Return a change that multiplies the content logits of every site."""

    def change(network: nn.Module) -> None:
        for site in find_sites(network):
            geometry: Any = site.module.geometry
            site.module.geometry = dataclasses.replace(geometry, scale=factor * geometry.scale)

    return change


class _Sharpness:
    """Exact attention that also records the sharpness of its content logits."""

    def __init__(self, exact: Any) -> None:
        self.exact = exact
        self.keys: list[float] = []
        self.largest = 0.0

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: Any) -> Tensor:
        q, k, _ = partition(qkv, dataclasses.replace(geometry, shift=(0, 0)))
        for queries, keys in zip(q.flatten(0, 2), k.flatten(0, 2), strict=True):
            logits = geometry.scale * (queries @ keys.T)
            self.largest = max(self.largest, float(logits.abs().max()))
            spread = torch.distributions.Categorical(logits=logits).entropy()
            self.keys.append(float(spread.exp().median()))
        out: Tensor = self.exact(qkv, bias_table, geometry)
        return out


def sharpness(network: nn.Module, image: Pixels) -> Mapping[str, float]:
    """Return the sharpness of a network's attention on an image (1, C, H, W).

    ``keys``: exp of the entropy of a token's softmax over the content logits q.k (no position
    bias, no mask, unshifted windows), median over the tokens of a window and head and then over
    all; ``least_keys`` the smallest of those medians; ``largest`` logit in magnitude.
    """
    probes = []
    for site in find_sites(network):
        probes.append(_Sharpness(site.module.implementation))
        site.module.implementation = probes[-1]
    NetworkSession(network)(image)
    keys = [number for probe in probes for number in probe.keys]
    return {
        "keys": float(np.median(keys)),
        "least_keys": float(np.min(keys)),
        "largest": max(probe.largest for probe in probes),
    }
