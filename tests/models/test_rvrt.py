"""RVRT and its parts against the official outputs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from golden_cases import golden, state_dict_text
from nystra.core.errors import NystraError
from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import resolve
from nystra.export.load.stage import prepare
from nystra.export.options import ExportOptions
from nystra.models import load
from nystra.models.rvrt.alignment import GuidedDeformableAttention
from nystra.models.rvrt.deform import deformable_attention
from nystra.models.rvrt.flow import SpyNet, resize_flow
from nystra.models.rvrt.frames import upsampler
from nystra.models.rvrt.hyper import rvrt_hyper
from nystra.models.rvrt.network import RVRT
from nystra.models.rvrt.sampling import flow_warp
from nystra.models.rvrt.windows import Depth, Group, Stage, WindowAttention, Windows
from nystra.plugins.operators.window_geometry import WindowGeometry
from nystra.plugins.operators.windows_torch import token_regions
from rvrt_tools import attending, check, filled, paper_windows, published
from studies.precision.small import save_rvrt

full, release = pytest.mark.full, pytest.mark.release


def runs(name: str) -> Any:
    """The runs of a golden case with their inputs as tensors."""
    for run, inputs, kwargs, expected in golden(name).runs():
        yield run, [torch.from_numpy(value) for value in inputs.values()], kwargs, expected


def test_optical_flow() -> None:
    network: Any = filled(SpyNet(), golden("rvrt_spynet"))
    for run, inputs, _, expected in runs("rvrt_spynet"):
        check(run, [network(*inputs)], expected)


def test_levels_of_optical_flow() -> None:
    network: Any = filled(SpyNet(), golden("rvrt_spynet_levels"))
    for run, inputs, _, expected in runs("rvrt_spynet_levels"):
        height, width = inputs[0].shape[2:]
        finest_first = network.levels(*inputs)[:1:-1]
        got = [
            resize_flow(flow, height >> level, width >> level)
            for level, flow in enumerate(finest_first)
        ]
        check(run, got, expected)


def test_flow_warp() -> None:
    for run, (image, flow), kwargs, expected in runs("rvrt_flow_warp"):
        if image.shape[2] == 1:  # the published places in -1..1 make every row of one the first
            flow = flow * torch.tensor([1.0, 0.0])
        border = kwargs["padding_mode"] == "border"
        check(run, [flow_warp(image, flow.permute(0, 3, 1, 2), border=border)], expected)


def test_deformable_attention() -> None:
    for run, (q, kv, offset), kwargs, expected in runs("rvrt_deform_attn_op"):
        batch, clip = kv.shape[:2]
        query = q.squeeze(1).unflatten(0, (batch, clip)).permute(0, 1, 3, 4, 2)
        keys, values = kv.permute(0, 1, 3, 4, 2).chunk(2, -1)
        got = deformable_attention(
            query,
            keys,
            values,
            offset.unflatten(0, (batch, clip)),
            heads=kwargs["attention_heads"],
            groups=kwargs["deformable_groups"],
        )
        check(run, [got.permute(0, 1, 4, 2, 3).flatten(0, 1).unsqueeze(1)], expected)


class Axes(TorchDispatchMode):
    """Counts the axes of every tensor that is created."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        several = made if isinstance(made, list | tuple) else (made,)
        self.most = max(self.most, *(x.dim() for x in several if isinstance(x, torch.Tensor)))
        return made


def test_no_tensor_has_more_axes_than_tensorrt_knows() -> None:
    maps, offset = torch.rand(1, 2, 5, 6, 8), torch.rand(1, 2, 2 * 4 * 9 * 2, 5, 6)
    with Axes() as seen:
        deformable_attention(maps, maps, maps, offset, heads=4, groups=4)
    assert seen.most == 8


def test_alignment() -> None:
    name = "rvrt_guided_deform_attn"
    module: Any = filled(GuidedDeformableAttention(12, clip=2, heads=4, groups=4), golden(name))
    for run, (q, k, v, *more), _, expected in runs(name):
        aligned, flows = module.align(q, k, v, more[:2], more[2:])
        check(run, [aligned, *flows], expected)


def test_masks() -> None:
    case = golden("rvrt_masks")
    names = [name for name in case.data if name.startswith("mask.")]
    assert names
    for name in names:
        sides, window, shift = name.removeprefix("mask.").replace("ws", "").split(".")
        geometry = WindowGeometry(
            1,
            1,
            1,
            tuple(map(int, window.split("_"))),
            tuple(map(int, shift.removeprefix("s").split("_"))),
        )
        regions = token_regions([*map(int, sides.split("x"))], geometry, torch.device("cpu"))
        apart = regions.unsqueeze(1) != regions.unsqueeze(2)
        assert torch.equal(apart, torch.from_numpy(case.data[name]).bool()), name


def test_window_attention() -> None:
    case = golden("rvrt_window_attention")
    for run, (x, *masks), kwargs, expected in runs("rvrt_window_attention"):
        frames = 2 if x.shape[1] == 128 else 1  # fewer tokens than the window: one frame of it
        geometry = WindowGeometry(4, 6, 6, (frames, 8, 8), (0, 0, 0), scale=6**-0.5)
        module: Any = WindowAttention(24, geometry)
        if frames == 1:
            case.data["weights.relative_position_bias_table"] = case.data[
                "weights.relative_position_bias_table"
            ][225:450]
        filled(module, case)
        if masks or "mask" in kwargs:
            mask = (masks or [torch.from_numpy(kwargs["mask"])])[0]
            want = mask.shape[0]  # windows of a map, which the mask is one shift of
            attend_masked(module, mask.repeat(x.shape[0] // want, 1, 1))
        got = module(x.view(-1, frames, 8, 8, 24)).flatten(1, 3)
        check(run, [got], expected)


def attend_masked(module: Any, mask: torch.Tensor) -> None:
    """Give a site a mechanism that adds a mask (windows, N, N) to the scores."""
    from nystra.plugins.operators.attention_torch import softmax_attention
    from nystra.plugins.operators.window_softmax.torch_op import relative_position_bias
    from nystra.plugins.operators.windows_torch import merge, partition

    def attend(qkv: torch.Tensor, table: torch.Tensor, geometry: WindowGeometry) -> torch.Tensor:
        q, k, v = partition(qkv, geometry)
        bias = relative_position_bias(table, *geometry.window) + mask[:, None, None]
        return merge(softmax_attention(q, k, v, geometry.scale, bias), qkv.shape[1:-1], geometry)

    module.implementation = attend


def group(case: Any, sides: Any, **more: Any) -> nn.Module:
    """The group of a golden case for maps of these sides, with smaller windows if needed."""
    made = case.constructor
    pairs = list(zip(made["window_size"], sides, strict=True))
    window = tuple(min(pair) for pair in pairs)
    shift = tuple(step // 2 if side > step else 0 for step, side in pairs)
    for name, table in case.data.items():
        if name.endswith("relative_position_bias_table"):
            whole = table.reshape(*(2 * step - 1 for step in made["window_size"]), -1)
            for axis, (step, used) in enumerate(zip(made["window_size"], window, strict=True)):
                whole = whole.take(range(step - used, step + used - 1), axis)
            case.data[name] = whole.reshape(-1, table.shape[1])
    windows = Windows(made["num_heads"], window, shift, **more)
    return filled(Group(made["dim"], made["depth"], 2 * made["dim"], windows), case)


def test_group() -> None:
    for run, (x,), _, expected in runs("rvrt_rstb"):
        module = group(golden("rvrt_rstb"), x.shape[2:])
        check(run, [module(x.permute(0, 2, 3, 4, 1)).permute(0, 4, 1, 2, 3)], expected)


@pytest.mark.parametrize("form", ["original", "pnp_nystra"])
def test_group_of_the_paper(form: str) -> None:
    name = f"pnp_rvrt_rstb_{form}"
    for run, (x,), _, expected in runs(name):
        module = group(golden(name), x.shape[2:], position_bias=False, mask=False)
        if form == "pnp_nystra":
            attending(module, paper_windows(16, 3))
        check(run, [module(x.permute(0, 2, 3, 4, 1)).permute(0, 4, 1, 2, 3)], expected)


def test_stage() -> None:
    windows = Windows(4, (2, 8, 8), (0, 4, 4))
    module = filled(Stage(7, 24, Depth(2, 2, 48), windows), golden("rvrt_rstb_inputconv"))
    for run, inputs, _, expected in runs("rvrt_rstb_inputconv"):
        check(run, [module(*inputs)], expected)


@pytest.mark.parametrize("scale", [3, 4])
def test_upsampler(scale: int) -> None:
    module = filled(upsampler(scale, 8), golden(f"rvrt_upsample_x{scale}"))
    for run, (x,), _, expected in runs(f"rvrt_upsample_x{scale}"):
        frames = module(x.transpose(1, 2).flatten(0, 1)).unflatten(0, (1, 2))
        check(run, [frames.transpose(1, 2)], expected)


@pytest.mark.parametrize(
    ("name", "run_name"),
    [
        pytest.param("rvrt_x4", "plain_b1_t2_64x64", marks=full),
        ("rvrt_x1_deblur", "plain_b1_t4_144x144"),
        pytest.param("rvrt_x4", "plain_b1_t6_64x72", marks=release),
        pytest.param("rvrt_x4", "mirror_b1_t4_64x64", marks=release),
        pytest.param("rvrt_full_001", "t4_64x64", marks=release),
        pytest.param("pnp_rvrt_x4", "t4_64x64", marks=full),
    ],
)
def test_network(name: str, run_name: str) -> None:
    case = golden(name)
    paper = "attention_mechanism" in case.constructor
    hyper = published(case.constructor) | ({"position_bias": False, "mask": False} if paper else {})
    network = filled(RVRT(**hyper), case)
    if paper:
        made = case.constructor
        attending(network, paper_windows(made["num_landmarks"], made["iters"]))
    (chosen,) = [run for run in runs(name) if run[0]["name"] == run_name]
    with torch.no_grad():
        check(chosen[0], [network(*chosen[1])], chosen[3])


KEYS = ["001_videosr_bi_REDS_30frames", "004_deblur_DVD", "006_denoise_DAVIS"]


@pytest.mark.parametrize("name", KEYS)
def test_hyper_parameters_of_every_official_checkpoint(name: str) -> None:
    text = state_dict_text(f"rvrt_{name}")
    entry = json.loads(text)[name]
    state = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    hyper = rvrt_hyper(state)
    for key, expected in published(entry["constructor"]).items():
        assert hyper[key] == expected, key
    with torch.device("meta"):
        network = RVRT(**hyper)
    assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
    index = ".relative_position_index"
    assert network.state_dict().keys() == {key for key in state if not key.endswith(index)}
    for key, value in network.state_dict().items():
        assert value.shape == state[key].shape, key


def test_an_odd_film_is_refused() -> None:
    with torch.device("meta"):
        network = RVRT()
        with pytest.raises(ValueError, match="3 frames; expected a multiple of 2"):
            network(torch.empty(1, 3, 3, 64, 64))


@pytest.mark.full
def test_a_checkpoint_makes_a_network_for_a_number_of_frames(tmp_path: Path) -> None:
    path = save_rvrt(tmp_path / "small.safetensors")
    facts = load(path).facts
    assert (facts.architecture, facts.task, facts.scale) == ("rvrt", "video", 4)
    assert facts.inputs[0].lengths == {"frames": 6, "channels": 3}
    assert facts.inputs[0].axes == ("batch", "frames", "channels", "height", "width")
    assert facts.outputs[0].lengths == {"frames": 6, "channels": 3}
    assert (facts.window, facts.size_multiple) == ((2, 4, 4), 1)
    prepared = prepare(path, ExportOptions(static=(1, 4, 3, 20, 16)), lambda _: None)
    assert prepared.feeds[0]["input"].shape == (1, 4, 3, 20, 16)
    assert prepared.loaded.facts.outputs[0].lengths["frames"] == 4
    for frames in (5, 0, True):
        with pytest.raises(NystraError, match="give an even number of at most 1024"):
            load(path, frames=frames)
    for shape, words in [((1, 3, 3, 20, 16), "frames is 3; RVRT takes"), ((1, 3, 20, 16), "has 4")]:
        with pytest.raises(NystraError, match=words):
            prepare(path, ExportOptions(static=shape), lambda _: None)


@pytest.mark.full
def test_another_window_drops_the_bias(tmp_path: Path) -> None:
    path = save_rvrt(tmp_path / "small.safetensors")
    loaded = load(path, window_size=8, frames=4)
    assert (loaded.facts.window, loaded.retargeted) == ((2, 8, 8), True)
    assert "window 2x8x8 instead of the trained 2x4x4" in loaded.warnings[0]
    assert "of 12 blocks" in loaded.warnings[0]
    assert not load(path, window_size=4).retargeted
    assert not load(path, window_size=[2, 4, 4]).retargeted
    sites = resolve(Plan(mechanism("nystra")), loaded.network)
    assert {site.name for site in sites.values()} == {"nystra"}


def test_denoising_takes_the_level_of_the_noise(tmp_path: Path) -> None:
    path = save_rvrt(tmp_path / "small.safetensors", upscale=1, in_chans=4)
    loaded = load(path, frames=4)
    facts = loaded.facts
    assert (facts.scale, facts.input_channels, facts.output_channels) == (1, 4, 3)
    assert facts.size_multiple == 4
    film = torch.rand(1, 4, 4, 18, 21)
    with torch.no_grad():
        restored = loaded.network(film)
        other = loaded.network(film * torch.tensor([1, 1, 1, 0.5]).view(1, 1, 4, 1, 1))
    assert restored.shape == (1, 4, 3, 18, 21)
    assert not torch.allclose(restored, other)


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"in_chans": 1}, "in_chans 1; expected 3, or 4"),
        ({"window_size": (1, 8, 8)}, "a window of 1x8x8; expected 2 frames"),
        ({"embed_dim": 10, "num_heads": 4}, "embed_dim 10 is not a multiple of num_heads"),
        ({"deformable_groups": 5}, "5 deformable_groups cannot cut the 576 channels"),
        ({"num_blocks": (1, 2)}, "expected 3 numbers each"),
        ({"depths": (1, 0, 1)}, "must be at least 1"),
        ({"upscale": 5}, "an upsampler by 5: expected 3 or 2, 4, 8"),
    ],
)
def test_arguments_that_contradict_each_other(hyper: Any, message: str) -> None:
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        RVRT(**hyper)
