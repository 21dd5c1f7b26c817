"""CSNLN, inpainting and colorization: official outputs, formulas, detection."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from golden_cases import compare, golden, state_dict_text
from golden_networks import check
from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.models import load
from nystra.models.colorization.network import Colorization
from nystra.models.contextual_attention.checkpoint import contextual_attention_hyper
from nystra.models.contextual_attention.network import ContextualAttention, InpaintingGenerator
from nystra.models.csnln.checkpoint import csnln_hyper
from nystra.models.csnln.network import (
    CSNLN,
    CrossScaleAttention,
    NonLocalAttention,
    shrink_bilinear,
)
from nystra.models.geometry import PatchGeometry
from nystra.models.layers.patches import (
    exact_patches,
    fuse_scores,
    neighborhoods,
    paste_patches,
    usable_keys,
)
from nystra.models.registry import find_architecture


def filled(network: nn.Module, case: Any) -> nn.Module:
    """Load the golden weights; constant buffers that the network does not keep are left out."""
    weights = {key: torch.from_numpy(value) for key, value in case.weights().items()}
    network.load_state_dict({k: v for k, v in weights.items() if not k.endswith("escape_NaN")})
    return network.eval()


@pytest.mark.parametrize("name", ["x2", "x2_hard", "x3", "x4"])
def test_cross_scale_attention(name: str) -> None:
    case = golden(f"csnln_cross_scale_attention_{name}")
    arguments = {key: value for key, value in case.constructor.items() if key != "stride"}
    check(case, filled(CrossScaleAttention(**arguments), case))


def test_in_scale_attention() -> None:
    case = golden("csnln_nonlocal_attention")
    check(case, filled(NonLocalAttention(**case.constructor), case))


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_csnln(scale: int) -> None:
    case = golden(f"csnln_x{scale}")
    check(case, filled(CSNLN(**case.constructor), case))


@pytest.mark.parametrize("change", ["divisor", "key_norm", "scale"])
def test_a_wrong_cross_scale_attention_is_noticed(change: str) -> None:
    from dataclasses import replace

    case = golden("csnln_cross_scale_attention_x2")
    arguments = {key: value for key, value in case.constructor.items() if key != "stride"}
    network = filled(CrossScaleAttention(**arguments), case)
    values: Any = {"divisor": 5.9, "key_norm": "none", "scale": 9.9}
    network.geometry = replace(network.geometry, **{change: values[change]})  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        check(case, network)


@pytest.mark.parametrize("name", ["fuse_rate2", "nofuse_rate2"])
def test_contextual_attention(name: str) -> None:
    case = golden(f"inpaint_contextual_attention_{name}")
    arguments = {key: value for key, value in case.constructor.items() if key != "stride"}
    network = ContextualAttention(**arguments)
    for run, inputs, more, expected in case.runs():
        f, b = (torch.from_numpy(value) for value in inputs.values())
        mask = torch.from_numpy(more["mask"]) if "mask" in more else None
        got = network(f, b, mask).numpy()
        (output,) = run["outputs"]
        assert compare(run, "", got, expected[""]) <= 1e-5 * max(1, output["absmax"]), run["name"]


def test_inpainting_generator() -> None:
    case = golden("inpaint_generator")
    network = filled(InpaintingGenerator(**case.constructor), case)
    assert isinstance(network, InpaintingGenerator)
    for run, inputs, _, expected in case.runs():
        x, mask = (torch.from_numpy(value) for value in inputs.values())
        with torch.no_grad():
            stages = network.stages(x, mask)
            pasted = network((x + 1) / 2, mask)
        for (name, values), got in zip(expected.items(), stages, strict=True):
            assert compare(run, name, got.numpy(), values) <= 1e-5, (run["name"], name)
        wanted = torch.where(mask > 0, (stages[1] + 1) / 2, (x + 1) / 2)
        torch.testing.assert_close(pasted, wanted, atol=1e-5, rtol=0)


def test_each_image_is_filled_by_its_own_mask() -> None:
    torch.manual_seed(1)
    network = InpaintingGenerator(ngf=4).eval()
    image = torch.rand(2, 3, 40, 48)
    mask = torch.zeros(2, 1, 40, 48)
    mask[0, :, 8:24, 8:20] = mask[1, :, 16:32, 20:40] = 1.0
    with torch.no_grad():
        both = network(image, mask)
        alone = torch.cat([network(image[i : i + 1], mask[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(both, alone, atol=1e-5, rtol=0)


def test_the_hole_does_not_matter_and_the_rest_stays() -> None:
    torch.manual_seed(2)
    network = InpaintingGenerator(ngf=4).eval()
    image, mask = torch.rand(1, 3, 21, 30), torch.zeros(1, 1, 21, 30)
    mask[:, :, 5:15, 7:20] = 1.0
    other = torch.where(mask > 0, torch.rand(1, 3, 21, 30), image)
    with torch.no_grad():
        first, second = network(image, mask), network(other, mask * 0.7)
    torch.testing.assert_close(first, second, atol=0, rtol=0)
    outside = (mask == 0).expand_as(image)
    torch.testing.assert_close(first[outside], image[outside], atol=0, rtol=0)
    assert not torch.equal(first[~outside], image[~outside])
    assert torch.equal(network(image, torch.zeros_like(mask)), image)


def naive_attention(
    query: Tensor, key: Tensor, value: Tensor, usable: Tensor | None, geometry: PatchGeometry
) -> Tensor:
    """The definition by unfold and a transposed convolution, one batch element, not fused."""
    q, k = (m[:, :, :: geometry.shrink, :: geometry.shrink] for m in (query, key))
    mode = "constant" if geometry.border == "zero" else "replicate"
    r = geometry.patch // 2
    q_patches, k_patches = (
        F.unfold(F.pad(m, (r, r, r, r), mode=mode), geometry.patch)[0].T.double() for m in (q, k)
    )
    if geometry.metric == "l2":
        scores = -torch.cdist(q_patches, k_patches).square()
    else:
        scores = q_patches @ k_patches.T
        if geometry.key_norm == "floor":
            scores = scores / k_patches.norm(dim=1).clamp(min=geometry.key_epsilon)
        elif geometry.key_norm == "ridge":
            scores = scores / (k_patches**2 + geometry.key_epsilon).sum(1).sqrt()
    if usable is not None:
        scores = scores * usable
    weights = (geometry.scale * scores).softmax(1)
    if usable is not None:
        weights = weights * usable
    pad, side, step = geometry.value_pad, geometry.value_patch, geometry.value_stride
    patches = F.unfold(F.pad(value, (pad,) * 4), side, stride=step)[0].T.double()
    kernels = patches.reshape(-1, value.shape[1], side, side)
    votes = weights.T.reshape(1, -1, q.shape[2], q.shape[3])
    whole = F.conv_transpose2d(votes, kernels, stride=step, padding=pad)
    return whole / geometry.divisor


@pytest.mark.parametrize(
    "geometry",
    [
        PatchGeometry(patch=1),
        PatchGeometry(patch=7, metric="l2", scale=0.1, border="replicate"),
        PatchGeometry(patch=3, metric="l2", scale=0.3, shrink=2, value_patch=4, value_stride=2),
        PatchGeometry(patch=5, key_norm="floor", value_patch=9, value_stride=3, divisor=6.0),
        PatchGeometry(patch=3, key_norm="ridge", scale=10.0, value_patch=6, value_stride=2),
    ],
    ids=["token", "l2", "shrunk", "thirds", "ridge"],
)
def test_exact_patches_is_the_definition(geometry: PatchGeometry) -> None:
    torch.manual_seed(0)
    s, t = geometry.shrink, geometry.value_stride
    query, key = torch.randn(1, 3, 5 * s, 4 * s), torch.randn(1, 3, 6 * s, 7 * s)
    value = torch.randn(1, 2, 6 * t, 7 * t)
    got = exact_patches(query, key, value, None, geometry)
    expected = naive_attention(query, key, value, None, geometry)
    assert got.shape == (1, 2, 5 * t, 4 * t)
    torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=0)
    known = torch.ones(1, 1, 6 * s, 7 * s)
    known[:, :, 2 * s : 4 * s, s : 3 * s] = 0
    usable = usable_keys(known, geometry).reshape(-1)
    assert 0 < int(usable.sum()) < usable.numel()
    masked = exact_patches(query, key, value, known, geometry)
    expected = naive_attention(query, key, value, usable, geometry)
    torch.testing.assert_close(masked.double(), expected, atol=2e-5, rtol=0)


def test_gradients_reach_query_key_and_value() -> None:
    torch.manual_seed(0)
    geometry = PatchGeometry(patch=3, metric="l2", scale=0.1, value_patch=4, value_stride=2)
    tensors = [
        torch.randn(1, 2, *size, dtype=torch.float64, requires_grad=True)
        for size in ((3, 2), (2, 3), (4, 6))
    ]
    assert torch.autograd.gradcheck(lambda q, k, v: exact_patches(q, k, v, None, geometry), tensors)


def test_neighborhoods_are_unfolded_patches() -> None:
    image = torch.randn(2, 3, 4, 5)
    expected = F.unfold(image, 3, padding=1).reshape(2, 27, 4, 5)
    torch.testing.assert_close(neighborhoods(image, 3), expected, atol=0, rtol=0)


def test_pasting_with_every_weight_one_counts_the_overlaps() -> None:
    geometry = PatchGeometry(patch=1, value_patch=6, value_stride=2)
    image = paste_patches(torch.ones(1, 20, 6), torch.ones(1, 1, 4, 6), (4, 5), geometry)
    kernels = (
        F.unfold(F.pad(torch.ones(1, 1, 4, 6), (2,) * 4), 6, stride=2).sum(2).reshape(1, 1, 6, 6)
    )
    expected = F.conv_transpose2d(torch.ones(1, 1, 4, 5), kernels, stride=2, padding=2)
    torch.testing.assert_close(image, expected)


def test_usable_keys_need_their_whole_patch() -> None:
    known = torch.ones(1, 1, 4, 5)
    known[0, 0, 1, 1] = 0
    usable = usable_keys(known, PatchGeometry(patch=3))
    expected = torch.ones(4, 5)
    expected[0:3, 0:3] = 0
    assert torch.equal(usable[0, 0], expected)


def test_fusing_follows_the_diagonals() -> None:
    scores = torch.zeros(1, 6, 6)
    scores[0, 2, 3] = 1.0
    got = fuse_scores(scores, (1, 6), (1, 6), 3)
    expected = torch.zeros(6, 6)  # a single row: both filters run along the same diagonal
    for step, weight in ((-2, 1.0), (-1, 2.0), (0, 3.0), (1, 2.0), (2, 1.0)):
        expected[2 + step, 3 + step] = weight
    torch.testing.assert_close(got[0], expected, atol=0, rtol=0)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_shrinking_is_bilinear(factor: int) -> None:
    x = torch.randn(2, 3, 4 * factor, 3 * factor)
    expected = F.interpolate(x, scale_factor=1 / factor, mode="bilinear", align_corners=False)
    torch.testing.assert_close(shrink_bilinear(x, factor), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["x2", "x3", "x4"])
def test_every_official_csnln_is_recognized(name: str) -> None:
    text = state_dict_text("csnln")
    entry = json.loads(text)[name]
    state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    state["sub_mean.bias"] = torch.tensor([-0.4488, -0.4371, -0.4040])
    assert find_architecture(state).name == "csnln"
    hyper = csnln_hyper(state)
    wanted = entry["constructor"]
    assert hyper == wanted | {"scale": wanted["scale"][0]}
    with torch.device("meta"):
        network = CSNLN(**hyper)
    assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
    surplus = state.keys() - network.state_dict().keys()
    assert all(key.endswith(".escape_NaN") for key in surplus)
    assert network.state_dict().keys() <= state.keys()


def test_the_official_generator_is_recognized() -> None:
    text = state_dict_text("inpaint_generator")
    entry = json.loads(text)["ngf32"]
    state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    assert find_architecture(state).name == "contextual_attention"
    assert contextual_attention_hyper(state) == entry["constructor"]
    with torch.device("meta"):
        network = InpaintingGenerator(**entry["constructor"])
    assert network.state_dict().keys() == state.keys()
    assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]


def test_loading(tmp_path: Path) -> None:
    torch.manual_seed(0)
    published = CSNLN(scale=[3], n_feats=4, depth=2, rgb_range=255.0).state_dict()
    published["SEM.multi_source_projection.up_attention.escape_NaN"] = torch.tensor([1e-4])
    torch.save(published, tmp_path / "model_x3.pt")
    loaded = load(tmp_path / "model_x3.pt")
    assert loaded.hyper == {
        "scale": 3,
        "n_feats": 4,
        "depth": 2,
        "n_colors": 3,
        "rgb_range": 255.0,
    }
    assert (loaded.facts.scale, loaded.facts.size_multiple, loaded.facts.window) == (3, 3, None)
    with torch.no_grad():
        assert loaded.network(torch.rand(1, 3, 4, 5)).shape == (1, 3, 12, 15)
    metadata = {"nystra": json.dumps({"patch": 5, "metric": "dot", "scale": 0.5})}
    save_file(Colorization(channels=4).state_dict(), tmp_path / "c.safetensors", metadata)
    loaded = load(tmp_path / "c.safetensors")
    expected = {"channels": 4, "patch": 5, "metric": "dot", "scale": 0.5, "shared": True}
    assert loaded.hyper == expected
    _, reference = loaded.facts.inputs
    assert (loaded.facts.task, reference.name, reference.own_size) == (
        "colorization",
        "reference",
        True,
    )
    with pytest.raises(NystraError, match="metric is 'cosine'; expected 'l2' or 'dot'"):
        load(tmp_path / "c.safetensors", metric="cosine")
    with pytest.raises(NystraError, match="has no hyper-parameter 'window_size'"):
        load(tmp_path / "c.safetensors", window_size=8)


def test_a_csnln_of_another_scale_is_refused(tmp_path: Path) -> None:
    state = CSNLN(scale=2, n_feats=4, depth=1).state_dict()
    state["SEM.multi_source_projection.upsample.0.weight"] = torch.zeros(4, 4, 8, 8)
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(UnsupportedModelError, match="convolution of size 8"):
        load(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CSNLN(scale=5), "none of 2, 3, 4"),
        (lambda: CSNLN(n_feats=7), "must be even"),
        (lambda: InpaintingGenerator(ngf=3), "must be even"),
        (lambda: Colorization(patch=4), "must be odd"),
        (lambda: Colorization(scale=0.0), "must be above 0"),
        (lambda: PatchGeometry(patch=2), "must be odd"),
        (lambda: PatchGeometry(patch=3, fuse=2), "must be odd"),
        (lambda: PatchGeometry(patch=3, value_patch=5, value_stride=2), "must be a multiple"),
        (lambda: PatchGeometry(patch=3, value_patch=6, value_stride=3), "by the same on both"),
    ],
)
def test_arguments_that_make_no_network(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_colorization_copies_the_color_of_what_looks_alike() -> None:
    """With equal images and a sharp scale, each position finds itself."""
    torch.manual_seed(0)
    network = Colorization(channels=3, patch=3, scale=1e4).eval()
    with torch.no_grad():
        for convolution in (network.embed_color, network.project):
            convolution.weight.zero_()
            convolution.bias.zero_()  # type: ignore[union-attr]
            for channel in range(3):
                convolution.weight[channel, channel, 1, 1] = 1.0
        reference = torch.rand(1, 3, 9, 11)
        gray = (reference * network.luma).sum(1, keepdim=True)
        torch.testing.assert_close(network(gray, reference), reference, atol=1e-5, rtol=0)
        turned = network(gray, reference.flip(3))
        assert turned.shape == reference.shape
        assert float((turned - reference).abs().max()) > 1e-3
