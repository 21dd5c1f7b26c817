"""SST against the official outputs, and its detection from tensors."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from golden_cases import golden, state_dict_text
from golden_networks import check
from nystra.core.errors import CheckpointError, NystraError
from nystra.models.architecture import Request
from nystra.models.layers.attention_types import attention_of_type
from nystra.models.layers.map_attention import MapAttention
from nystra.models.layers.position_channels import ComputedPlaces
from nystra.models.registry import find_architecture
from nystra.models.sst.checkpoint import load
from nystra.models.sst.hyper import sst_hyper
from nystra.models.sst.network import SST

NETWORKS = [
    "x2_direct_w8_16_12",
    "x3_pixelshuffle_linear_gate",
    "x4_nnconv_shift_nogate",
    pytest.param("x2_w96", marks=pytest.mark.full),
    pytest.param("full_light_x4", marks=pytest.mark.full),
]
LAYERS = ["rib", "rib_shift", "flashbias", "siren", "rope", "rpb"]


def weights(case: Any) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(value) for key, value in case.weights().items()}


def layer(case: Any) -> MapAttention:
    made = case.constructor
    window = made["window_size"]
    site = attention_of_type(
        made["attn_type"],
        made["dim"],
        made["num_heads"],
        window,
        rank=made.get("rank", 1),
        hidden=made.get("rib_hidden_dim", 1),
        frequencies=made.get("rib_n_freqs", 0),
        gate=made["gate_type"],
        shift=window // 2 if made["shift"] else 0,
    )
    site.load_state_dict(weights(case))
    return site.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_official(name: str) -> None:
    case = golden(f"sst_{name}")
    network = SST(**case.constructor)
    network.load_state_dict(weights(case))
    check(case, network.eval())


@pytest.mark.parametrize("name", LAYERS)
def test_official_attention(name: str) -> None:
    case = golden(f"sst_attention_{name}")
    check(case, layer(case))


def test_a_wrong_shift_is_noticed() -> None:
    case = golden("sst_attention_rib_shift")
    case.meta["constructor"]["shift"] = False
    with pytest.raises(AssertionError):
        check(case, layer(case))


def test_position_features() -> None:
    case = golden("sst_rib_features")
    made = case.constructor
    site = ComputedPlaces(
        made["dim"], made["num_heads"], made["window_size"], made["rank"], hidden=8, frequencies=10
    )
    known = {key: value for key, value in weights(case).items() if key in site.state_dict()}
    site.load_state_dict(known, strict=False)
    ((_, _, _, expected),) = case.runs()
    with torch.no_grad():
        of_queries, of_keys = site.places()
    np.testing.assert_allclose(of_queries, expected["q_pos"], atol=1e-5)
    np.testing.assert_allclose(of_keys, expected["k_pos"], atol=1e-5)
    bias = of_queries @ of_keys.mT / made["rank"] ** 0.5
    np.testing.assert_allclose(bias, expected["bias"], atol=2e-5)


@pytest.mark.parametrize("window", [48, 96])
def test_coordinates_are_rounded_as_published(window: int) -> None:
    case = golden("sst_rib_features")
    site = ComputedPlaces(4, 1, window, 1, hidden=1, frequencies=10)
    np.testing.assert_allclose(site.axis, case.data[f"index.coords_x_w{window}"], atol=2e-6)


def _published(file: str, name: str) -> tuple[dict[str, Any], dict[str, torch.Tensor], int]:
    entry = json.loads(state_dict_text(f"{file}"))[name]
    state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    return entry["constructor"], state, entry["param_count"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("sst_light", "SST-light_x2"),
        ("sst_base", "SST-base_x2"),
        ("sst_large", "SST-large_x2"),
        ("sst_xl_plus", "SST-xl_plus_x2"),
    ],
)
def test_hyper_parameters_of_every_published_form(file: str, name: str) -> None:
    constructor, state, count = _published(file, name)
    assert find_architecture(state).name == "sst"
    hyper = sst_hyper(state)
    assert "window_sizes" not in hyper
    for key, expected in constructor.items():
        if key != "window_sizes":
            assert hyper[key] == expected, key
    with torch.device("meta"):
        network = SST(**hyper, window_sizes=constructor["window_sizes"])
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert network.state_dict().keys() == state.keys()


def small(**changes: Any) -> SST:
    arguments = {"dim": 8, "window_sizes": (4, 6), "num_heads": (2, 1), "ranks": (2, 3)}
    more = {"n_blocks": 2, "rib_hidden_dim": 4, "rib_n_freqs": 2} | changes
    torch.manual_seed(0)
    return SST(**{**arguments, **more}).eval()


def test_a_load_without_windows_lists_the_published_ones() -> None:
    with pytest.raises(NystraError, match=r"window_sizes .*SST-light: \[8,16,32,16,32,64\]"):
        load(small().state_dict(), Request("a.pth"))


def test_a_load_with_windows() -> None:
    network = small()
    built = load(network.state_dict(), Request("a.pth", overrides={"window_sizes": [4, 6]}))
    assert built.facts.size_multiple == 12
    assert built.facts.window is None
    image = torch.rand(1, 3, 9, 7)
    with torch.no_grad():
        assert torch.equal(built.network(image), network(image))


@pytest.mark.parametrize("kind", ["FlashBias", "Naive"])
def test_windows_of_types_that_tell_them(kind: str) -> None:
    hyper = sst_hyper(small(attn_type=kind).state_dict())
    assert (hyper["attn_type"], hyper["window_sizes"]) == (kind, [4, 6])


TYPES = ["RIB", "RIBSiren", "FlashBias", "SDPA", "Naive", "Flex", "RoPEViT", "NoPE", "CPE"]


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_loads(kind: str) -> None:
    given = {"rib_n_freqs": 0} if kind == "RIBSiren" else {}
    network = small(attn_type=kind, num_heads=(2, 1), **given)
    overrides = {"window_sizes": [4, 6]}
    if kind in ("NoPE", "CPE"):  # whose tensors do not tell
        overrides["num_heads"] = [2, 1]
    built = load(network.state_dict(), Request("a.pth", overrides=overrides))
    assert built.hyper["attn_type"] == {"SDPA": "Naive", "Flex": "Naive"}.get(kind, kind)
    image = torch.rand(1, 3, 9, 7)
    with torch.no_grad():
        assert torch.equal(built.network(image), network(image))


def test_a_layer_of_type_cpe() -> None:
    """x + depthwise 3x3 (zero padding) before all else; the rest is attention without positions."""
    one = small(attn_type="CPE").body[0][0]
    plain = small(attn_type="NoPE").body[0][0]
    plain.load_state_dict({k: v for k, v in one.state_dict().items() if not k.startswith("cpe.")})
    x = torch.rand(2, 8, 8, 12)
    weight, bias = one.cpe.weight.detach().double().numpy(), one.cpe.bias.detach().numpy()
    assert weight.shape == (8, 1, 3, 3)
    padded = np.pad(x.double().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    places = x.double().numpy() + bias[:, None, None]
    for row in range(3):
        for column in range(3):
            part = padded[:, :, row : row + 8, column : column + 12]
            places = places + weight[:, 0, row, column, None, None] * part
    with torch.no_grad():
        expected = plain(torch.from_numpy(places).float())
        np.testing.assert_allclose(one(x), expected, atol=1e-5)


@pytest.mark.parametrize("height", [1, 2, 13])
def test_any_size(height: int) -> None:
    with torch.no_grad():
        assert small()(torch.rand(2, 3, height, 5)).shape == (2, 3, 2 * height, 10)


def test_scale_of_an_upsampler_that_does_not_tell() -> None:
    state = small(upsampler_type="nn+conv", intermediate_dim=4, upscaling_factor=3).state_dict()
    with pytest.raises(NystraError, match="upscaling_factor"):
        load(state, Request("a.pth", overrides={"window_sizes": [4, 6]}))


def test_damaged_tensors() -> None:
    state = small().state_dict()
    gap = {key: value for key, value in state.items() if not key.startswith("body.1.0.")}
    with pytest.raises(CheckpointError, match="without a gap"):
        sst_hyper(gap)
    with pytest.raises(CheckpointError, match="2 \\+ 4 for each frequency"):
        sst_hyper({**state, "body.0.0.attn.to_hidden": torch.zeros(5, 4)})
