"""Reading checkpoints: every wrapper, and every file that must be refused."""

import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.loading import load
from small_swinir import state_of


@pytest.mark.parametrize("wrapper", ["", "params", "params_ema", "state_dict"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_wrappers(tmp_path: Path, wrapper: str, prefix: str) -> None:
    state = {prefix + key: value for key, value in state_of().items()}
    torch.save({wrapper: state} if wrapper else state, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    assert loaded.checkpoint.wrapper == wrapper
    assert loaded.hyper["depths"] == [2]
    assert loaded.facts.scale == 2
    assert loaded.facts.window == (4, 4)


def test_buffers_present_or_absent(tmp_path: Path) -> None:
    state = state_of()
    place = "layers.0.residual_group.blocks.{}.attn"
    state[place.format(0) + ".relative_position_index"] = torch.zeros(16, 16, dtype=torch.int64)
    state[place.format(1)[:-5] + ".attn_mask"] = torch.zeros(4, 16, 16)
    save_file(state, tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert loaded.hyper["img_size"] == 8
    assert loaded.network.layers[0].residual_group.blocks[1].attn.geometry.shift == (2, 2)


def test_training_size_of_one_window_has_no_shift(tmp_path: Path) -> None:
    state = state_of()
    for block in (0, 1):
        key = f"layers.0.residual_group.blocks.{block}.attn.relative_position_index"
        state[key] = torch.zeros(16, 16, dtype=torch.int64)
    save_file(state, tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert loaded.network.layers[0].residual_group.blocks[1].attn.geometry.shift == (0, 0)


def test_keys_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    state = state_of()
    del state["norm.bias"]
    state["surprise"] = torch.zeros(1)
    state["conv_after_body.bias"] = torch.zeros(3)
    save_file(state, tmp_path / "a.safetensors")
    expected = (
        r"1 missing: norm.bias; 1 surplus: surprise; 1 misshapen: conv_after_body.bias \(3,\)"
    )
    with pytest.raises(CheckpointError, match=expected):
        load(tmp_path / "a.safetensors")


def test_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(64 << 20))
    with pytest.raises(CheckpointError, match="zip bomb"):
        read_checkpoint(path)


def test_bad_files(tmp_path: Path) -> None:
    whole = tmp_path / "a.safetensors"
    save_file(state_of(), whole)
    torch.save(state_of(), tmp_path / "b.pth")
    cases = {
        "missing.pth": (None, "No such file"),
        "empty.pth": (b"", "is empty"),
        "text.pth": (b"just some text", "not a checkpoint"),
        "none.safetensors": (b"\2\0\0\0\0\0\0\0{}", "holds no tensors: save the state dict"),
        "short.safetensors": (whole.read_bytes()[:2000], "not a complete safetensors"),
        "short.pth": ((tmp_path / "b.pth").read_bytes()[:2000], "not a checkpoint|broken zip"),
    }
    for name, (content, message) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            read_checkpoint(tmp_path / name)
    with pytest.raises(CheckpointError, match="is a folder"):
        read_checkpoint(tmp_path)


def test_another_architecture(tmp_path: Path) -> None:
    save_file({"fc.weight": torch.zeros(2, 2)}, tmp_path / "a.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"fc.weight.*not those of hat, swinir"):
        load(tmp_path / "a.safetensors")


def test_bias_free_needs_window_and_heads(tmp_path: Path) -> None:
    save_file(state_of(position_bias=False), tmp_path / "a.safetensors")
    with pytest.raises(NystraError, match="`window_size`"):
        load(tmp_path / "a.safetensors")
    with pytest.raises(NystraError, match="`num_heads`"):
        load(tmp_path / "a.safetensors", window_size=4)
    loaded = load(tmp_path / "a.safetensors", window_size=4, num_heads=2)
    assert loaded.hyper["mask"] is False
    assert not loaded.retargeted


def test_hyper_parameters_from_the_metadata(tmp_path: Path) -> None:
    metadata = {"nystra": '{"architecture": "swinir", "window_size": 4, "num_heads": [2]}'}
    save_file(state_of(position_bias=False), tmp_path / "a.safetensors", metadata)
    assert load(tmp_path / "a.safetensors").facts.window == (4, 4)


def test_larger_window_drops_bias_and_mask(tmp_path: Path) -> None:
    save_file(state_of(), tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors", window_size=8)
    assert loaded.retargeted
    assert "bias of 2 blocks" in loaded.warnings[0]
    geometry = loaded.network.layers[0].residual_group.blocks[1].attn.geometry
    assert geometry.window == (8, 8)
    assert geometry.shift == (4, 4)
    assert not geometry.masked


def test_window_seven_works_on_0_to_255(tmp_path: Path) -> None:
    save_file(state_of(window_size=7, upscale=1, upsampler=""), tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors").hyper["img_range"] == 255.0
    assert load(tmp_path / "a.safetensors", img_range=1.0).hyper["img_range"] == 1.0


def test_facts_of_a_network_say_no_precision() -> None:
    """A file states its own; a network's was printed with it and contradicted it."""
    assert "precision" not in load("swinir_x2_w16").facts.as_dict()


def test_a_shipped_checkpoint_goes_by_its_bare_name() -> None:
    loaded = load("swinir_x2_w16")
    assert loaded.facts.scale == 2
    assert loaded.facts.window == (16, 16)
    with pytest.raises(
        NystraError, match="no file and no shipped checkpoint has the name 'swinir_x9'"
    ):
        load("swinir_x9")


def test_a_license_that_forbids_commercial_use_is_shown(tmp_path: Path) -> None:
    """For every network, in every command that loads one."""
    said = {"nystra": '{"license": "CC-BY-NC-4.0"}'}
    save_file(state_of(), tmp_path / "a.safetensors", said)
    warnings = load(tmp_path / "a.safetensors").warnings
    assert "the license of the weights, CC-BY-NC-4.0, forbids commercial use" in warnings
    save_file(state_of(), tmp_path / "b.safetensors", {"nystra": '{"license": "a\\"\\"\\"b"}'})
    loaded = load(tmp_path / "b.safetensors")
    assert loaded.facts.license == "unknown"
    assert any("is not one plain line" in text for text in loaded.warnings)
