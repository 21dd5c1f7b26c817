"""Checkpoints that spandrel reads: loaded safely, exported for any size, refused with reasons."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nystra.cli.main import main
from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.attention.site import find_sites
from nystra.models.loading import load
from nystra.models.registry import find_architecture
from nystra.models.spandrel.adapters.atd import StableSorts
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


def test_licences_are_shown(compact: Path, tmp_path: Path) -> None:
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


def test_equal_categories_keep_their_order() -> None:
    """ATD's sort of categories: an unstable sort changes it on wide vectors."""
    values = torch.arange(4096).flip(0) % 16
    with StableSorts():
        got = torch.sort(values, dim=-1, stable=False)
    want = torch.tensor(np.argsort(values.numpy(), kind="stable"))
    assert torch.equal(got.indices, want)
    assert torch.equal(got.values, values[want])


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
@pytest.mark.parametrize(
    ("name", "sites"),
    [
        ("DRCT", 5),
        ("Swin2SR", 2),
        pytest.param("SCUNet", 14, marks=pytest.mark.release),
        ("DAT", 2),
        ("RGT", 2),
        pytest.param("GRL", 4, marks=pytest.mark.release),
        ("SAFMN", 0),
        ("SeemoRe", 0),
        ("HVICIDNet", 0),
    ],
)
def test_adapters_compute_what_spandrel_does(tmp_path: Path, name: str, sites: int) -> None:
    path = save_small(name, tmp_path / "a.pth")
    loaded = load(path)
    assert len(find_sites(loaded.network)) == sites
    state = lively(build(name).state_dict())
    descriptor = spandrel.ModelLoader().load_from_state_dict(state).eval()
    for shape in ((1, 3, 64, 64), (1, 3, 45, 70)):
        image = torch.from_numpy(noise(*shape))
        with torch.no_grad():
            got = loaded.network(image).clamp(0, 1)
        torch.testing.assert_close(got, descriptor(image), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        pytest.param("DAT", "full", marks=pytest.mark.release),
        pytest.param("SCUNet", "nystra", marks=pytest.mark.release),
        pytest.param("DRCT", "cluster", marks=pytest.mark.release),
    ],
)
def test_mechanisms_serve_adapted_windows(tmp_path: Path, name: str, attention: str) -> None:
    path = save_small(name, tmp_path / "a.pth")
    plan = Plan(default=mechanism(attention))
    result = export_model(path, tmp_path, ExportOptions(plan, speed=False))
    assert result.validation.passed
    used = {site.name for site in result.source.resolved.values()}
    assert attention in used
