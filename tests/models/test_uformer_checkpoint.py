"""Loading Uformer: detection from tensors, other windows, every size of image, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from golden_cases import state_dict_text
from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.models import load
from nystra.models.registry import find_architecture
from nystra.models.uformer.hyper import uformer_hyper
from nystra.models.uformer.network import STAGE_NAMES, Uformer

TINY: dict[str, Any] = {
    "embed_dim": 4,
    "depths": (1, 2, 1, 1, 2, 1, 1, 2, 1),
    "num_heads": (1, 2, 2, 4, 4, 4, 2, 2, 1),
    "window_size": 4,
    "img_size": 64,
    "mlp_ratio": 2.0,
    "modulator": True,
}


def state(**changes: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    network = Uformer(**(TINY | changes))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return dict(network.state_dict())


def saved(path: Path, tensors: dict[str, Tensor], **hyper: Any) -> Path:
    metadata = {"nystra": json.dumps(hyper)} if hyper else None
    save_file({key: value.contiguous() for key, value in tensors.items()}, path, metadata)
    return path


@pytest.mark.parametrize(
    "name", ["Uformer_T", "Uformer_S", "Uformer_S_noshift", "Uformer_B", "Uformer_B_dd6"]
)
def test_hyper_parameters_of_every_official_checkpoint(name: str) -> None:
    text = state_dict_text(f"uformer_{name}")
    entry = json.loads(text)[name]
    tensors = {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}
    assert find_architecture(tensors).name == "uformer"
    hyper = uformer_hyper(tensors)
    published = dict(entry["constructor"])
    published["window_size"] = published.pop("win_size")
    for key, expected in published.items():
        if key not in ("img_size", "token_projection", "shift_flag"):  # no tensor tells them
            assert hyper[key] == expected, key
    with torch.device("meta"):
        network = Uformer(**hyper)
    assert sum(parameter.numel() for parameter in network.parameters()) == entry["param_count"]
    surplus = tensors.keys() - network.state_dict().keys()
    assert network.state_dict().keys() <= tensors.keys()
    assert all(key.endswith(".relative_position_index") for key in surplus)


def test_a_published_file_and_what_it_cannot_tell(tmp_path: Path) -> None:
    tensors = {f"module.{key}": value for key, value in state().items()}
    tensors["module.conv.blocks.0.attn.relative_position_index"] = torch.zeros(16, 16).long()
    torch.save({"epoch": 3, "state_dict": tensors, "optimizer": {}}, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    facts = loaded.facts
    assert (facts.architecture, facts.window, facts.size_multiple) == ("uformer", (4, 4), 64)
    (warning,) = loaded.warnings
    assert "using 64" in warning
    assert "`hyper` img_size=128" in warning
    assert not any(module.geometry.shifted for module in attentions(loaded.network, "conv"))
    larger = load(tmp_path / "a.pth", img_size=128)
    assert larger.warnings == ()
    assert [module.geometry.shifted for module in attentions(larger.network, "conv")] == [0, 1]


def attentions(network: torch.nn.Module, stage: str) -> list[Any]:
    return [block.attn for block in network.get_submodule(stage).blocks]


def test_a_smaller_window_of_the_last_stages_tells_the_training_size(tmp_path: Path) -> None:
    tensors = state(img_size=32, modulator=False)
    loaded = load(saved(tmp_path / "a.safetensors", tensors))
    assert loaded.hyper["img_size"] == 32
    assert loaded.warnings == ()
    assert loaded.facts.size_multiple == 32


def test_another_window_drops_what_is_of_the_trained_one(tmp_path: Path) -> None:
    tensors = state()
    path = saved(tmp_path / "a.safetensors", tensors, img_size=64)
    loaded = load(path, window_size=16)
    assert loaded.retargeted
    bias, modulator = (
        max(float(value.abs().max()) for key, value in tensors.items() if ending in key)
        for ending in ("position_bias_table", "modulator")
    )
    (warning,) = loaded.warnings
    assert warning == (
        "window 16x16 instead of the trained 4x4: the relative position bias of 12 blocks (largest "
        f"entry {bias:.2f} in logits), the modulator of 5 blocks (largest entry {modulator:.2f}) "
        "and the shift mask are dropped, as PnP-Nystra does"
    )
    assert not any("modulator" in key for key in loaded.network.state_dict())
    windows = [attentions(loaded.network, stage)[0].geometry.window for stage in STAGE_NAMES[:5]]
    assert windows == [(16, 16), (16, 16), (16, 16), (8, 8), (4, 4)]
    assert loaded.facts.size_multiple == 64
    assert not load(path, window_size=[4, 4]).retargeted


def test_every_size_of_image_equals_the_mirrored_one(tmp_path: Path) -> None:
    tensors = state(window_size=2, img_size=32)
    network = load(saved(tmp_path / "a.safetensors", tensors, img_size=32)).network
    for height, width in ((1, 1), (3, 40), (32, 64)):
        image = torch.rand(1, 3, height, width)
        pads = ((0, 0), (0, 0), (0, -height % 32), (0, -width % 32))
        mirrored = torch.from_numpy(np.pad(image.numpy(), pads, mode="reflect"))
        with torch.no_grad():
            got, whole = network(image), network(mirrored)
        assert got.shape == (1, 3, height, width)
        torch.testing.assert_close(got, whole[:, :, :height, :width], rtol=0, atol=1e-5)


def without(pattern: str) -> dict[str, Tensor]:
    return {key: value for key, value in state().items() if pattern not in key}


def test_variants_that_are_not_built_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(UnsupportedModelError, match=r"token_projection linear .*conv"):
        load(saved(path, without(".to_q.")))
    crossed = {"encoderlayer_0.blocks.0.cross_modulator.weight": torch.zeros(16, 4)}
    with pytest.raises(UnsupportedModelError, match=r"cross_modulator.*expected a network without"):
        load(saved(path, state() | crossed))
    with pytest.raises(CheckpointError, match=r"no encoderlayer_1\.blocks\.0"):
        load(saved(path, without("encoderlayer_1.blocks.0.")))
    with pytest.raises(CheckpointError, match="8 of 9 stages have a relative_position_bias_table"):
        load(saved(path, without("conv.blocks.0.attn.relative_position_bias_table")))
    with pytest.raises(UnsupportedModelError, match=r"nearest is uformer, .* no output_proj"):
        load(saved(path, without("output_proj")))
    with pytest.raises(NystraError, match=r"num_heads cannot be read .* give `num_heads`"):
        load(saved(path, without("relative_position_bias_table")))


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"token_projection": "conv"}, "token_projection is 'conv'; expected 'linear'"),
        ({"img_size": 8}, "img_size 8 must be 16 at least"),
        ({"img_size": 16}, "img_size 16 leaves no whole window 4x4 to the modulators"),
        ({"depths": [1] * 9}, r"depths \[1, .*were given, the tensors have"),
        ({"num_heads": [3] * 9}, "4 channels are not a multiple of 3 heads"),
        ({"num_heads": [1, 2]}, "must have 9 numbers"),
        ({"in_chans": 1}, "an input of 3 channels is added to the output"),
        ({"window_size": 2000}, "2000x2000 is not within 1 to 1024"),
        ({"win_size": 8}, "no hyper-parameter 'win_size'; it has: .*window_size"),
    ],
)
def test_bad_arguments_are_clear_errors(tmp_path: Path, hyper: Any, message: str) -> None:
    path = saved(tmp_path / "a.safetensors", state())
    with pytest.raises(NystraError, match=message):
        load(path, **hyper)


def test_depths_that_differ_between_encoder_and_decoder() -> None:
    with pytest.raises(ValueError, match="must be symmetric"):
        Uformer(depths=(1, 2, 1, 1, 1, 1, 1, 1, 1))
