"""Vision transformers: published outputs, detection by keys, and positions of other sizes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from golden_cases import golden, state_dict_names, state_dict_text
from golden_networks import check
from nystra.core.errors import CheckpointError, NystraError
from nystra.core.ports.preprocessing import Preprocessing, Resize
from nystra.export.attention.as_trained.parameters import AsTrained
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.site import neutral
from nystra.models.loading import load
from nystra.models.registry import ARCHITECTURES
from nystra.models.vit.network import ViT
from vit_tools import GOLDEN, TINY, load_golden, tiny_checkpoint

STUDY = [name for name in GOLDEN if name != "nystromformer_noconv"]


@pytest.mark.parametrize("name", GOLDEN)
def test_published_outputs(name: str, tmp_path: Path) -> None:
    loaded = load_golden(name, tmp_path)
    check(golden(f"vit_cifar_{name}"), loaded.network)
    parameters = sum(value.numel() for value in loaded.network.parameters())
    assert parameters == golden(f"vit_cifar_{name}").meta["param_count"]
    own = Full() if name in ("standard", "faster") else AsTrained()
    assert set(neutral(loaded.network).values()) == {own}
    image, logits = loaded.facts.inputs[0], loaded.facts.outputs[0]
    assert (image.name, image.role, image.layout, image.sides) == (
        "input",
        "image",
        "NCHW",
        {"height": 32, "width": 32},
    )
    assert (logits.name, logits.role, logits.axes, logits.channels) == (
        "logits",
        "logits",
        ("batch", "classes"),
        10,
    )
    assert loaded.facts.task == "classification"


def test_a_wrong_scale_is_noticed(tmp_path: Path) -> None:
    network: Any = load_golden("performer", tmp_path).network
    for block in network.encoder.blocks:
        site = block.attention
        site.geometry = type(site.geometry)(
            site.geometry.query_grid, site.geometry.key_grid, site.geometry.scale**0.5
        )
    with pytest.raises(AssertionError):
        check(golden("vit_cifar_performer"), network)


def test_every_key_list_is_of_one_architecture() -> None:
    """The rows of the table are distinct, whatever their order."""
    seen = set()
    for file in state_dict_names():
        for name, entry in json.loads(state_dict_text(file)).items():
            state = _state(entry)
            if state is None:
                continue
            rows = [row.name for row in ARCHITECTURES if row.keys and row.matches(state)]
            assert len(rows) <= 1, (file, name, rows)
            assert rows != ["vit"] or file == "vit_cifar", (file, name)
            if file == "vit_cifar":
                assert rows == ["vit"], name
                seen.add(name)
    assert seen == set(GOLDEN)


def _state(entry: Any) -> dict[str, torch.Tensor] | None:
    if not isinstance(entry, Mapping) or "state_dict" not in entry:
        return None
    return {key: torch.empty(shape, device="meta") for key, shape, *_ in entry["state_dict"]}


@pytest.mark.parametrize("name", STUDY)
def test_keys_tell_the_attention(name: str, tmp_path: Path) -> None:
    hyper = load_golden(name, tmp_path).hyper
    wanted = {"standard": "full", "faster": "full", "linformer_perhead": "linformer"}
    assert hyper.get("attention", "full") == wanted.get(name, name)


def test_what_no_tensor_tells_is_asked_for(tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path)
    with pytest.raises(NystraError, match=r"do not determine num_heads: give `num_heads`"):
        load(path, image_size=[8, 12])
    with pytest.raises(NystraError, match=r"24 positions do not form a square; give .*image_size"):
        load(path, num_heads=2)
    with pytest.raises(NystraError, match=r"4x4 patches, the file has 24 positions.*`resize_pos"):
        load(path, num_heads=2, image_size=[8, 8])
    with pytest.raises(NystraError, match="num_landmarks"):
        load(path, num_heads=2, image_size=[8, 12], attention="nystromformer")
    assert load(path, num_heads=2, image_size=[8, 12]).facts.sides == {"height": 8, "width": 12}


def test_metadata_tell_what_tensors_do_not(tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path, attention="nystromformer", num_landmarks=6, padding="front")
    told = {
        "attention": "nystromformer",
        "num_heads": 2,
        "num_landmarks": 6,
        "padding": "front",
        "image_size": [8, 12],
    }
    save_file(load_file(path), path, metadata={"nystra": json.dumps(told)})
    loaded = load(path)
    assert loaded.hyper.items() >= told.items()
    with torch.no_grad():
        assert loaded.network(torch.rand(2, 3, 8, 12)).shape == (2, 5)


@pytest.mark.parametrize(
    "hyper",
    [
        {"pool": "mean", "class_token": False},
        {"pool": "mean", "class_token": False, "norm": "pooled"},
        {"norm": "tokens", "output_projection": False, "qkv_bias": False},
        {"stem": "convolutions", "attention": "linformer", "linformer_k": 4},
        {"attention": "performer", "rp_dim": 7, "kernel": "relu"},
    ],
    ids=str,
)
def test_what_is_built_is_loaded_again(hyper: dict[str, Any], tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path, **hyper)
    kernel = {"kernel": hyper["kernel"]} if "kernel" in hyper else {}
    norm = {"norm": hyper["norm"]} if "norm" in hyper else {}
    loaded = load(path, image_size=[8, 12], num_heads=2, **kernel, **norm)
    network = ViT(**TINY | hyper).eval()
    network.load_state_dict(load_file(path))
    image = torch.rand(2, 3, 8, 12)
    with torch.no_grad():  # equal weights at other addresses: some CPUs sum in another order then
        torch.testing.assert_close(loaded.network(image), network(image))


def test_how_images_are_prepared(tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path)
    told: dict[str, Any] = {"num_heads": 2, "image_size": [8, 12]}
    silent = load(path, **told)
    assert silent.facts.preprocessing == Preprocessing(Resize((8, 12)))
    assert "the normalization of images is unknown" in silent.warnings[0]
    prepared = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "labels": ["cat", "dog"]}
    save_file(load_file(path), path, metadata={"nystra": json.dumps({"preprocessing": prepared})})
    loaded = load(path, **told)
    assert loaded.warnings == ()
    assert loaded.facts.preprocessing == Preprocessing(
        Resize((8, 12)), None, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2), ("cat", "dog")
    )
    with pytest.raises(NystraError, match=r"nystra\.preprocessing"):
        load(path, **told, preprocessing={"mean": "gray"})


def test_a_part_of_the_heads_is_refused(tmp_path: Path) -> None:
    weights = golden("vit_cifar_standard").weights()
    del weights["encoder.blocks.2.attention.heads.1.key.weight"]
    path = tmp_path / "torn.safetensors"
    save_file({key: torch.from_numpy(value).contiguous() for key, value in weights.items()}, path)
    with pytest.raises(CheckpointError, match=r"blocks.2.attention.qkv_projection differ"):
        load(path)


def test_positions_of_another_size(tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path)
    told = {"num_heads": 2, "image_size": [8, 12]}
    trained = load(path, **told)
    same = load(path, **told, resize_positions=[8, 12])
    image = torch.rand(1, 3, 8, 12)
    torch.testing.assert_close(same.network(image), trained.network(image))
    wider = load(path, **told, resize_positions=[12, 20])
    assert wider.facts.sides == {"height": 12, "width": 20}
    assert wider.warnings[0].startswith("its positions for 8x12 pixels are resized to 12x20, which")
    assert wider.facts.preprocessing is not None
    assert wider.facts.preprocessing.size == (12, 20)
    assert wider.network(torch.rand(1, 3, 12, 20)).shape == (1, 5)
    with pytest.raises(NystraError, match="not a multiple of the patches of 2 pixels"):
        load(path, **told, resize_positions=[9, 12])


def test_a_constant_of_the_positions_stays(tmp_path: Path) -> None:
    from nystra.models.vit.positions import resize_positions

    positions = torch.full((1, 25, 3), 0.5)
    positions[:, 0] = 7.0  # the class token's
    made = resize_positions(positions, (4, 6), (6, 5))
    assert made.shape == (1, 31, 3)
    torch.testing.assert_close(made[:, 1:], torch.full((1, 30, 3), 0.5))
    assert torch.equal(made[:, 0], positions[:, 0])


def test_linformer_takes_fewer_tokens_and_no_more(tmp_path: Path) -> None:
    path = tiny_checkpoint(tmp_path, attention="linformer", linformer_k=4)
    told = {"num_heads": 2, "image_size": [8, 12]}
    assert load(path, **told, resize_positions=[8, 8]).facts.sides == {"height": 8, "width": 8}
    with pytest.raises(NystraError, match="for 25 tokens at most, these are 37"):
        load(path, **told, resize_positions=[12, 12])
