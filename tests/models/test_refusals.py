"""A checkpoint that no network reads: what was tried, and what can be done instead."""

import sys
import types
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nystra.core.errors import UnsupportedModelError
from nystra.models import load, registry
from nystra.models.registry import OTHERWISE, find_architecture

MAMBA = (  # of MambaIRv2-light: the names around the layers are those of SwinIR
    "conv_first.weight",
    "norm.weight",
    "upsample.0.weight",
    "layers.0.residual_group.layers.0.norm1.weight",
    "layers.0.residual_group.layers.0.assm.selectiveScan.x_proj_weight",
)


def refusal(keys: Iterable[str]) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        find_architecture({key: torch.zeros(1) for key in keys})
    return str(caught.value)


def found(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Pretend that these libraries, and no others of spandrel, are installed; they read nothing."""

    def spec(name: str) -> object:
        return name in libraries or (None if name.startswith("spandrel") else find_spec(name))

    monkeypatch.setattr(registry, "find_spec", spec)
    monkeypatch.setattr(registry, "ARCHITECTURES", registry.ARCHITECTURES[:-1])


def test_a_mamba_is_near_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch)
    assert "nearest" not in refusal(MAMBA)
    attention = "layers.0.residual_group.blocks.0.attn.qkv.weight"
    assert "the nearest is swinir" in refusal(
        [*MAMBA, attention]
    )  # all but its layers' second half


@pytest.mark.parametrize(
    ("libraries", "tried"),
    [
        ((), "spandrel, which reads many others, is not installed: pip install "),
        (
            ("spandrel",),
            "spandrel does not read it either (spandrel_extra_arches, which reads more, is ",
        ),
        (("spandrel", "spandrel_extra_arches"), "neither spandrel nor spandrel_extra_arches reads"),
    ],
)
def test_each_library_is_named_once(
    libraries: tuple[str, ...], tried: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, *libraries)
    text = refusal(MAMBA)
    assert tried in text
    command = text.partition("pip install")[2]  # names it again
    assert text.removesuffix(command).count("spandrel_extra_arches") <= 1
    assert "colorization, spandrel" not in text
    assert text.endswith(OTHERWISE)


def test_many_long_keys_do_not_hide_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch)
    text = refusal(f"stages.{number}." + "inner." * 50 + "weight" for number in range(2000))
    assert "its 2000 keys" in text
    assert len(text) < 600 + len(OTHERWISE)


def test_a_distillation_token_is_named(tmp_path: Path) -> None:
    """Its positions do not form a square for any image size."""
    keys = (
        "cls_token", "dist_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.norm1.weight",
        "blocks.0.mlp.fc1.weight", "head.weight", "head_dist.weight",
    )  # fmt: skip
    state = {key: torch.zeros(1) for key in keys} | {"pos_embed": torch.zeros(1, 198, 8)}
    save_file(state, tmp_path / "deit.safetensors")
    for hyper in ({}, {"image_size": [224, 224]}):
        with pytest.raises(UnsupportedModelError, match=r"a distillation token \(dist_token\)"):
            load(tmp_path / "deit.safetensors", **hyper)


def test_warnings_of_a_library_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Importing spandrel_extra_arches warns of torch.jit, which is unrelated to the file."""
    pytest.importorskip("spandrel", reason="the extra spandrel is not installed")
    (tmp_path / "spandrel_extra_arches.py").write_text(
        "import warnings\n"
        "warnings.warn('torch.jit.script is deprecated', FutureWarning)\n"
        "EXTRA_REGISTRY = []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "spandrel_extra_arches", raising=False)
    assert "neither spandrel nor spandrel_extra_arches" in refusal(["fc.weight"])
    module: types.ModuleType = sys.modules.pop("spandrel_extra_arches")
    assert module.EXTRA_REGISTRY == []
    assert not [warning for warning in recwarn if "torch.jit" in str(warning.message)]
