"""Networks with patch attention as model files: every size, several inputs, and ``nystra run``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file

from golden_cases import golden
from nystra.cli.main import main
from nystra.core.ports.examples import example_array
from nystra.core.ports.port import Port
from nystra.export import ExportOptions, ExportResult, Plan, export_model, mechanism
from nystra.export.attention.cost import count_operations, quadratic_bytes
from nystra.export.attention.site import find_sites, resolve
from nystra.models import load
from nystra.models.sites import PatchSite
from nystra.runtime import ImageData, Session, read_image, write_image
from patch_networks import BUILDERS, checkpoint, network_of

TOLERANCE = 2e-5


def exported(name: str, folder: Path, **more: Any) -> ExportResult:
    options = ExportOptions(speed=False, **more)
    return export_model(checkpoint(name, folder), folder / "m.onnx", options)


@pytest.fixture(scope="module")
def inpainting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = exported("inpainting", tmp_path_factory.mktemp("inpainting"))
    assert result.validation.passed
    return result.model


def inputs_of(name: str, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    arrays = [generator.random(shape, dtype=np.float32) for shape in shapes]
    if name == "inpainting":
        batch, _, height, width = shapes[1]
        mask = Port("mask", "mask", lengths={"channels": 1})
        arrays[1] = example_array(mask, {"batch": batch, "height": height, "width": width})
    return arrays


def compare(model: Path, name: str, shapes: list[list[tuple[int, ...]]]) -> None:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]
    network = network_of(name)
    for case in shapes:
        arrays = inputs_of(name, case)
        (got,) = session.run(None, dict(zip(names, arrays, strict=True)))
        with torch.no_grad():
            expected = network(*map(torch.from_numpy, arrays)).numpy()
        np.testing.assert_allclose(got, expected, atol=TOLERANCE, rtol=0, err_msg=str(case))


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_these_networks_show_what_their_attention_does(name: str) -> None:
    shapes: list[tuple[int, ...]] = [(1, 1 if name == "colorization" else 3, 64, 72)]
    shapes += {"inpainting": [(1, 1, 64, 72)], "colorization": [(1, 3, 20, 21)]}.get(name, [])
    if name.startswith("csnln"):
        shapes = [(1, 3, 12, 12)]
    network, tensors = network_of(name), [*map(torch.from_numpy, inputs_of(name, shapes))]
    with torch.no_grad():
        right = network(*tensors)
        for site in find_sites(network):
            if isinstance(site.module, PatchSite):
                wrong = replace(site.module.geometry, scale=0.9 * site.module.geometry.scale)
                site.module.geometry = wrong
        off = float((network(*tensors) - right).abs().max())
    assert off > 50 * TOLERANCE


def dimensions(value: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(2, marks=pytest.mark.full),
        pytest.param(3, marks=pytest.mark.release),
        pytest.param(4, marks=pytest.mark.release),
    ],
)
def test_csnln_takes_every_size(tmp_path: Path, scale: int) -> None:
    result = exported(f"csnln{scale}", tmp_path)
    assert result.validation.passed
    assert {site.name for site in result.source.resolved.values()} == {"full"}
    model = onnx.load(str(result.model))
    onnx.checker.check_model(model, full_check=True)
    assert dimensions(model.graph.output[0]) == ["batch", 3, f"{scale}*height", f"{scale}*width"]
    facts = Session(result.model).facts
    assert (facts.scale, facts.window, facts.tiling) == (scale, None, "supported")
    assert facts.quadratic_bytes == 20.0 * (16 if scale == 4 else 1)
    sizes = [(1, 1, 1), (2, 2, 3), (1, 5, 14), (3, 7, 4), (1, 12, 6)]
    compare(result.model, f"csnln{scale}", [[(b, 3, h, w)] for b, h, w in sizes])


@pytest.mark.release
def test_inpainting_takes_every_size(inpainting: Path) -> None:
    model = onnx.load(str(inpainting))
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["input", "mask"]
    assert dimensions(model.graph.input[1]) == ["batch", 1, "height", "width"]
    io = json.loads(Session(inpainting).metadata["nystra.io"])
    assert [port["role"] for port in io] == ["image", "mask", "picture"]
    facts = Session(inpainting).facts
    assert (facts.task, facts.tiling) == ("inpainting", "internal")
    assert [port.multiple for port in facts.inputs] == [8, 8]
    sizes = [(1, 1, 1), (2, 9, 16), (1, 64, 72), (2, 70, 41)]
    compare(inpainting, "inpainting", [[(b, 3, h, w), (b, 1, h, w)] for b, h, w in sizes])


@pytest.mark.full
def test_inpainting_on_the_command_line(
    tmp_path: Path, inpainting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (30, 41, 3)).astype(np.float32) / 255
    mask = np.zeros((30, 41, 1), np.float32)
    mask[8:20, 10:25] = 1
    write_image(tmp_path / "a.png", ImageData(pixels))
    write_image(tmp_path / "m.png", ImageData(mask))
    arguments = ["run", str(inpainting), "-i", str(tmp_path / "a.png"), "--threads", "1"]
    filled = ["--mask", str(tmp_path / "m.png"), "-o", str(tmp_path / "o.png")]
    assert main([*arguments, *filled]) == 0
    got = read_image(tmp_path / "o.png").pixels
    network = network_of("inpainting")
    tensors = [torch.from_numpy(array).permute(2, 0, 1)[None] for array in (pixels, mask)]
    with torch.no_grad():
        expected = network(*tensors)[0].permute(1, 2, 0).clamp(0, 1).numpy()
    np.testing.assert_allclose(got, expected, atol=0.51 / 255)
    outside = np.broadcast_to(mask == 0, pixels.shape)
    np.testing.assert_array_equal(got[outside], read_image(tmp_path / "a.png").pixels[outside])
    capsys.readouterr()
    assert main([*arguments, "-o", str(tmp_path / "p.png")]) == 2
    assert "--mask MASK.png" in capsys.readouterr().err
    assert main(["validate", str(inpainting), "--threads", "1"]) == 0


@pytest.mark.full
def test_colorization_takes_a_reference_of_any_size(tmp_path: Path) -> None:
    result = exported("colorization", tmp_path)
    assert result.validation.passed
    model = onnx.load(str(result.model))
    sides = ["batch", 3, "reference_height", "reference_width"]
    assert dimensions(model.graph.input[1]) == sides
    sizes = [((1, 1, 1, 1), (1, 3, 1, 1)), ((2, 1, 6, 9), (2, 3, 8, 5))]
    compare(result.model, "colorization", [list(case) for case in sizes])
    gray = np.random.default_rng(0).integers(0, 256, (9, 7, 1)).astype(np.float32) / 255
    write_image(tmp_path / "a.png", ImageData(gray))
    write_image(tmp_path / "r.png", ImageData(np.repeat(gray[:6], 3, 2)))
    given = ["run", str(result.model), "-i", str(tmp_path / "a.png"), "-o", str(tmp_path / "o.png")]
    assert main([*given, "--reference", str(tmp_path / "r.png"), "--threads", "1"]) == 0
    assert read_image(tmp_path / "o.png").pixels.shape == (9, 7, 3)


@pytest.mark.release
@pytest.mark.parametrize("case", ["csnln_x4", "inpaint_generator"])
def test_golden_weights(tmp_path: Path, case: str) -> None:
    weights = {key: torch.from_numpy(value) for key, value in golden(case).weights().items()}
    save_file(weights, tmp_path / "golden.safetensors")
    result = export_model(tmp_path / "golden.safetensors", tmp_path, ExportOptions(speed=False))
    assert result.validation.passed
    for report in result.validation.reports.values():
        shapes = [size["shapes"]["input"][2:] for size in report["sizes"]]
        assert len(shapes) == 3
        assert any(height != width for height, width in shapes)


@pytest.mark.full
def test_static_inpainting(tmp_path: Path) -> None:
    result = exported("inpainting", tmp_path, static=(1, 3, 24, 32))
    session = Session(result.model)
    assert [tensor.shape for tensor in session.inputs] == [(1, 3, 24, 32), (1, 1, 24, 32)]
    assert result.validation.passed


@pytest.mark.parametrize("attn", ["nystra", "nystromformer"])
@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_what_does_not_serve_patches_leaves_them_exact(name: str, attn: str) -> None:
    network = network_of(name)
    resolved = resolve(Plan(mechanism(attn)), network)
    sites = find_sites(network)
    assert resolved.keys() == {site.path for site in sites}
    for site in sites:
        one = resolved[site.path]
        if isinstance(network.get_submodule(site.path), PatchSite):
            assert one.name == "full"
            assert one.reason.startswith(f"{attn} does not support attention between patches")
        else:  # CSNLN's attention within one scale is between all pixels
            assert one.name == attn


def test_operations_are_counted_at_each_site(tmp_path: Path) -> None:
    loaded = load(checkpoint("csnln2", tmp_path))
    total, spent = count_operations(loaded.network, loaded.facts)
    up, down = spent.values()
    queries, keys = 32 * 32, 16 * 16
    assert up == 2 * queries * keys * (9 * 2 + 36 * 4)
    assert down == 2 * queries * queries * (2 + 4)
    assert up + down < total


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("csnln2", 20.0),  # in-scale: every pixel with every pixel
        ("csnln4", 20.0 * 16),  # the second projection works on the enlarged map
        ("inpainting", 15.0 / 64**2),  # an eighth of the image's side
        ("colorization", 20.0),
    ],
)
def test_how_memory_grows(name: str, expected: float, tmp_path: Path) -> None:
    loaded = load(checkpoint(name, tmp_path))
    resolved = resolve(Plan(), loaded.network)
    assert quadratic_bytes(loaded.network, loaded.facts, resolved) == expected


def test_inspect_lists_the_sites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(checkpoint("inpainting", tmp_path))]) == 0
    text = capsys.readouterr().out
    assert "contextual_attention, 1x, 3 channels, no window" in text
    assert "fine_generator.contextul_attention  any" in text
