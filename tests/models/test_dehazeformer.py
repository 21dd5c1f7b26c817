"""DehazeFormer against the official outputs, and its detection from tensors."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from golden_cases import golden, state_dict_text
from golden_networks import check
from nystra.core.errors import CheckpointError, NystraError
from nystra.models.architecture import Request
from nystra.models.dehazeformer.checkpoint import dehazeformer_hyper, load
from nystra.models.dehazeformer.layers import Attention, BiasedWindows, Block, Fusion, WholeNorm
from nystra.models.dehazeformer.network import DehazeFormer
from nystra.models.geometry import WindowGeometry
from nystra.models.registry import find_architecture

NETWORKS = [
    "dwconv",
    "conv",
    "attn_only",
    pytest.param("full_T", marks=pytest.mark.full),
]


def weights(case: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    return {
        key.removeprefix(prefix): torch.from_numpy(value)
        for key, value in case.weights().items()
        if not key.endswith("relative_positions")
    }


def filled(case: Any, module: torch.nn.Module, prefix: str = "") -> torch.nn.Module:
    module.load_state_dict(weights(case, prefix))
    return module.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_official(name: str) -> None:
    case = golden(f"dehazeformer_{name}")
    check(case, filled(case, DehazeFormer(**case.constructor)))


def attention(made: dict[str, Any], shifted: bool) -> Attention:
    return Attention(
        made["dim"],
        made["num_heads"],
        made["window_size"],
        shifted=shifted,
        attends=made["use_attn"],
        kind=made["conv_type"],
    )


def test_official_shifted_attention() -> None:
    case = golden("dehazeformer_attention_shift")
    check(case, filled(case, attention(case.constructor, shifted=True)))


def test_a_wrong_shift_is_noticed() -> None:
    case = golden("dehazeformer_attention_shift")
    with pytest.raises(AssertionError):
        check(case, filled(case, attention(case.constructor, shifted=False)))


def test_official_block() -> None:
    case = golden("dehazeformer_block")
    made = case.constructor
    block = Block(made["dim"], made["mlp_ratio"], attention(made, shifted=False))
    check(case, filled(case, block))


def test_official_window_attention() -> None:
    case = golden("dehazeformer_window_attention")
    made = case.constructor
    heads, side = made["num_heads"], made["window_size"]
    width = made["dim"] // heads
    site = filled(
        case,
        BiasedWindows(
            WindowGeometry(
                heads=heads,
                head_dim=width,
                value_dim=width,
                window=(side, side),
                shift=(0, 0),
                scale=width**-0.5,
            )
        ),
    )
    ((_, inputs, _, expected),) = case.runs()
    packed = torch.from_numpy(inputs["qkv"]).unflatten(1, (side, side))
    with torch.no_grad():
        got = site(packed).flatten(1, 2)
    np.testing.assert_allclose(got, expected[""], atol=1e-5)


def test_official_norm() -> None:
    case = golden("dehazeformer_rln")
    norm = filled(case, WholeNorm(case.constructor["dim"]), "norm.")
    ((_, inputs, _, expected),) = case.runs()
    with torch.no_grad():
        (x,) = inputs.values()
        got = norm(torch.from_numpy(x))
    for output, name in zip(got, ("normalised", "rescale", "rebias"), strict=True):
        np.testing.assert_allclose(output, expected[name], atol=1e-5)


def test_official_fusion() -> None:
    case = golden("dehazeformer_skfusion")
    check(case, filled(case, Fusion(case.constructor["dim"]), "fusion."))


@pytest.mark.full
@pytest.mark.parametrize("file", ["tsb", "dw", "ml"])
def test_hyper_parameters_of_every_published_form(file: str) -> None:
    for entry in json.loads(state_dict_text(f"dehazeformer_{file}")).values():
        state = {
            key.removeprefix("module."): torch.empty(shape, device="meta")
            for key, shape, *_ in entry["state_dict"]
        }
        assert find_architecture(state).name == "dehazeformer"
        hyper = dehazeformer_hyper(state)
        assert hyper["window_size"] == 8
        for key, expected in entry["constructor"].items():
            if key == "num_heads":  # where a stage does not attend, nothing tells them
                shares = hyper["attn_ratio"]
                expected = [n if share else 1 for n, share in zip(expected, shares, strict=True)]
            assert hyper[key] == expected, key
        with torch.device("meta"):
            network = DehazeFormer(**hyper)
        assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
        names = {key for key in state if not key.endswith("relative_positions")}
        assert network.state_dict().keys() == names


def small() -> DehazeFormer:
    torch.manual_seed(0)
    return DehazeFormer(
        window_size=4,
        embed_dims=(4, 8, 12, 8, 4),
        depths=(1, 2, 3, 1, 1),
        num_heads=(1, 2, 3, 1, 1),
        attn_ratio=(0, 0.5, 0.75, 0, 0),
    ).eval()


def test_a_load_without_the_buffers_names_the_window() -> None:
    network = small()
    with pytest.raises(NystraError, match="give `window_size`, 8"):
        load(network.state_dict(), Request("a.pth"))
    built = load(network.state_dict(), Request("a.pth", overrides={"window_size": 4}))
    image = torch.rand(1, 3, 30, 17)
    with torch.no_grad():
        assert torch.equal(built.network(image), network(image))
    assert (built.facts.tiling, built.facts.range) == ("internal", (-1.0, 1.0))


@pytest.mark.parametrize("height", [1, 3, 29])
def test_any_size(height: int) -> None:
    with torch.no_grad():
        assert small()(torch.rand(2, 3, height, 5)).shape == (2, 3, height, 5)


def test_damaged_tensors() -> None:
    state = small().state_dict()
    gap = {key: value for key, value in state.items() if not key.startswith("layer3.blocks.1.")}
    with pytest.raises(CheckpointError, match="without a gap"):
        dehazeformer_hyper(gap)
    turned = {
        key.replace("layer3.blocks.2.attn.QK", "layer3.blocks.0.attn.QK"): value
        for key, value in state.items()
    }
    with pytest.raises(CheckpointError, match="expected only the last ones"):
        dehazeformer_hyper(turned)
