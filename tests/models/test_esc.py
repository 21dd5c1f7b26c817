"""ESC and its variants against the official outputs, and their detection from tensors."""

import json
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from golden_cases import compare, golden, state_dict_text
from golden_networks import check
from nystra.core.errors import NystraError
from nystra.models.architecture import Request
from nystra.models.esc.checkpoint import load
from nystra.models.esc.convolutions import (
    LargeFilter,
    SeparatedFilter,
    depthwise_of,
    symmetric,
)
from nystra.models.esc.hyper import esc_hyper, variant
from nystra.models.esc.network import ESC, ESCFP, ESCRIB, EscNetwork
from nystra.models.esc.real import ESCReal, ESCRealM
from nystra.models.layers.map_attention import TableAttention
from nystra.models.layers.position_channels import make_geometry
from nystra.models.registry import find_architecture

NETWORKS = [
    ("esc_x2_w8", ESC),
    ("esc_x3_w12_ln", ESC),
    ("escfp_x4_w8", ESCFP),
    ("escreal_x4_w8", ESCReal),
    ("escrealm_x2_unshuffle_pixelshuffle", ESCRealM),
    ("escrib_x2_w16", ESCRIB),
    ("escrib_flashbias_x4", ESCRIB),
    pytest.param("esc_full_light_x4", ESC, marks=pytest.mark.full),
    pytest.param("escrib_full_x4", ESCRIB, marks=pytest.mark.full),
]


def weights(case: Any) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(value) for key, value in case.weights().items()}


@pytest.mark.parametrize(("name", "kind"), NETWORKS)
def test_official(name: str, kind: type[EscNetwork]) -> None:
    case = golden(name)
    network = kind(**case.constructor)
    network.load_state_dict(weights(case))
    check(case, network.eval())


@pytest.mark.parametrize(("name", "kind"), NETWORKS)
def test_a_load_builds_the_same(name: str, kind: type[EscNetwork]) -> None:
    case = golden(name)
    state = weights(case)
    assert find_architecture(state).name == "esc"
    overrides = {"window_size": case.constructor["window_size"]} if kind is ESCRIB else {}
    built = load(state, Request("a.pth", overrides=overrides))
    assert type(built.network) is kind
    assert built.facts.tiling == "discouraged"
    for key, expected in case.constructor.items():
        if key not in ("flashbias_rank", "upsampler", "unshuffle_mod"):
            assert built.hyper.get(key, expected) == expected, key


def test_official_attention() -> None:
    case = golden("esc_window_attention")
    made = case.constructor
    site = TableAttention(
        made["dim"], make_geometry(made["dim"], made["num_heads"], made["window_size"])
    )
    site.load_state_dict(weights(case))
    check(case, site.eval())


def test_a_bias_counted_from_the_key_is_noticed() -> None:
    case = golden("esc_window_attention")
    made = case.constructor
    site = TableAttention(
        made["dim"], make_geometry(made["dim"], made["num_heads"], made["window_size"])
    )
    state = weights(case)
    state["relative_position_bias"] = state["relative_position_bias"].flip(1)
    site.load_state_dict(state)
    with pytest.raises(AssertionError):
        check(case, site.eval())


@pytest.mark.parametrize("name", ["esc", "escfp"])
def test_official_convolutional_attention(name: str) -> None:
    case = golden(f"{name}_conv_attention")
    state, part = weights(case), case.constructor["pdim"]
    kind = LargeFilter if name == "esc" else SeparatedFilter
    module = kind(part).eval()
    prefix = "plk."
    module.load_state_dict(
        {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    )
    shared = (
        (symmetric(state["plk_filter"]),)
        if name == "esc"
        else (state["lk_channel"], state["lk_spatial"])
    )
    ((_, inputs, _, expected),) = case.runs()
    image = torch.from_numpy(inputs["x"])
    with torch.no_grad():
        got = torch.cat([module(image[:, :part], *shared), image[:, part:]], 1)
    np.testing.assert_allclose(got, expected.get("y", expected.get("")), atol=2e-5)
    if "filter" in expected:
        np.testing.assert_allclose(shared[0], expected["filter"], atol=1e-6)


def test_a_filter_of_each_image() -> None:
    x, filters = torch.rand(2, 3, 5, 6), torch.rand(2, 3, 3, 3)
    for one, own, got in zip(x, filters, depthwise_of(x, filters), strict=True):
        expected = F.conv2d(one[None], own[:, None], padding=1, groups=3)[0]
        torch.testing.assert_close(got, expected)


def test_official_evaluation_procedure() -> None:
    case = golden("esc_evaluation_procedure")
    network = ESC(**case.constructor)
    network.load_state_dict(weights(case))
    side, scale = case.constructor["window_size"], case.constructor["upscaling_factor"]
    ((run, inputs, _, expected),) = case.runs()
    image = torch.from_numpy(inputs["x"])
    height, width = image.shape[2:]
    padded = F.pad(image, (0, -width % side, 0, -height % side), "reflect")
    with torch.no_grad():
        plain = network.eval()(image)
        official = network(padded)[..., : scale * height, : scale * width]
    assert compare(run, "network", plain.numpy(), expected["network"]) <= 1e-4
    assert compare(run, "evaluation", official.numpy(), expected["evaluation"]) <= 1e-4


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "kind"),
    [("esc", ESC), ("esc_xl", ESC), ("esc_real", ESCReal), ("escrib", ESCRIB)],
)
def test_hyper_parameters_of_every_published_form(file: str, kind: type[EscNetwork]) -> None:
    entries = json.loads(state_dict_text(f"{file}"))
    for name, entry in entries.items():
        state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
        build = variant(state)
        assert build is (ESCFP if "FP" in name else kind), name
        hyper = esc_hyper(state, build)
        if kind is ESCRIB:
            assert "window_size" not in hyper
            hyper["window_size"] = entry["constructor"]["window_size"]
        for key, expected in entry["constructor"].items():
            assert hyper.get(key, expected) == expected, key
        with torch.device("meta"):
            network = build(**hyper)
        assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
        assert network.state_dict().keys() == state.keys()


def test_esc_rib_names_the_window_that_its_tensors_do_not_tell() -> None:
    network = ESCRIB(dim=8, pdim=4, n_blocks=1, conv_blocks=1, window_size=4, num_heads=2)
    with pytest.raises(
        NystraError,
        match="window of ESC-RIB cannot be read from its tensors: give `window_size`, 64",
    ):
        load(network.state_dict(), Request("a.pth"))


@pytest.mark.parametrize("kind", [ESC, ESCFP, ESCReal, ESCRIB])
@pytest.mark.parametrize("height", [1, 2, 11])
def test_any_size(kind: type[EscNetwork], height: int) -> None:
    network = kind(dim=8, pdim=4, n_blocks=1, conv_blocks=1, window_size=4, num_heads=2).eval()
    scale = network.scale
    with torch.no_grad():
        assert network(torch.rand(2, 3, height, 5)).shape == (2, 3, scale * height, scale * 5)
