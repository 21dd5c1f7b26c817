"""The wrappers of trainers around a state dict, and networks that nystra only knows by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.utils import prune

from nystra.core.errors import CheckpointError, UnsupportedModelError
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


@pytest.mark.full
@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "sr_model.",
            "unet.",
            "denoiser.",
            "diffusion_model.",
            "model.diffusion_model.",
            "a.b.c.",
        ),
        *("generator.", "lit.net_g.module.", "my-net.", "_forward_module.", "0."),
    ],
)
@pytest.mark.parametrize("others", [False, True])
def test_any_prefix_whose_rest_is_known(tmp_path: Path, prefix: str, others: bool) -> None:
    extra = {"step_counter": torch.tensor(3), "loss.vgg.0.weight": torch.zeros(2, 2)}
    extra |= {f"critic.{n}.weight": torch.zeros(2, 2) for n in range(9)} | {"mean": torch.ones(3)}
    if prefix == "0." and others:
        pytest.skip("a place in a list is not a name")
    state = prefixed(prefix) | (extra if others else {})
    save_file(state, tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    for key, value in state_of().items():
        assert torch.equal(loaded.checkpoint.state[key], value)
    if others:
        (note,) = loaded.warnings
        assert "ignored the tensors of loss, step_counter, critic, mean; if they are part" in note
    else:
        assert not loaded.warnings


def test_the_moving_average_by_its_prefix(tmp_path: Path) -> None:
    averaged = {f"net_ema.{key}": value + 1 for key, value in state_of().items()}
    save_file(averaged | prefixed("net."), tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert "using net_ema, the moving average" in loaded.warnings[0]
    torch.testing.assert_close(loaded.network.norm.bias, averaged["net_ema.norm.bias"])


def test_one_of_several_networks_by_name(tmp_path: Path) -> None:
    student = {key: value + 1 for key, value in prefixed("student.").items()}
    torch.save({"state_dict": student | prefixed("teacher.")}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"state_dict/student, state_dict/teacher.*`hyper`"):
        load(tmp_path / "a.pth")
    for name, value in (("student", 1), ("state_dict/teacher", 0)):
        loaded = load(tmp_path / "a.pth", state_dict=name)
        torch.testing.assert_close(
            loaded.network.norm.bias.detach(), state_of()["norm.bias"] + value
        )
    with pytest.raises(CheckpointError, match="state_dict is 'other', expected one of them"):
        load(tmp_path / "a.pth", state_dict="other")


@pytest.mark.parametrize(
    "name",
    ["_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"],
)
def test_wrappers_within_keys(tmp_path: Path, name: str) -> None:
    state = {
        key.replace("blocks.1.", f"blocks.1.{name}.").replace("mlp.", f"mlp.{name}."): value
        for key, value in prefixed("net.").items()
    }
    save_file(state, tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors").checkpoint.state.keys() == state_of().keys()


def _spectral(layer: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.utils.spectral_norm(layer, n_power_iterations=5)


@pytest.mark.parametrize(
    "wrap",
    [
        torch.nn.utils.weight_norm,
        torch.nn.utils.parametrizations.weight_norm,
        lambda layer: torch.nn.utils.parametrizations.weight_norm(layer, dim=None),
        lambda layer: torch.nn.utils.weight_norm(layer, dim=1),
        _spectral,
        torch.nn.utils.parametrizations.spectral_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_parametrized_weights_are_folded(
    tmp_path: Path, wrap: Callable[[torch.nn.Module], torch.nn.Module]
) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(8, 8, 3)
    layer.load_state_dict(
        {name: torch.randn_like(value) for name, value in layer.state_dict().items()}
    )
    layer = wrap(layer)
    image = torch.rand(1, 8, 5, 5)
    layer.train()(image)
    expected = layer.eval()(image)
    state = prefixed("net.")
    for name in ("weight", "bias"):
        del state[f"net.conv_after_body.{name}"]
    state |= {f"net.conv_after_body.{name}": value for name, value in layer.state_dict().items()}
    torch.save(state, tmp_path / "a.pth")
    plain = load(tmp_path / "a.pth").checkpoint.state
    assert plain.keys() == state_of().keys()
    weight, bias = (plain[f"conv_after_body.{name}"] for name in ("weight", "bias"))
    torch.testing.assert_close(torch.nn.functional.conv2d(image, weight, bias), expected)


def test_an_unknown_parametrization_is_named(tmp_path: Path) -> None:
    state = state_of()
    state["conv_after_body.parametrizations.weight.original"] = state.pop("conv_after_body.weight")
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=r"surplus: conv_after_body\.parametrizations"):
        load(tmp_path / "a.safetensors")


def test_the_moving_average_is_taken_and_said(tmp_path: Path) -> None:
    averaged = {key: value + 1 for key, value in state_of().items()}
    torch.save({"params": state_of(), "params_ema": averaged}, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    assert loaded.warnings == (
        "a.pth holds params_ema and params: using params_ema, the moving average of the weights",
    )
    torch.testing.assert_close(loaded.network.norm.bias, averaged["norm.bias"])


AVERAGE = {key: value + 1 for key, value in state_of().items()}


def undotted(prefix: str, name: str = "") -> dict[str, torch.Tensor]:
    facts = {"model_ema.decay": torch.tensor(0.9), "model_ema.num_updates": torch.tensor(1)}
    names = {key: f"model_ema.{(name + key).replace('.', '')}" for key in state_of()}
    return prefixed(prefix) | {names[key]: value for key, value in AVERAGE.items()} | facts


@pytest.mark.parametrize(
    "content",
    [
        {"state_dict": undotted("net.", "net.")},
        {"state_dict": undotted("model.diffusion_model.", "diffusion_model")},
        {"model": state_of(), "ema": {"decay": 0.9, "shadow_params": list(AVERAGE.values())}},
        {"state_dict": prefixed("net."), "optimizer_states": [{"ema": tuple(AVERAGE.values())}]},
        {"model": state_of(), "emaModel": AVERAGE},
        {"netG": state_of(), "netGEMA": AVERAGE},
        {
            "model": state_of(),
            "ema": prefixed("online_model.")
            | {f"ema_model.{key}": value for key, value in AVERAGE.items()},
        },
        {
            "state_dict": {f"net.{key}": value for key, value in AVERAGE.items()},
            "current_model_state": prefixed("net."),
        },
    ],
)
def test_averages_under_other_names_and_without_names(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    torch.testing.assert_close(loaded.network.norm.bias, AVERAGE["norm.bias"])
    assert "the moving average of the weights" in " ".join(loaded.warnings)


def test_an_average_that_does_not_fit_is_said(tmp_path: Path) -> None:
    shadow = list(AVERAGE.values())[1:]
    torch.save(
        {"model": state_of(), "ema": {"shadow_params": [*shadow, ZERO["x"]]}}, tmp_path / "a"
    )
    loaded = load(tmp_path / "a")
    torch.testing.assert_close(loaded.network.norm.bias, state_of()["norm.bias"])
    assert "ignored ema/shadow_params, whose moving averages name no tensors" in loaded.warnings[0]


def test_counts_of_thop_are_left_out(tmp_path: Path) -> None:
    counts = {key: torch.zeros(1) for key in ("total_ops", "layers.0.total_params")}
    torch.save(state_of() | counts, tmp_path / "a.pth")
    assert load(tmp_path / "a.pth").checkpoint.state.keys() == state_of().keys()


@pytest.mark.full
def test_a_compiled_module_and_the_suffix_of_another_format(tmp_path: Path) -> None:
    network = torch.compile(load_of(tmp_path, state_of()).network)
    torch.save(network, tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors").checkpoint.state.keys() >= state_of().keys()


def load_of(folder: Path, content: Any) -> Any:
    torch.save(content, folder / "first.pth")
    return load(folder / "first.pth")


def test_too_many_tensors_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nystra.models.checkpoints.rebuilding.MAX_TENSORS", 3)
    torch.save(state_of(), tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"nystra reads: it holds more than 3 tensors\. S"):
        load(tmp_path / "a.pth")


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
