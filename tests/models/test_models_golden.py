"""SwinIR, its PnP-Nystra form and HAT against the official outputs."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from golden_cases import compare, golden, state_dict_text
from golden_networks import check
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, swap
from nystra.models.hat.network import HAT
from nystra.models.layers.image_network import ImageNetwork
from nystra.models.swinir.hyper import swinir_hyper
from nystra.models.swinir.network import SwinIR
from swinir_procedure import official_procedure

OFFICIAL = [
    "classical_x2",
    "classical_x3",
    "classical_x4",
    "dn_color",
    "dn_gray",
    pytest.param("full_light_x2", marks=pytest.mark.full),
    pytest.param("full_classical_m_x2", marks=pytest.mark.release),
    "imgsize_eq_window",
    "jpeg_gray",
    "light_x2",
    "options",
    "real_large_x4",
    "real_x4",
]
PAPER = [
    "nystra_w16_m16_it6",
    "nystra_w32_m16_it2",
    "nystra_w8_m16_it2",
    "nystra_w8_m4_it1",
    "original_w8",
    pytest.param("full_x2_w32", marks=pytest.mark.release),
]
HATS = [
    "x2_w16",
    "x2_identity",
    "x3_w8",
    "x4_w16",
    pytest.param("full_S_x2", marks=pytest.mark.release),
]
_OURS = {"mech", "num_landmarks", "iters"}


def build(case: Any, kind: type[ImageNetwork] = SwinIR, **more: Any) -> ImageNetwork:
    arguments = {key: value for key, value in case.constructor.items() if key not in _OURS}
    network = kind(**arguments, **more)
    weights = {key: torch.from_numpy(value) for key, value in case.weights().items()}
    names = network.state_dict().keys()
    network.load_state_dict({key: weights[key] for key in names})
    return network.eval()


@pytest.mark.parametrize("name", OFFICIAL)
def test_official(name: str) -> None:
    case = golden(f"swinir_{name}")
    check(case, build(case))


@pytest.mark.parametrize("name", HATS)
def test_official_hat(name: str) -> None:
    case = golden(f"hat_{name}")
    check(case, build(case, HAT))


@pytest.mark.parametrize("name", PAPER)
def test_paper(name: str) -> None:
    case = golden(f"pnp_swinir_{name}")
    network = build(case, position_bias=False, mask=False)
    constructor = case.constructor
    if constructor["mech"] == "pnp_nystra":
        columns = {4: 2, 16: 4}[constructor["num_landmarks"]]
        parameters = mechanism(
            "nystra-published",
            landmarks=(constructor["num_landmarks"] // columns, columns),
            iterations=constructor["iters"],
        ).for_network("swinir", {})
        network = swap(network, {site.path: parameters for site in find_sites(network)})
    check(case, network)


def test_a_wrong_shift_is_noticed() -> None:
    case = golden("swinir_light_x2")
    network = build(case, mask=False)
    with pytest.raises(AssertionError):
        check(case, network)


def _key_lists() -> list[str]:
    return [
        "001_classical_x2_img48",
        "001_classical_x3_img48",
        "001_classical_x4_img48",
        "001_classical_x8_img48",
        "002_light_x2",
        "002_light_x3",
        "002_light_x4",
        "003_real_m_x2",
        "003_real_m_x4",
        "003_real_l_x4",
        "004_gray_dn",
        "005_color_dn",
        "006_jpeg_gray",
        "006_jpeg_color",
    ]


@pytest.mark.parametrize("name", _key_lists())
def test_hyper_parameters_of_every_official_checkpoint(name: str) -> None:
    text = state_dict_text(f"swinir_{name}")
    entry = json.loads(text)[name]
    state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    hyper = swinir_hyper(state)
    for key, expected in entry["constructor"].items():
        if key == "img_range":
            continue  # the registry's default, tested with the registry
        assert hyper[key] == expected, key
    with torch.device("meta"):
        network = SwinIR(**hyper)
    assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
    assert network.state_dict().keys() <= state.keys()


def test_official_test_procedure() -> None:
    case = golden("swinir_evaluation_procedure")
    network = build(case)

    def restore(image: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return network(torch.from_numpy(np.ascontiguousarray(image))).numpy()

    for run, inputs, kwargs, expected in case.runs():
        (image,) = inputs.values()
        got = official_procedure(
            restore, image, window=8, scale=2, tile=kwargs["tile"], overlap=kwargs["tile_overlap"]
        )
        for name, values in expected.items():
            assert compare(run, name, got, values) <= 1e-4
