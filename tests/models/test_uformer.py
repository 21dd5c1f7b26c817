"""Uformer, its parts and its PnP-Nystra form against the official outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from golden_cases import compare, golden
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, swap
from nystra.models.geometry import WindowGeometry
from nystra.models.uformer.layers import Block, Leff, Modulator, WindowAttention
from nystra.models.uformer.network import Uformer

OFFICIAL = [
    "dd6",
    "ffn_noshift",
    "img64_clamped_window",
    "modulator",
    "plain",
    pytest.param("full_S", marks=pytest.mark.release),
]
_OURS = {"attention_mechanism", "num_landmarks", "iters"}


def fill(case: Any, module: nn.Module) -> nn.Module:
    weights = {key: torch.from_numpy(value) for key, value in case.weights().items()}
    module.load_state_dict({key: weights[key] for key in module.state_dict()})
    return module.eval()


def build(case: Any, **more: Any) -> nn.Module:
    arguments = {key: value for key, value in case.constructor.items() if key not in _OURS}
    arguments["window_size"] = arguments.pop("win_size")
    return fill(case, Uformer(**(arguments | more)))


def check(case: Any, network: nn.Module, runs: tuple[str, ...] = ()) -> None:
    for run, inputs, _, expected in case.runs():
        if runs and run["name"] not in runs:
            continue
        with torch.no_grad():
            got = network(*[torch.from_numpy(value) for value in inputs.values()])
        for name, values in expected.items():
            output = next(output for output in run["outputs"] if output["name"] == name)
            assert compare(run, name, got.numpy(), values) <= 1e-5 * output["absmax"], run["name"]


class Tokens(nn.Module):
    """A part that works on maps, fed with the tokens of square maps."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = int(np.sqrt(x.shape[1]))
        return self.part(x.unflatten(1, (side, side))).flatten(1, 2)


def geometry(dim: int, heads: int, shift: int = 0) -> WindowGeometry:
    size = dim // heads
    return WindowGeometry(heads, size, size, (8, 8), (shift, shift), bool(shift), size**-0.5)


def paper_nystra(iterations: int) -> Mechanism:
    return mechanism("nystra-published", iterations=iterations).for_network("uformer", {})


@pytest.mark.parametrize("name", OFFICIAL)
def test_official(name: str) -> None:
    case = golden(f"uformer_{name}")
    check(case, build(case))


@pytest.mark.full
@pytest.mark.parametrize("name", ["original", "nystra", "nystra_w32"])
def test_paper(name: str) -> None:
    case = golden(f"pnp_uformer_{name}")
    network = build(case, position_bias=False, mask=False, modulator=False)
    if case.constructor["attention_mechanism"] == "pnp_nystra":
        parameters = paper_nystra(case.constructor["iters"])
        network = swap(network, {site.path: parameters for site in find_sites(network)})
    check(case, network)


def test_parts() -> None:
    case = golden("uformer_leff")
    check(case, Tokens(fill(case, Leff(16, 48))))
    case = golden("uformer_window_attention")
    attention = WindowAttention(16, geometry(16, 4), qkv_bias=True, position_bias=True)
    check(case, Tokens(fill(case, attention)), ("nomask",))
    case = golden("uformer_lewin_block")
    attention = WindowAttention(16, geometry(16, 4, 4), qkv_bias=True, position_bias=True)
    block = Block(16, attention, Leff(16, 64), modulated=True)
    check(case, Tokens(fill(case, block)), ("shift",))
    case = golden("uformer_mask")
    check(case, build(case), ("b1_64",))


def test_parts_of_the_paper() -> None:
    case = golden("pnp_attn_uformer_orig")
    attention = WindowAttention(24, geometry(24, 3), qkv_bias=True, position_bias=False)
    check(case, Tokens(fill(case, attention)))
    case = golden("pnp_attn_uformer")
    network = swap(nn.Sequential(fill(case, attention)), {"0": paper_nystra(3)})
    check(case, Tokens(network))


def test_a_modulator_in_the_wrong_place_is_noticed() -> None:
    case = golden("uformer_modulator")
    network = build(case)
    for module in network.modules():
        if isinstance(module, Modulator):
            module.shift = (0, 0)
    with pytest.raises(AssertionError):
        check(case, network)
