"""Measure mechanisms on a published network whose weights are its authors', or a shipped one.

All attentions are replaced, without training, by the operators' CPU kernels; the PSNR is that of
luma, a border of the scale cropped. Weights and images of others are not shipped::

    python -m studies.published HPINet-M-x2.pth --set Set5 Set5/LR_bicubic/X2 Set5/HR

A row has the loss in dB of each set, the mean PSNR against exact attention on the first set, and
the processor time there relative to exact attention and to 16 clusters: medians of rounds in which
all three run (one thread, PyTorch around the kernels). ``chosen`` rows have the settings that an
export chooses for a limit against exact attention, on the shipped photographs; ``auto`` rows the
plan that ``--attn auto`` takes for it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import nn

from nystra.export import ExportOptions
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.plan import Plan, read_plan
from nystra.export.attention.registry import mechanism, mechanism_class
from nystra.export.attention.site import resolve, swap
from nystra.export.auto.search import find_plan
from nystra.export.auto_options import AutoOptions
from nystra.export.load.images import calibration_feeds
from nystra.export.load.stage import prepare
from nystra.export.plan.settings import choose_settings
from nystra.models import LoadedModel
from nystra.models.own.network import OwnNetwork
from nystra.models.pretrained import checkpoint_path
from studies.published import hpinet, mambairv2
from studies.quality.measure import ImageSet, measure, with_kernels
from studies.quality.tables import label

FEW = "cluster clusters=16 block=4"
"""The usual setting of small windows, for the comparison of times."""

MECHANISMS = (
    FEW,
    "cluster clusters=16 block=8",
    "cluster clusters=64 block=4",
    "cluster clusters=64 block=8",
    "cluster clusters=64 block=8 rounds=2",
    "cluster clusters=4 block=8 order=1",
    "cluster clusters=16 block=8 order=1",
    "nystra",
    "nystromformer",
)


def read(path: Path) -> nn.Module:
    """Return the network of a published file of weights."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    build, weights = hpinet.build, state
    if "params" in state:
        build, weights = mambairv2.build, state["params"]
    network: nn.Module = build(weights)
    return network.eval().requires_grad_(requires_grad=False)


def seconds_of(model: LoadedModel, network: nn.Module, images: ImageSet) -> float:
    """Return the processor time of a network on a set, in seconds."""
    start = time.process_time()
    measure(model, network, images)
    return time.process_time() - start


def ratios_of(
    model: LoadedModel,
    others: Sequence[nn.Module],
    network: nn.Module,
    images: ImageSet,
    rounds: int,
) -> list[str]:
    """Return the time of a network relative to each of the others: the median, and the range."""
    found: list[list[float]] = [[] for _ in others]
    for _ in range(rounds):
        seconds = seconds_of(model, network, images)
        for ratios, other in zip(found, others, strict=True):
            ratios.append(seconds / seconds_of(model, other, images))
    return [
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        if ratios
        else ""
        for ratios in found
    ]


def choose_for(model: LoadedModel, limit: float) -> tuple[str, nn.Module]:
    """Return the network with the settings of ``cluster`` that an export chooses for a limit."""
    plan = Plan(Cluster())
    resolved = resolve(plan, model.network)
    samples = calibration_feeds(model.facts, None)
    output = model.facts.outputs[0]
    settings = choose_settings(model.network, output, plan, resolved, samples, limit)
    text = f"cluster, chosen for {limit:g} dB: {settings.summary.partition(':')[0]}"
    return text, swap(model.network, settings.sites, "operator")


def search_for(
    source: Path | OwnNetwork, hyper: Mapping[str, str], model: LoadedModel, limit: float
) -> tuple[str, nn.Module]:
    """Return the network with the plan that ``--attn auto`` takes for a limit."""
    options = ExportOptions(AutoOptions(), hyper=hyper, min_psnr=limit)
    proposal = find_plan(prepare(source, options, lambda _: None), AutoOptions(), lambda _: None)
    text = f"auto, {limit:g} dB: {proposal.summary.partition(':')[0]}"
    return text, swap(model.network, resolve(proposal.plan, model.network), "operator")


def follow_plan(model: LoadedModel, path: Path) -> tuple[str, nn.Module]:
    """Return the network with the plan of an export."""
    return path.name, swap(model.network, resolve(read_plan(path), model.network), "operator")


def put_everywhere(model: LoadedModel, text: str) -> tuple[str, nn.Module]:
    """Return the network with one mechanism: ``cluster clusters=64 block=8``."""
    name, *values = text.split()
    kinds = mechanism_class(name).list_options()
    given = (value.split("=") for value in values)
    parameters = {key: kinds[key].read(key, value) for key, value in given}
    parsed = mechanism(name, **parameters)
    return label(parsed), with_kernels(model, parsed, partial=True)


def main() -> None:
    """Print the table in Markdown, a row when it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "network",
        help="file of the weights of HPINet-M or MambaIRv2-light, or name of a shipped network",
    )
    parser.add_argument("--module", help="module of other weights, as of nystra-export")
    parser.add_argument(
        "--set", action="append", required=True, nargs=3, metavar=("NAME", "INPUTS", "TRUTHS")
    )
    parser.add_argument("--limits", type=float, nargs="*", default=(50.0, 55.0, 60.0, 65.0))
    parser.add_argument("--auto", type=float, nargs="*", default=(50.0, 55.0))
    parser.add_argument("--plan", type=Path, nargs="*", default=(), help="plans of exports")
    parser.add_argument("--everywhere", nargs="*", default=MECHANISMS, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of the times; 0: none (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    source: Path | OwnNetwork
    hyper = {}
    if options.module:
        source, hyper = Path(options.network), {"module": options.module}
    elif Path(options.network).exists():
        source = OwnNetwork(read(Path(options.network)))
    else:
        source = checkpoint_path(options.network)
    asked = ExportOptions(Plan(Cluster()), hyper=hyper)  # which finds the attention of modules
    model = prepare(source, asked, lambda _: None).loaded
    sets = [ImageSet(name, Path(inputs), Path(truths)) for name, inputs, truths in options.set]
    exact_network = with_kernels(model, Full())
    exact = [measure(model, exact_network, images) for images in sets]
    _, few = put_everywhere(model, FEW)
    names = [*(images.name for images in sets), "against exact", "time", "of 16 clusters"]
    print(f"| mechanism | {' | '.join(names)} |")
    print("| --- |" + " ---: |" * len(names))
    print(f"| exact | {' | '.join(f'{one.quality.psnr:.3f} dB' for one in exact)} | | 1 | |")
    rows = chain(
        (choose_for(model, limit) for limit in options.limits),
        (search_for(source, hyper, model, limit) for limit in options.auto),
        (follow_plan(model, path) for path in options.plan),
        (put_everywhere(model, text) for text in options.everywhere),
    )
    for name, network in rows:
        found = [measure(model, network, images) for images in sets]
        losses = [
            f"{after.quality.psnr - before.quality.psnr:.4f}"
            for before, after in zip(exact, found, strict=True)
        ]
        against = statistics.mean(found[0].against(exact[0]))
        times = ratios_of(model, (exact_network, few), network, sets[0], options.rounds)
        print(f"| {' | '.join([name, *losses, f'{against:.1f} dB', *times])} |", flush=True)


if __name__ == "__main__":
    main()
