"""HAT: its checkpoints, its overlapping attention as a site, any image size."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_cases import golden, state_dict_text
from nystra.core.errors import CheckpointError, NystraError
from nystra.export import Plan, mechanism
from nystra.export.attention.advice import plan_warnings
from nystra.export.attention.site import find_sites, refuse_untrained, resolve, swap
from nystra.models import load
from nystra.models.hat.checkpoint import hat_hyper
from nystra.models.hat.index import make_published_index, map_published_rows
from nystra.models.hat.network import HAT
from nystra.models.registry import ARCHITECTURES, find_architecture
from nystra.plugins.operators.window_softmax.torch_op import relative_position_bias
from studies.training.enlarging import EnlargingByHat

SMALL: dict[str, Any] = {
    "upscale": 2,
    "window_size": 8,
    "compress_ratio": 3,
    "squeeze_factor": 6,
    "depths": [2],
    "embed_dim": 12,
    "num_heads": [2],
}
OVERLAP = "layers.0.residual_group.overlap_attn"


@pytest.fixture(scope="session")
def small() -> HAT:
    torch.manual_seed(0)
    return HAT(**SMALL).eval().requires_grad_(requires_grad=False)


def saved(network: HAT, folder: Path, **buffers: torch.Tensor) -> Path:
    path = folder / "hat.safetensors"
    save_file({**network.state_dict(), **buffers}, path)
    return path


@pytest.mark.parametrize("window", [8, 16])
def test_the_index_is_the_published_one(window: int) -> None:
    tables = golden("hat_index_tables").data
    keys = window + window // 2
    got = make_published_index((window, window), (keys, keys))
    assert torch.equal(got, torch.from_numpy(tables[f"index.{window}.oca"]).long())


def test_rows_turn_the_published_order_into_that_of_sites() -> None:
    window, keys = (4, 6), (8, 8)
    table = torch.randn((window[0] + keys[0] - 1) * (window[1] + keys[1] - 1), 3)
    published = table[make_published_index(window, keys)]  # from the end where it is below 0
    ours = relative_position_bias(table[map_published_rows(window, keys)], *window, keys=keys)
    assert torch.equal(ours, published.permute(2, 0, 1))


@pytest.mark.parametrize("name", ["HAT-S_x2", "HAT-S_x4", "HAT_x2", "HAT_x3", "HAT_x4", "HAT-L_x4"])
def test_hyper_parameters_of_every_official_checkpoint(name: str) -> None:
    text = state_dict_text(f"hat_{name}")
    entry = json.loads(text)[name]
    state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    assert find_architecture(state).name == "hat"
    hyper = hat_hyper(state)
    untold = {"img_size", "img_range", "conv_scale"}
    assert hyper == {
        key: value for key, value in entry["constructor"].items() if key not in untold
    } | {"qkv_bias": True, "patch_norm": True, "ape": False}
    with torch.device("meta"):
        network = HAT(**hyper)
    assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
    assert state.keys() - network.state_dict().keys() == {
        "relative_position_index_SA",
        "relative_position_index_OCA",
    }


def test_no_other_row_of_the_table_takes_it_and_it_takes_no_other(small: HAT) -> None:
    hat, swinir = ARCHITECTURES[0], ARCHITECTURES[1]
    assert (hat.name, swinir.name) == ("hat", "swinir")
    state = small.state_dict()
    without = {key: value for key, value in state.items() if "overlap_attn" not in key}
    assert hat.matches(state)
    assert not hat.matches(without)


def test_index_buffers_may_be_there_or_not(small: HAT, tmp_path: Path) -> None:
    index = make_published_index((8, 8), (12, 12))
    buffers = {"relative_position_index_SA": torch.zeros(64, 64, dtype=torch.int64)}
    path = saved(small, tmp_path, relative_position_index_OCA=index, **buffers)
    image = torch.rand(1, 3, 9, 20)
    with_buffers = load(path)
    assert with_buffers.facts.architecture == "hat"
    assert torch.equal(with_buffers.network(image), small(image))
    assert torch.equal(load(saved(small, tmp_path)).network(image), small(image))
    upright = index + (12 - 2) * 20  # what a file without the published offset would hold
    with pytest.raises(CheckpointError, match=r"OCA is not the published one .*different order"):
        load(saved(small, tmp_path, relative_position_index_OCA=upright))


def test_what_no_tensor_tells_is_given(small: HAT, tmp_path: Path) -> None:
    torch.manual_seed(0)
    louder = HAT(**SMALL, conv_scale=0.5).eval().requires_grad_(requires_grad=False)
    image = torch.rand(1, 3, 8, 8)
    loaded = load(saved(small, tmp_path), conv_scale=0.5)
    torch.testing.assert_close(loaded.network(image), louder(image))
    assert (small(image) - louder(image)).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window_size": 7}, "is 3 tokens; expected an even number within 0 to 7"),
        ({"img_size": 8}, "img_size 8 must be larger than the window, 8"),
        ({"compress_ratio": 0}, "compress_ratio 0 is not within 1 to embed_dim, 12"),
        ({"resi_connection": "2conv"}, "none of 1conv, 3conv and identity"),
    ],
)
def test_arguments_that_make_no_network(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HAT(**SMALL | arguments)


@pytest.mark.parametrize("size", [(8, 8), (13, 9), (1, 17)])
def test_any_size_is_mirrored_up_and_cropped(small: HAT, size: tuple[int, int]) -> None:
    image = torch.rand(1, 3, *size)
    got = small(image)
    assert got.shape == (1, 3, 2 * size[0], 2 * size[1])
    pad = [-side % 8 for side in size]
    if all(more < side for more, side in zip(pad, size, strict=True)):
        whole = small(F.pad(image, (0, pad[1], 0, pad[0]), "reflect"))
        assert torch.equal(got, whole[:, :, : 2 * size[0], : 2 * size[1]])


def test_another_window_drops_every_position_bias(small: HAT, tmp_path: Path) -> None:
    loaded = load(saved(small, tmp_path), window_size=16)
    assert loaded.retargeted
    assert loaded.facts.window == (16, 16)
    site = {site.path: site for site in find_sites(loaded.network)}[OVERLAP]
    assert (site.module.geometry.key_window, site.bias_size) == ((24, 24), None)


def test_overlapping_attention_is_a_site_of_the_keys_around(small: HAT) -> None:
    sites = {site.path: site for site in find_sites(small)}
    assert sites[OVERLAP].tokens == 144
    assert [site.tokens for site in sites.values()] == [64, 64, 144]


def by_hand(qkv: torch.Tensor, table: torch.Tensor, heads: int, window: int, margin: int) -> Any:
    """Overlapping attention by unfolded, zero-padded keys and values, with the published index."""
    _, height, width, channels = qkv.shape
    q, k, v = qkv.split(channels // 3, -1)
    side = window + 2 * margin
    around = [
        F.unfold(part.permute(0, 3, 1, 2), side, padding=margin, stride=window)
        .unflatten(1, (heads, -1, side * side))
        .permute(0, 4, 1, 3, 2)
        for part in (k, v)
    ]
    own = F.unfold(q.permute(0, 3, 1, 2), window, stride=window)
    own = own.unflatten(1, (heads, -1, window * window)).permute(0, 4, 1, 3, 2)
    scores = own @ around[0].mT * own.shape[-1] ** -0.5
    index = make_published_index((window, window), (side, side))
    out = (scores + table[index].permute(2, 0, 1)).softmax(-1) @ around[1]
    folded = out.permute(0, 2, 4, 3, 1).flatten(1, 3)
    return F.fold(folded, (height, width), window, stride=window).permute(0, 2, 3, 1)


def test_keys_beyond_the_map_score_by_bias_alone(small: HAT) -> None:
    site = small.get_submodule(OVERLAP)
    qkv = torch.randn(2, 16, 24, 36)
    want = by_hand(qkv, site.relative_position_bias_table, 2, 8, 2)
    assert (site.attend(qkv) - want).abs().max() < 1e-5
    moved = site.implementation(qkv, site.relative_position_bias_table, site.geometry)
    assert (moved - want).abs().max() > 1e-3  # the trained table as it stands is in another order


@pytest.mark.parametrize("name", ["full", "nystra", "nystromformer", "cluster", "psal"])
def test_every_mechanism_serves_every_site(small: HAT, name: str) -> None:
    plan = Plan(mechanism(name), sites={OVERLAP: mechanism(name)})
    resolved = resolve(plan, small)
    assert {mechanism.name for mechanism in resolved.values()} == {name}
    image = torch.rand(1, 3, 16, 16)
    exact, got = small(image), swap(small, resolved)(image)
    assert (got - exact).abs().max() < (1e-6 if name == "full" else 0.05)
    operators = swap(small, resolved, "operator")(image)
    assert (operators - got).abs().max() < 1e-4


def test_overlaps_stay_exact_where_no_plan_names_them(small: HAT) -> None:
    resolved = resolve(Plan(mechanism("cluster")), small)
    assert [mechanism.name for mechanism in resolved.values()] == ["cluster", "cluster", "full"]
    assert resolved[OVERLAP].reason == (
        "cluster runs on standard operators if the key window extends beyond the window, and "
        "exact attention is one faster node; a plan that names the site can still choose it"
    )


def test_what_needs_training_is_refused(small: HAT) -> None:
    with pytest.raises(NystraError, match="tensors that were trained with the network"):
        refuse_untrained(Plan(mechanism("linformer")), small)


def test_landmarks_drop_the_bias_and_it_is_said(small: HAT, tmp_path: Path) -> None:
    loaded = load(saved(small, tmp_path))
    plan = Plan(mechanism("nystra"))
    said = plan_warnings(plan, loaded, resolve(plan, loaded.network))
    assert any("position bias of 2 sites is dropped" in text for text in said)


def test_a_training_starts_as_a_bilinear_enlargement() -> None:
    recipe = EnlargingByHat(patch=8, window=4, width=16, depths=(2,), heads=2)
    network = recipe.network().requires_grad_(requires_grad=False)
    assert isinstance(network, HAT)
    assert recipe.hyper()["conv_scale"] == 0.1
    network.conv_after_body.weight.zero_()
    network.conv_after_body.bias.zero_()
    network.upsample[0].weight[:, 3:] = 0
    image = torch.rand(1, 3, 12, 16)
    want = F.interpolate(image, scale_factor=2.0, mode="bilinear")
    inside = (..., slice(2, -2), slice(2, -2))
    torch.testing.assert_close(network(image)[inside], want[inside])
