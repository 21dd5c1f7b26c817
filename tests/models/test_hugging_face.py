"""Folders of Hugging Face, with shards, and Swin2SR with the keys of transformers.

The expected outputs are those of ``Swin2SRForImageSuperResolution`` (transformers 5.24.0) with the
same weights.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.models.loading import load
from shared import hide_spandrel
from small_swinir import state_of

DIM, WINDOW = 8, 4
CONFIG = {
    "model_type": "swin2sr",
    "image_size": 16,
    "window_size": WINDOW,
    "embed_dim": DIM,
    "depths": [2],
    "num_heads": [2],
    "mlp_ratio": 2.0,
    "img_range": 1.0,
}
DIRECT = {"upsample.conv": (12, DIM, 3, 3)}
NEAREST = {
    "upsample.conv_before_upsample": (64, DIM, 3, 3),
    **{f"upsample.conv_{name}": (64, 64, 3, 3) for name in ("up1", "up2", "hr")},
    "upsample.final_convolution": (3, 64, 3, 3),
}
STEPS = {
    "upsample.conv_before_upsample": (64, DIM, 3, 3),
    "upsample.upsample.convolution_0": (256, 64, 3, 3),
    "upsample.upsample.convolution_1": (256, 64, 3, 3),
    "upsample.final_convolution": (3, 64, 3, 3),
}


def state(upsampler: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return weights under the keys of transformers, each by a formula."""
    layers = {
        "swin2sr.first_convolution": (DIM, 3, 3, 3),
        "swin2sr.embeddings.patch_embeddings.projection": (DIM, DIM, 1, 1),
        "swin2sr.embeddings.patch_embeddings.layernorm": (DIM,),
        "swin2sr.encoder.stages.0.conv": (DIM, DIM, 3, 3),
        "swin2sr.encoder.stages.0.patch_embed.projection": (DIM, DIM, 1, 1),
        "swin2sr.layernorm": (DIM,),
        "swin2sr.conv_after_body": (DIM, DIM, 3, 3),
        **upsampler,
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in ("swin2sr.encoder.stages.0.layers.0.", "swin2sr.encoder.stages.0.layers.1."):
        own = f"{layer}attention.self."
        shapes |= {f"{own}logit_scale": (2, 1, 1), f"{own}key.weight": (DIM, DIM)}
        shapes[f"{own}continuous_position_bias_mlp.2.weight"] = (2, 512)
        layers |= {
            f"{own}continuous_position_bias_mlp.0": (512, 2),
            f"{own}query": (DIM, DIM),
            f"{own}value": (DIM, DIM),
            f"{layer}attention.output.dense": (DIM, DIM),
            f"{layer}layernorm_before": (DIM,),
            f"{layer}layernorm_after": (DIM,),
            f"{layer}intermediate.dense": (2 * DIM, DIM),
            f"{layer}output.dense": (DIM, 2 * DIM),
        }
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {
        key: 0.3 * torch.sin(0.37 * torch.arange(math.prod(shape)) + len(key)).reshape(shape)
        for key, shape in shapes.items()
    }


def image(height: int, width: int) -> Tensor:
    count = 3 * height * width
    return (0.5 + 0.5 * torch.sin(0.11 * torch.arange(count))).reshape(1, 3, height, width)


def folder(path: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG | config))
    return path


def shards(path: Path, tensors: dict[str, Tensor], kind: str) -> Path:
    path.mkdir()
    keys = list(tensors)
    stem = "model" if kind == "safetensors" else "pytorch_model"
    places = {}
    for number, part in ((1, keys[:7]), (2, keys[7:])):
        name = f"{stem}-0000{number}-of-00002.{kind}"
        content = {key: tensors[key] for key in part}
        if kind == "safetensors":
            save_file(content, path / name)
        else:
            torch.save(content, path / name)
        places |= dict.fromkeys(part, name)
    index = path / f"{stem}.{kind}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


EXPECTED = {
    ("direct", 16): [
        *(0.40346, 0.098152, 1.061779, 0.779709, 1.314473, -0.03845, 1.196058, 0.385628),
    ],
    ("direct", 4): [  # without shifts
        *(0.403483, 0.09829, 1.061892, 0.779614, 1.314353, -0.038538, 1.195982, 0.385633),
    ],
    ("nearest", 16): [
        *(0.172985, 0.330818, 0.100451, 0.048744, 0.990344, -0.454683, 1.324719, 0.196168),
    ],
    ("steps", 16): [
        *(0.036681, -0.039237, 0.255742, -1.944858, 1.213594, -3.882482, 0.806307, -0.001121),
    ],
}
"""(upsampler, size of the training image) -> every eighth of the output."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("upsampler", "trained"), [("direct", 16), ("direct", 4), ("nearest", 16), ("steps", 16)]
)
def test_swin2sr_equals_transformers(tmp_path: Path, upsampler: str, trained: int) -> None:
    pytest.importorskip("spandrel")
    layers = {"direct": DIRECT, "nearest": NEAREST, "steps": STEPS}[upsampler]
    loaded = load(folder(tmp_path / "swin2sr", state(layers), image_size=trained))
    assert loaded.facts.architecture == "spandrel:Swin2SR"
    assert not loaded.warnings
    with torch.no_grad():
        result = loaded.network(image(12, 20))
        odd = loaded.network(image(13, 9)).shape
    assert odd[2:] == (13 * loaded.facts.scale, 9 * loaded.facts.scale)
    expected = torch.tensor(EXPECTED[upsampler, trained])
    values = result.flatten()[:: result.numel() // 8][:8]
    torch.testing.assert_close(values, expected, rtol=5e-5, atol=1e-5)


def test_swin2sr_without_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spandrel")
    save_file(state(DIRECT), tmp_path / "a.safetensors")
    with pytest.raises(NystraError, match=r"folder with its config.json, or `window_size` \(8"):
        load(tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors", window_size=4).facts.scale == 2
    for config, words in (
        ({"img_range": 255.0}, "has img_range 255.0, expected 1.0 for windows of 4"),
        ({"hidden_act": "relu"}, "has hidden_act 'relu', expected 'gelu'"),
        ({"window_size": 1 << 40}, "window_size is 1099511627776, expected 64 at most"),
        ({"window_size": "4"}, "window_size is '4', expected a whole number"),
    ):
        place = folder(tmp_path / words[:20].replace(" ", ""), state(DIRECT), **config)
        with pytest.raises(NystraError, match=words):
            load(place)
    hide_spandrel(monkeypatch)
    with pytest.raises(UnsupportedModelError, match="pip install"):
        load(tmp_path / "a.safetensors", window_size=4)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("by_index", [False, True])
def test_shards(tmp_path: Path, kind: str, by_index: bool) -> None:
    index = shards(tmp_path / "net", state_of(), kind)
    loaded = load(index if by_index else index.parent)
    assert loaded.checkpoint.path == tmp_path / "net"
    assert loaded.checkpoint.state.keys() == state_of().keys()
    digest = loaded.checkpoint.sha256
    next(index.parent.glob("*-00001-*")).rename(index.parent / "away")
    with pytest.raises(CheckpointError, match=r"00001-of-00002.*No such file"):
        load(index)
    assert len(digest) == 64


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"weight_map": {"a": "../other.safetensors"}}, "the plain name of a file beside it"),
        ({"weight_map": {"a": "/etc/passwd"}}, "the plain name of a file beside it"),
        ({"weight_map": {"a": ".."}}, "the plain name of a file beside it"),
        ({"weight_map": {"a": "c:x.bin"}}, "the plain name of a file beside it"),
        ({"weight_map": {"a": "a\\b.bin"}}, "the plain name of a file beside it"),
        ({"weight_map": {"a": 5}}, "the plain name of a file beside it"),
        ({"weight_map": {"a": "model.safetensors.index.json"}}, "the plain name of a file beside"),
        ({"weight_map": {str(n): f"{n}.bin" for n in range(2000)}}, "2000 shards, expected 1000"),
        ({"weight_map": []}, "no 'weight_map'"),
        ([], "not a JSON object"),
    ],
)
def test_an_index_that_names_something_else(tmp_path: Path, content: Any, words: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=words):
        load(tmp_path)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder with no checkpoint; expected one"):
        load(tmp_path)
    save_file(state_of(), tmp_path / "net.safetensors")
    (tmp_path / "scheduler.bin").write_bytes(b"x")
    assert load(tmp_path).facts.architecture == "swinir"
    save_file(state_of(), tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"a folder with net\.safetensors, other"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "net_g_latest.pth",
        "pytorch_model_fsdp.bin",
        "unet/diffusion_pytorch_model.bin",
        "global_step5/mp_rank_00_model_states.pt",
        "snapshots/abc/model.safetensors",
    ],
)
def test_the_only_checkpoint_of_a_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"module": state_of(), "optimizer": None}
    save_file(state_of(), path) if path.suffix == ".safetensors" else torch.save(content, path)
    for other in ("optimizer.bin", "scheduler.pt", "random_states_0.pkl"):
        (path.parent / other).write_bytes(b"x")
    assert load(tmp_path).checkpoint.state.keys() == state_of().keys()
    torch.save(content, tmp_path / "second.pth")
    torch.save(content, tmp_path / "third.pth")
    if "/" not in name:
        with pytest.raises(CheckpointError, match=r"a folder with .*second\.pth, third\.pth"):
            load(tmp_path)


@pytest.mark.parametrize("index", ["swin.safetensors.index.json", "model.index.fp16.json"])
def test_shards_with_an_index_of_another_name(tmp_path: Path, index: str) -> None:
    shards(tmp_path / "net", state_of(), "safetensors").rename(tmp_path / "net" / index)
    assert load(tmp_path / "net").checkpoint.state.keys() == state_of().keys()
