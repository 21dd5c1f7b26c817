"""The vision transformers that are counted and timed, and their runners.

``trained`` attentions are those of networks built with them, ``swapped`` ones replace exact
attention in a network built with that. Weights are random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nystra.core.ports.preprocessing import Preprocessing
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.site_graph import trace_network
from nystra.models.facts import Facts
from nystra.models.vit.checkpoint import vit_facts
from nystra.models.vit.network import ViT
from nystra.runtime.session import Session

OPSET = 20

CIFAR: dict[str, Any] = {"image_size": (32, 32), "patch_size": 4}
"""The study's configuration for CIFAR-10: 64 tokens and the class token, width 48."""

LARGE: dict[str, Any] = {
    "image_size": (160, 160),
    "patch_size": 8,
    "hidden_size": 192,
    "intermediate_size": 768,
    "depth": 8,
    "num_heads": 3,
}
"""The study's network for Imagenette (its published configuration): 400 tokens."""

TRAINED: dict[str, dict[str, Any]] = {
    "full": {},
    "linformer k=32": {"attention": "linformer", "linformer_k": 32},
    "linformer k=64": {"attention": "linformer", "linformer_k": 64},
    "performer r=32": {"attention": "performer", "rp_dim": 32},
    "performer r=64": {"attention": "performer", "rp_dim": 64},
    "nystromformer m=16": {"attention": "nystromformer", "num_landmarks": 16, "start": "exact"},
    "nystromformer m=32": {"attention": "nystromformer", "num_landmarks": 32, "start": "exact"},
    "nystromformer m=64": {"attention": "nystromformer", "num_landmarks": 64, "start": "exact"},
    "convolutions + linformer k=32": {
        "attention": "linformer",
        "linformer_k": 32,
        "stem": "convolutions",
    },
}
SWAPPED: dict[str, dict[str, Any]] = {
    "nystromformer": {},
    "nystra": {},
    "cluster": {},
    "psal": {},
    "performer": {},
}
_TIMED = (
    "full",
    "linformer k=32",
    "performer r=64",
    "nystromformer m=32",
    "convolutions + linformer k=32",
)

SHAPES: dict[str, dict[str, Any]] = {
    **{str(side): CIFAR | {"image_size": (side, side)} for side in (32, 64, 128, 256)},
    "160": LARGE,
}
"""Side of the image -> the network: the small one, and at 160 pixels the large one."""

BACKENDS = {"onnxruntime": "ort-cpu", "OpenVINO": "openvino"}
"""Engine of model files -> nystra's name of it."""

ENGINES = ("PyTorch", *BACKENDS)


def operations(network: nn.Module, size: tuple[int, int]) -> float:
    """Return the operations of one image; a multiplication and its addition are two.

    A network on the device ``meta`` is not computed.
    """
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        network(torch.zeros(1, 3, *size, device=next(network.parameters()).device))
    return float(counter.get_total_flops())


def attention_share(network: nn.Module, size: tuple[int, int]) -> float:
    """Return the share of attention in the operations; it changes the network."""
    whole = operations(network, size)
    for site in find_sites(network):
        idle: Any = lambda q, k, v, *_: v  # noqa: E731
        site.module.implementation = idle
    return 1 - operations(network, size) / whole


def names() -> tuple[str, ...]:
    """Return the timed attentions, exact attention first."""
    return (*_TIMED, *(f"{name}, swapped" for name in SWAPPED))


def network(name: str, shape: str) -> tuple[ViT, Facts, dict[str, Mechanism]]:
    """Return a network, its facts, and the mechanism of each of its sites."""
    torch.manual_seed(0)
    hyper = SHAPES[shape] | TRAINED.get(name, {})
    built = ViT(**hyper).eval()
    promised = {"num_channels": 3, "num_classes": 10} | hyper
    facts = vit_facts(built, promised, "none", Preprocessing())
    if name.endswith(", swapped"):
        kind = name.removesuffix(", swapped")
        plan = Plan(mechanism(kind, **SWAPPED[kind]))
    else:
        plan = Plan(mechanism("as_trained"))
    return built, facts, resolve(plan, built)


def file(name: str, shape: str, folder: Path) -> Path:
    """Return the model file of a network, created if it is missing."""
    plain = name.replace("+", "and").replace(",", "").replace(" ", "_")
    path = folder / f"{plain}_{shape}.onnx"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        built, facts, resolved = network(name, shape)
        model = trace_network(built, facts, OPSET).write_mechanisms(resolved)
        attach_bodies(model)
        onnx.save(model, path)
    return path


def call(engine: str, name: str, shape: str, folder: Path) -> Callable[[], object]:
    """Return a function that classifies one image on one thread."""
    image = torch.rand(1, 3, *SHAPES[shape]["image_size"])
    if engine == "PyTorch":
        torch.set_num_threads(1)
        built, _, resolved = network(name, shape)
        return in_torch(swap(built, resolved), image)
    return session_call(engine, file(name, shape, folder), {"input": image.numpy()})


def in_torch(network: nn.Module, image: torch.Tensor) -> Callable[[], object]:
    """Return a function that runs a network in PyTorch."""

    def call() -> object:
        with torch.inference_mode():
            return network(image)

    return call


def session_call(engine: str, path: Path, feeds: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that runs a model file on one thread of onnxruntime or OpenVINO."""
    opened = Session(path, BACKENDS[engine], 1)
    return lambda: opened.run(feeds)
