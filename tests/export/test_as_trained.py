"""`as_trained` is the reference of every plan, whatever attention a network has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nystra.core.errors import NystraError
from nystra.export import Plan, mechanism
from nystra.export.attention.advice import improvements, plan_warnings
from nystra.export.attention.as_trained.parameters import AsTrained
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.implementation import implement
from nystra.export.attention.linformer.parameters import Linformer
from nystra.export.attention.nystra.parameters import Nystra
from nystra.export.attention.psal.parameters import Psal
from nystra.export.attention.site import find_sites, neutral, resolve, swap
from nystra.export.load.network import load_for
from nystra.export.validate.fidelity import measure_fidelity
from nystra.models import load
from nystra.models.geometry import TokenGeometry, WindowGeometry
from nystra.models.sites import MapSite, TokenSite, WindowSite
from nystra.models.swinir.network import SwinIR
from patch_networks import network_of
from small_swinir import state_of, tiny
from toy_mechanism import added_mechanism


def average(q: Tensor, k: Tensor, v: Tensor, bias: Any, geometry: TokenGeometry) -> Tensor:
    return v.mean(2, keepdim=True).expand(*q.shape[:3], v.shape[3])


class Averaging(nn.Module):
    """Rows of an image are tokens; its attention was trained as an average."""

    def __init__(self) -> None:
        super().__init__()
        self.site = TokenSite(TokenGeometry((4, 4), (4, 4), 1.0))
        self.site.implementation = average

    def forward(self, image: Tensor) -> Tensor:
        tokens = image.flatten(2).transpose(1, 2).unsqueeze(1)
        mixed = self.site.attend(tokens, tokens, tokens).squeeze(1).transpose(1, 2)
        return image + 0.1 * mixed.unflatten(2, image.shape[2:])


def make_image() -> dict[str, Any]:
    return {"noise": {"input": np.random.default_rng(0).random((1, 3, 4, 4), np.float32)}}


def test_other_attention_is_neutral_and_full_is_not() -> None:
    network = Averaging().eval()
    own = resolve(Plan(AsTrained()), network)
    assert own == neutral(network) == {"site": AsTrained()}
    image = torch.rand(1, 3, 4, 4)
    for form in ("plain", "operator"):
        assert torch.equal(swap(network, own, form)(image), network(image))  # type: ignore[arg-type]
    assert measure_fidelity(network, own, make_image()).mean == float("inf")
    exact = measure_fidelity(network, resolve(Plan(Full()), network), make_image())
    assert exact.mean < 60.0
    assert [site.path for site in exact.sites] == ["site"]


def test_softmax_attention_as_trained_is_full() -> None:
    network = SwinIR(**tiny())
    assert set(neutral(network).values()) == {Full()}
    assert resolve(Plan(AsTrained()), network) == resolve(Plan(), network)


def test_what_is_not_served_stays_as_trained() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.exact, self.own = MapSite(), MapSite()
            self.own.implementation = lambda q, k, v, scale: v

    network = Whole()
    resolved = resolve(Plan(Linformer()), network)
    assert resolved == {"exact": Full(), "own": AsTrained()}
    assert {site.reason for site in resolved.values()} == {
        "linformer needs trained tensors that the checkpoint does not have: E_K, E_V"
    }


def test_windows_of_three_sides_stay_as_trained() -> None:
    """Operators have windows with two sides; exact attention is then standard operators."""
    geometry = WindowGeometry(1, 2, 2, (2, 2, 4), (1, 1, 2), masked=True)
    site = WindowSite(geometry)
    qkv = torch.randn(1, 4, 4, 8, geometry.channels)
    expected = site.implementation(qkv, None, geometry)
    for planned in (Nystra(), Psal(), Full()):
        (resolved,) = resolve(Plan(planned), nn.Sequential(site)).values()
        assert resolved == Full()
        assert bool(resolved.reason) == (planned != Full())
        computed: Any = implement(resolved, site, "operator")
        assert torch.equal(computed(qkv, None, geometry), expected)


NEEDY = {
    "parameters": """
from dataclasses import dataclass

from ..mechanism import Mechanism


@dataclass(frozen=True)
class Needy(Mechanism):
    name = "needy"
    site_classes = ("Tokens",)
    summary = "values times a trained number"
    trained = ("factor",)
""",
    "sites": """
class Tokens:
    def __init__(self, parameters, form, site):
        self.site = site

    def __call__(self, q, k, v, bias, geometry):
        return v * self.site.factor
""",
}


def test_trained_tensors_belong_to_the_site(tmp_path: Path) -> None:
    with added_mechanism(tmp_path, "needy", "Needy", **NEEDY):
        network = Averaging()
        (site,) = resolve(Plan(mechanism("needy")), network).values()
        assert site == AsTrained()
        assert (
            site.reason == "needy needs trained tensors that the checkpoint does not have: factor"
        )
        with pytest.raises(NystraError, match="does not have: factor"):
            implement(mechanism("needy"), network.site, "plain")

        network.site.register_parameter("factor", nn.Parameter(torch.tensor(3.0)))
        resolved = resolve(Plan(mechanism("needy")), network)
        copied = swap(network, resolved)
        assert list(copied.state_dict()) == ["site.factor"]
        image = torch.rand(1, 3, 4, 4)
        torch.testing.assert_close(copied(image), image + 0.1 * 3.0 * image)
        copied = copied.double()  # the copy's mechanism looks at the copy's tensors
        assert copied(image.double()).dtype == torch.float64


def test_advice_names_what_serves_the_site() -> None:
    network = network_of("csnln2")
    resolved = resolve(Plan(Psal()), network)
    patches = next(site for site in find_sites(network) if resolved[site.path].name == "psal")
    text = improvements(network, resolved, patches.path)
    assert text == f"full attention there (`keep_full` {patches.path}), more `neighbors`"
    network = SwinIR(**tiny(window_size=8))
    path = "layers.0.residual_group.blocks.0.attn"
    text = improvements(network, resolve(Plan(Nystra()), network), path)
    assert text.endswith(
        "more `landmarks`, `mechanism` nystromformer, `mechanism` cluster, `mechanism` psal"
    )
    network = load("vit_cifar10_p4").network
    path = next(site.path for site in find_sites(network))
    text = improvements(network, resolve(Plan(Nystra()), network), path)
    assert "cluster" in text
    assert not any(name in text for name in ("linformer", "performer"))


def test_a_plan_of_another_checkpoint_does_not_change_the_window(tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_file(state_of(window_size=8), path)
    plan = Plan(Nystra((2, 2)), window=(4, 4), source_sha256="f" * 64)
    with pytest.raises(NystraError, match=r"another checkpoint, at window 4x4.*`window_size` 4"):
        load_for(path, plan, {})
    loaded = load_for(path, plan, {"window_size": 4})
    assert loaded.retargeted
    resolved = resolve(plan, loaded.network)
    assert "made for another checkpoint" in plan_warnings(plan, loaded, resolved)[0]
    assert not load_for(path, Plan(window=(8, 8), source_sha256="f" * 64), {}).retargeted


def test_a_site_to_keep_that_is_not_there() -> None:
    plan = Plan(Nystra()).keep_full(["layers.7"])
    with pytest.raises(NystraError, match=r"'layers.7'; its sites are layers.0.residual_group"):
        resolve(plan, SwinIR(**tiny()))
