"""The wrappers of trainers around a state dict, and networks that nystra only knows by name."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.loading import load
from shared import hide_spandrel
from small_swinir import state_of

ZERO = {"x": torch.zeros(1)}


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in state_of().items()}


@pytest.mark.parametrize(
    ("content", "wrapper"),
    [
        ({"net_g": state_of(), "net_d": ZERO, "epoch": 3}, "net_g"),
        ({"generator": state_of(), "discriminator": ZERO}, "generator"),
        ({"netG": prefixed("module.")}, "netG"),
        ({"state_dict": prefixed("model.")}, "state_dict"),
        ({"state_dict": {"params": state_of()}}, "state_dict/params"),
        ({"weights_of_mine": state_of(), "epoch": torch.tensor(1).item()}, "weights_of_mine"),
        ({"ema": {"decay": 0.99, "shadow": state_of()}}, "ema/shadow"),
        (prefixed("_orig_mod.module."), ""),
        (prefixed("net_g."), ""),
        ({**prefixed("module."), "n_averaged": torch.tensor(5)}, ""),
        ({**prefixed("generator."), "discriminator.x": torch.zeros(1)}, ""),
    ],
)
def test_containers_and_prefixes(tmp_path: Path, content: Any, wrapper: str) -> None:
    torch.save(content, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    assert loaded.checkpoint.wrapper == wrapper
    assert loaded.hyper["depths"] == [2]


def test_the_moving_average_is_taken_and_said(tmp_path: Path) -> None:
    averaged = {key: value + 1 for key, value in state_of().items()}
    torch.save({"params": state_of(), "params_ema": averaged}, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    assert loaded.warnings == (
        "a.pth holds params_ema and params: using params_ema, the moving average of the weights",
    )
    torch.testing.assert_close(loaded.network.norm.bias, averaged["norm.bias"])


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    state = {**prefixed("generator."), "discriminator.x": torch.zeros(1)}
    save_file(state, tmp_path / "a.safetensors")
    (note,) = load(tmp_path / "a.safetensors").warnings
    assert note == "a.safetensors: ignored the tensors of discriminator"


@pytest.mark.parametrize(
    "content",
    [
        {"net_g": state_of(), "generator": state_of()},
        {"teacher": state_of(), "student": state_of()},
        {"params_ema": state_of(), "ema": state_of()},
        {**prefixed("generator."), **prefixed("netG.")},
    ],
)
def test_several_networks_are_ambiguous(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"holds several networks: .*safetensors"):
        read_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (["conv_first.weight", "body.0.rdb1.conv1.weight"], "RRDBNet"),
        (["model.0.weight", "model.1.sub.0.RDB1.conv1.0.weight"], "RRDBNet"),
        (["layers.0.swin1.attn.qkv.weight"], "DRCT"),
        ([*state_of(), "layers.0.residual_group.blocks.0.attn.logit_scale"], "Swin2SR"),
        (["before_RG.1.weight", "layers.0.blocks.0.attn.qkv.weight"], "DAT"),
    ],
)
def test_others_of_elsewhere_are_named(
    tmp_path: Path, keys: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_spandrel(monkeypatch)
    save_file({key: torch.zeros(1) for key in keys}, tmp_path / "a.safetensors")
    with pytest.raises(UnsupportedModelError, match=f"look like those of {name}.*pip install"):
        load(tmp_path / "a.safetensors")


def test_one_missing_key_names_the_nearest_architecture(tmp_path: Path) -> None:
    state = state_of()
    del state["norm.weight"]
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"nearest is swinir, but .* no norm.weight:"):
        load(tmp_path / "a.safetensors")


def test_a_bare_name_is_neither_a_file_nor_shipped() -> None:
    with pytest.raises(
        NystraError, match="no file and no shipped checkpoint has the name 'swinir_x9'"
    ):
        load("swinir_x9")
