"""Checkpoints that spandrel reads: loaded safely, exported for any size, refused with reasons."""

import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nystra.cli.main import main
from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.attention.site import find_sites
from nystra.export.load.module_sites import with_found_sites
from nystra.models.loading import load
from nystra.models.registry import find_architecture
from nystra.models.sites import WindowSite
from nystra.runtime.session import Session
from shared import hide_spandrel
from studies.networks.small import build, lively, save_small

spandrel = pytest.importorskip("spandrel", reason="the extra spandrel is not installed")

pytestmark = [  # spandrel's networks are built by it in here too
    pytest.mark.filterwarnings("ignore:torch.meshgrid"),
    pytest.mark.filterwarnings("ignore:Initializing zero-element"),
]

QUICK = ExportOptions(speed=False)


def own_call(path: Path, image: np.ndarray) -> np.ndarray:
    """Return the output of spandrel's own call for an image."""
    state = torch.load(path, weights_only=True)["params"]
    descriptor = spandrel.ModelLoader().load_from_state_dict(state).eval()
    return descriptor(torch.from_numpy(image)).numpy()


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape).astype(np.float32)


@pytest.fixture(scope="module")
def compact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small("Compact", tmp_path_factory.mktemp("compact") / "a.pth", upscale=2)


def test_facts_come_from_the_descriptor(compact: Path) -> None:
    loaded = load(compact)
    facts = loaded.facts
    assert (facts.architecture, facts.scale) == ("spandrel:Compact", 2)
    assert (facts.input_channels, facts.output_channels, facts.range) == (3, 3, (0.0, 1.0))
    assert (facts.size_multiple, facts.size_minimum, facts.tiling) == (1, 1, "supported")
    assert find_sites(loaded.network) == []


def licensed(compact: Path, folder: Path) -> Path:
    """Return the same checkpoint with a license."""
    state = torch.load(compact, weights_only=True)["params"]
    save_file(state, folder / "a.safetensors", {"nystra": '{"license": "CC-BY-NC-SA-4.0"}'})
    return folder / "a.safetensors"


@pytest.mark.full
def test_an_export_runs_at_any_size_and_says_as_trained(compact: Path, tmp_path: Path) -> None:
    result = export_model(licensed(compact, tmp_path), tmp_path, QUICK)
    assert result.model.name == "a_2x_dynamic_fp32_op20_as_trained.onnx"
    assert any("CC-BY-NC-SA-4.0, forbids commercial use" in text for text in result.warnings)
    image = noise(1, 3, 21, 10)
    got = Session(result.model, library=None)(image)
    assert np.abs(np.clip(got, 0, 1) - own_call(compact, image)).max() < 1e-5


def test_linear_attention_is_refused_where_there_is_none(compact: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="no attention that nystra replaces"):
        export_model(compact, compact.parent, ExportOptions(Plan(default=mechanism("nystra"))))


@pytest.mark.full
def test_inspect_tells_which_attention_is_replaced(
    compact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(compact)]) == 0
    assert "no attention that nystra replaces: the network is exported" in capsys.readouterr().out
    windows = save_small("Swin2SR", tmp_path / "a.pth")
    assert main(["inspect", str(windows), "--attn", "cluster"]) == 0
    text = capsys.readouterr().out
    assert "spandrel:Swin2SR" in text
    sites = [line for line in text.splitlines() if " cluster " in line]
    assert len(sites) == 2


@pytest.mark.full
def test_a_network_that_spandrel_pads_is_called_at_the_sizes_that_it_states(tmp_path: Path) -> None:
    """CRAFT takes any size and pads otherwise than spandrel does in front of it."""
    given = load(save_small("CRAFT", tmp_path / "a.pth")).network.given
    assert given.outputs_for([torch.rand(1, 3, 24, 32)]) is None
    assert given.outputs_for([torch.rand(1, 3, 32, 32)]) is not None


def test_hyper_parameters_cannot_be_given(compact: Path) -> None:
    with pytest.raises(NystraError, match="from the tensors, so window_size does not apply"):
        load(compact, window_size=8)


def test_what_spandrel_refuses(compact: Path, tmp_path: Path) -> None:
    state = torch.load(compact, weights_only=True)["params"]
    del state["body.2.bias"]
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(UnsupportedModelError, match=r"Compact and refuses .*body\.2"):
        load(tmp_path / "a.pth")


def test_spandrel_is_handed_tensors_and_no_file(
    compact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[object] = []
    canonical = spandrel.canonicalize_state_dict

    def looked_at(state: dict[str, object]) -> object:
        handed.extend(state.values())
        return canonical(state)

    monkeypatch.setattr(spandrel, "canonicalize_state_dict", looked_at)
    monkeypatch.setattr(spandrel, "ModelLoader", None)  # which would open files by itself
    load(compact)
    assert handed
    assert all(isinstance(value, torch.Tensor) for value in handed)


def test_a_key_that_counts_without_bounds_is_refused(compact: Path, tmp_path: Path) -> None:
    state = torch.load(compact, weights_only=True)["params"]
    state["body.123456789.weight"] = torch.zeros(1)
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="has an index above 4096"):
        load(tmp_path / "a.pth")


def test_licenses_are_shown(compact: Path, tmp_path: Path) -> None:
    (warning,) = load(licensed(compact, tmp_path)).warnings
    assert warning == "the license of the weights, CC-BY-NC-SA-4.0, forbids commercial use"


def test_architectures_of_restricted_code_say_so(
    compact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = spandrel.MAIN_REGISTRY["Compact"]
    more = types.ModuleType("spandrel_extra_arches")
    more.__spec__ = types.SimpleNamespace(name="spandrel_extra_arches")  # type: ignore[assignment]
    more.EXTRA_REGISTRY = [own]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spandrel_extra_arches", more)
    assert "spandrel_extra_arches, whose licenses restrict" in " ".join(load(compact).warnings)


def test_our_own_network_reads_what_both_read() -> None:
    state = build("SwinIR").state_dict()
    assert find_architecture(state).name == "swinir"


def test_without_spandrel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_spandrel(monkeypatch)
    state = {"body.0.rdb1.conv1.weight": torch.zeros(1)}
    with pytest.raises(UnsupportedModelError, match=r"RRDBNet.*pip install .*'spandrel"):
        find_architecture(state)


@pytest.mark.full
def test_low_precision_is_measured(tmp_path: Path) -> None:
    path = save_small("ESRGAN", tmp_path / "a.pth")
    result = export_model(path, tmp_path, ExportOptions(speed=False, precision="fp16"))
    assert result.validation.passed
    with pytest.raises(UnsupportedModelError, match="no part of this network can be bf16"):
        export_model(path, tmp_path, ExportOptions(speed=False, precision="bf16"))


@pytest.mark.release
def test_exports_are_byte_equal(tmp_path: Path) -> None:
    path = save_small("DRCT", tmp_path / "a.pth")
    models = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        models.append(export_model(path, tmp_path / folder, QUICK).model.read_bytes())
    assert models[0] == models[1]


@pytest.mark.full
@pytest.mark.parametrize("name", ["SAFMN", "SeemoRe", "HVICIDNet"])
def test_adapters_compute_what_spandrel_does(tmp_path: Path, name: str) -> None:
    loaded = load(save_small(name, tmp_path / "a.pth"))
    compute_the_same(loaded.network, name, (64, 64), (45, 70))


def compute_the_same(
    network: nn.Module, name: str, *sizes: tuple[int, int], **changes: Any
) -> None:
    """Compare a network with spandrel's own call."""
    descriptor = descriptor_of(name, **changes)
    for size in sizes:
        image = torch.from_numpy(noise(1, 3, *size))
        with torch.no_grad():
            got = network(image).clamp(0, 1)
        torch.testing.assert_close(got, descriptor(image), rtol=0, atol=2e-5)


def descriptor_of(name: str, **changes: Any) -> Any:
    """Return a small network as spandrel loads it."""
    state = lively(build(name, **changes).state_dict())
    return spandrel.ModelLoader().load_from_state_dict(state).eval()


@dataclass(frozen=True)
class Windows:
    """Windows of the published code.

    Attributes:
        path: Path of their module.
        window: Rows and columns.
        shift: Rows and columns.
        heads: Heads, and channels of each.
    """

    path: str
    window: tuple[int, int]
    shift: tuple[int, int]
    heads: tuple[int, int]


def given(module: Any, _network: Any) -> Tensor:
    return module.relative_position_bias_table


def by_sigmoid(module: Any, _network: Any) -> Tensor:
    """Return the table of Swin2SR (arXiv 2209.11345): 16 times the sigmoid of a small network."""
    numbers = module.cpb_mlp(module.relative_coords_table)
    return 16 * torch.sigmoid(numbers.reshape(-1, numbers.shape[-1]))


def by_shared_offsets(module: Any, network: Any) -> Tensor:
    """Return the table of GRL (arXiv 2303.00748), as that of Swin2SR of offsets of the network."""
    numbers = module.attn_transform.cpb_mlp(network.table_w)
    return 16 * torch.sigmoid(numbers.reshape(-1, numbers.shape[-1]))


def by_network(module: Any, _network: Any) -> Tensor:
    """Return the table of DAT and RGT: what a small network makes of the offsets."""
    return module.pos(module.rpe_biases)


def by_heads(module: Any, _network: Any) -> Tensor:
    """Return the table of SCUNet, which has the heads first."""
    return module.relative_position_params.flatten(1).T


def two_rectangles() -> list[Windows]:
    """Return the windows of DAT and RGT: of rows x columns and of columns x rows."""
    return [
        Windows(f"layers.0.blocks.{block}.attn.attns.{n}", window, shift, (1, 16))
        for block, moved in ((0, 0), (2, 1))
        for n, (window, shift) in enumerate(
            [((4, 8), (2 * moved, 4 * moved)), ((8, 4), (4 * moved, 2 * moved))]
        )
    ]


PUBLISHED = {
    "SCUNet": (
        by_heads,
        [
            Windows(f"{stage}.{first + n}.trans_block.msa", (8, 8), (n * 4,) * 2, (heads, 32))
            for stage, first, heads in [
                ("m_down1", 0, 1),
                ("m_down2", 0, 2),
                ("m_down3", 0, 4),
                ("m_body", 0, 8),
                ("m_up3", 1, 4),
                ("m_up2", 1, 2),
                ("m_up1", 1, 1),
            ]
            for n in range(2)
        ],
    ),
    "DRCT": (
        given,
        [
            Windows(f"layers.0.swin{n + 1}.attn", (8, 8), (n % 2 * 4,) * 2, (2, 12 + 4 * n))
            for n in range(5)
        ],
    ),
    "Swin2SR": (
        by_sigmoid,
        [
            Windows(f"layers.0.residual_group.blocks.{n}.attn", (8, 8), (4 * n,) * 2, (2, 12))
            for n in range(2)
        ],
    ),
    "GRL": (
        by_shared_offsets,
        [
            Windows(
                f"layers.{layer}.blocks.{n}.attn.window_attn", (32, 32), (16 - 16 * n,) * 2, (2, 8)
            )
            for layer in range(2)
            for n in range(2)
        ],
    ),
    "DAT": (by_network, two_rectangles()),
    "RGT": (by_network, two_rectangles()),
}
"""Network -> how its tables of position biases are made, and its windows."""
SHIFTED = {name: {"depth": [3], "split_size": [4, 8]} for name in ("DAT", "RGT")}
"""Network -> arguments that add a shifted block to a small network without one."""


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.release] * (name in ("GRL", "SCUNet", "DAT", "DRCT")))
        for name in PUBLISHED
    ],
)
def test_found_sites_are_the_windows_of_the_published_code(name: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = SHIFTED.get(name, {})
    loaded = load(save_small(name, tmp_path / "a.pth", **changes))
    sizes = (64, 64), (45, 70)
    if name == "RGT":  # PyTorch traces it for one size only
        loaded, sizes = replace(loaded, facts=loaded.facts.fix_lengths((1, 3, 32, 32))), ((32, 32),)
    found = with_found_sites(loaded)
    published = descriptor_of(name, **changes).model
    table, windows = PUBLISHED[name]
    sites = [site for site in find_sites(found.network) if isinstance(site.module, WindowSite)]
    sites.sort(key=lambda site: site.path)
    windows = sorted(windows, key=lambda expected: f"network.{expected.path}")
    for site, expected in zip(sites, windows, strict=True):
        geometry = site.module.geometry
        assert site.path == f"network.{expected.path}"
        assert (geometry.window, geometry.shift) == (expected.window, expected.shift)
        assert geometry.masked == any(expected.shift)
        assert (geometry.heads, geometry.head_dim) == expected.heads
        assert geometry.value_dim == geometry.head_dim
        module = published.get_submodule(expected.path)
        torch.testing.assert_close(
            site.module.bias_table(), table(module, published).detach(), rtol=1e-6, atol=1e-6
        )
    compute_the_same(found.network, name, *sizes, **changes)


@pytest.mark.release
def test_windows_longer_than_the_first_images_are_found(tmp_path: Path) -> None:
    """The network pads maps to 32: on small ones a window is as high as the map."""
    path = save_small("DAT", tmp_path / "a.pth", split_size=[8, 32], depth=[1])
    found = with_found_sites(load(path))
    windows = [site.module.geometry.window for site in find_sites(found.network)]
    assert windows == [(8, 32), (32, 8)]


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        pytest.param("DAT", "full", marks=pytest.mark.release),
        pytest.param("SCUNet", "nystra", marks=pytest.mark.release),
        pytest.param("GRL", "cluster", marks=pytest.mark.release),
        pytest.param("DRCT", "cluster", marks=pytest.mark.release),
        pytest.param("RGT", "cluster", marks=pytest.mark.full),
    ],
)
def test_mechanisms_serve_windows(tmp_path: Path, name: str, attention: str) -> None:
    path = save_small(name, tmp_path / "a.pth")
    plan = Plan(default=mechanism(attention))
    static = (1, 3, 32, 32) if name == "RGT" else None
    result = export_model(path, tmp_path, ExportOptions(plan, speed=False, static=static))
    assert result.validation.passed
    used = {site.name for site in result.source.resolved.values()}
    assert attention in used
