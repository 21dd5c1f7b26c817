"""The keys of timm and torchvision: written by hand, and of the libraries' random networks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nystra.core.errors import CheckpointError
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.site import neutral
from nystra.models.loading import load
from nystra.models.registry import find_architecture
from vit_tools import tiny_checkpoint

TIMM = {
    "embedding.cls_token": "cls_token",
    "embedding.position_embeddings": "pos_embed",
    "embedding.patch_embeddings.projection": "patch_embed.proj",
    "encoder.blocks": "blocks",
    "attention.qkv_projection": "attn.qkv",
    "attention.output_projection": "attn.proj",
    "layernorm_": "norm",
    "mlp.dense_": "mlp.fc",
    "layernorm.": "norm.",
    "classifier": "head",
}
TORCHVISION = {
    "embedding.cls_token": "class_token",
    "embedding.position_embeddings": "encoder.pos_embedding",
    "embedding.patch_embeddings.projection": "conv_proj",
    "encoder.blocks.": "encoder.layers.encoder_layer_",
    "attention.qkv_projection.": "self_attention.in_proj_",
    "attention.output_projection": "self_attention.out_proj",
    "layernorm_": "ln_",
    "mlp.dense_1": "mlp.0",
    "mlp.dense_2": "mlp.3",
    "layernorm.": "encoder.ln.",
    "classifier": "heads.head",
}
TOLD: dict[str, Any] = {"num_heads": 2, "image_size": [8, 12]}
OURS: dict[str, Any] = {"norm": "tokens", "norm_epsilon": 1e-6, "gelu": "none"}


def renamed(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    out = {}
    for key, value in state.items():
        for ours, theirs in names.items():
            key = key.replace(ours, theirs)
        out[key] = value
    return out


@pytest.mark.parametrize("names", [TIMM, TORCHVISION], ids=["timm", "torchvision"])
def test_keys_of_a_library_load_as_full(names: dict[str, str], tmp_path: Path) -> None:
    ours = tiny_checkpoint(tmp_path, **OURS)
    theirs = tmp_path / "theirs.safetensors"
    save_file(renamed(load_file(ours), names), theirs)
    assert find_architecture(load_file(theirs)).name == "vit"
    got, expected = load(theirs, **TOLD), load(ours, **TOLD | OURS)
    assert set(neutral(got.network).values()) == {Full()}
    image = torch.rand(2, 3, 8, 12)
    assert torch.equal(got.network(image), expected.network(image))


def test_a_variant_is_refused_by_its_keys(tmp_path: Path) -> None:
    state = renamed(load_file(tiny_checkpoint(tmp_path, **OURS)), TIMM)
    state["blocks.0.ls1.gamma"] = torch.ones(8)
    path = tmp_path / "scaled.safetensors"
    save_file(state, path)
    with pytest.raises(CheckpointError, match=r"1 surplus: blocks.0.ls1.gamma"):
        load(path, **TOLD)


def random(network: nn.Module) -> nn.Module:
    """Return a network whose parameters are all random; libraries initialize some to zero."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return network.eval()


def agrees(network: nn.Module, path: Path, sides: tuple[int, int], **told: Any) -> None:
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, path)
    loaded = load(path, **told)
    image = torch.rand(2, 3, *sides)
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(image), network(image), atol=1e-5, rtol=1e-5)


def test_torchvision(tmp_path: Path) -> None:
    vision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    network = vision.models.VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=3,
        hidden_dim=192,
        mlp_dim=64,
        num_classes=7,
    )
    agrees(random(network), tmp_path / "torchvision.safetensors", (32, 32))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"class_token": False, "global_pool": "avg"},
        {"global_pool": "avg"},
        {"img_size": (16, 32), "qkv_bias": False},
    ],
    ids=str,
)
def test_timm(options: dict[str, Any], tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    made: dict[str, Any] = {"img_size": (32, 32), "patch_size": 8, "embed_dim": 192, "depth": 2}
    made |= {"num_heads": 3, "mlp_ratio": 0.5, "num_classes": 7} | options
    network = timm.models.vision_transformer.VisionTransformer(**made)
    told = {"image_size": list(made["img_size"])} if "img_size" in options else {}
    agrees(random(network), tmp_path / "timm.safetensors", made["img_size"], **told)


def test_resized_positions_are_timms(tmp_path: Path) -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    from timm.layers.pos_embed import resample_abs_pos_embed

    from nystra.models.vit.positions import resize_positions

    torch.manual_seed(0)
    positions = torch.randn(1, 17, 6)
    for size in ((7, 5), (2, 3)):
        expected = resample_abs_pos_embed(positions, size, (4, 4), num_prefix_tokens=1)
        torch.testing.assert_close(resize_positions(positions, (4, 4), size), expected)
