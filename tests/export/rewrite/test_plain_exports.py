"""Plain exports of both exporters of PyTorch give the same output with nystra's nodes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn
from torch.export import Dim

import found_toys as toys
from nystra.export import ExportOptions, Plan, export_model, mechanism, replacement_timing
from nystra.export.attention.site import find_sites
from nystra.export.load.onnx_file import load_onnx
from nystra.export.rewrite.site_modules import ignore_scores
from nystra.plugins.domain import DOMAIN
from onnx_files import window_attention
from plain_onnxruntime import in_onnxruntime
from studies.performance.plain_exports import PUBLISHED, SMALL, Plain, write_plain

FULL = ExportOptions(plan=Plan(mechanism("full")), speed=False)
LINEAR = ExportOptions(plan=Plan(mechanism("nystra", landmarks=(2, 2))), speed=False)
FREE_SIZES = [(64, 64), (96, 64), (64, 160)]
EXPORTERS = [
    ("script", 13),
    ("script", 16),
    ("script", 17),
    ("script", 20),
    ("dynamo", 18),
    ("dynamo", 20),
]
WITH_EVERY_CHANGE = {
    ("DAT", "script", 17, "free"),
    ("swin_t", "script", 17, "fixed"),
    ("vit_b_16", "dynamo", 20, "batch"),
}


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every replacement be measured as fast."""
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])


def difference(first: Path, second: Path, *size: int, batch: int = 1) -> float:
    """The largest difference of two files in plain onnxruntime, relative to the largest value."""
    image = np.random.default_rng(0).random((batch, 3, *size)).astype(np.float32)
    one, other = (in_onnxruntime(path, image) for path in (first, second))
    return float(np.abs(one - other).max() / np.abs(other).max())


def has_batch_baked_in(model: Path, side: int) -> bool:
    """Whether a file of two images gives another output for them in a batch of three."""
    images = np.random.default_rng(0).random((3, 3, side, side)).astype(np.float32)
    two, three = in_onnxruntime(model, images[:2]), in_onnxruntime(model, images)
    return float(np.abs(two - three[:2]).max() / np.abs(two).max()) > 1e-3


def rows() -> list[Any]:
    """Every network, exporter, opset and what is free, where PyTorch writes a file."""
    listed = []
    for (name, plain), (exporter, opset), sizes in product(
        SMALL.items(), EXPORTERS, ("fixed", "batch", "free")
    ):
        if plain.fixed_only and sizes == "free":
            continue
        if name == "vit_b_16" and opset < 14:  # its attention is written from 14 on
            continue
        row = (name, exporter, opset, sizes)
        mark = pytest.mark.full if row in WITH_EVERY_CHANGE else pytest.mark.release
        listed.append(pytest.param(*row, marks=mark))
    return listed


def halve_weights(model: onnx.ModelProto) -> None:
    """Store the weights of a float32 model in half precision, in place."""
    casts = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            name = tensor.name
            half = numpy_helper.from_array(array.astype(np.float16), f"{name}_half")
            tensor.CopyFrom(half)
            casts.append(helper.make_node("Cast", [half.name], [name], to=1))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def does_what_it_did(plain: Plain, theirs: Path, sizes: str) -> None:
    result = export_model(theirs, theirs.with_name("ours.onnx"), FULL)
    network: Any = result.source.loaded.network
    sites, side = plain.sites, (plain.side, plain.side)
    if sizes == "batch" and has_batch_baked_in(theirs, plain.side):
        assert any("run at batch 1 only" in text for text in result.warnings)
        assert difference(result.model, theirs, *side, batch=1) < 1e-5
        return
    assert sum(len(item.sites) for item in network.replacements) == sites
    assert not network.kept_as_is
    nodes = sum(node.domain == DOMAIN for node in onnx.load(result.model).graph.node)
    assert nodes == (sites if plain.kind == "map" else 0)  # tokens: standard operators
    for size in FREE_SIZES if sizes == "free" else [side]:
        for batch in (1, 3) if sizes == "batch" else (1,):
            assert difference(result.model, theirs, *size, batch=batch) < 1e-5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "exporter", "opset", "sizes"), rows())
def test_a_plain_export_does_what_it_did(
    name: str, exporter: str, opset: int, sizes: str, tmp_path: Path
) -> None:
    plain = SMALL[name]
    pytest.importorskip(plain.library)
    theirs = write_plain(plain, exporter, opset, sizes, tmp_path / "theirs.onnx")
    does_what_it_did(plain, theirs, sizes)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", SMALL)
def test_a_plain_export_with_weights_of_half_precision_does_what_it_did(
    name: str, exporter: str, tmp_path: Path
) -> None:
    plain = SMALL[name]
    pytest.importorskip(plain.library)
    theirs = write_plain(plain, exporter, 18, "fixed", tmp_path / "theirs.onnx")
    model = onnx.load(theirs)
    halve_weights(model)
    onnx.save(model, theirs)
    does_what_it_did(plain, theirs, "fixed")


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("exporter", "opset"), [("script", 17), ("dynamo", 20)])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_plain_export_of_a_published_network_does_what_it_did(
    name: str, exporter: str, opset: int, tmp_path: Path
) -> None:
    plain = PUBLISHED[name]
    pytest.importorskip(plain.library)
    theirs = write_plain(plain, exporter, opset, "fixed", tmp_path / "theirs.onnx")
    does_what_it_did(plain, theirs, "fixed")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_attention_beside_a_class_token_is_found(tmp_path: Path) -> None:
    """Its queries, keys and values are flattened inside one MatMul."""
    pytest.importorskip("torchvision")
    path = write_plain(SMALL["vit_b_16"], "script", 17, "fixed", tmp_path / "theirs.onnx")
    loaded = load_onnx(path, {})
    sites = find_sites(loaded.network)
    assert [site.path for site in sites] == [
        f"encoder.layers.encoder_layer_{n}.self_attention" for n in (0, 1)
    ]
    assert [site.module.geometry.query_grid for site in sites] == [(4, 4)] * 2
    image = np.random.default_rng(0).random((1, 3, 64, 64)).astype(np.float32)
    with torch.no_grad():
        got = loaded.network(torch.from_numpy(image)).numpy()
        np.testing.assert_allclose(got, in_onnxruntime(path, image), atol=1e-5)
        for site in sites:
            ignore_scores(site.module)
        assert np.abs(loaded.network(torch.from_numpy(image)).numpy() - got).max() > 1e-3


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_attention_beside_a_class_token_is_made_linear(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    path = write_plain(SMALL["vit_b_16"], "script", 17, "batch", tmp_path / "theirs.onnx")
    result = export_model(path, tmp_path / "ours.onnx", LINEAR)
    assert result.validation.passed
    assert [site.name for site in result.source.resolved.values()] == ["nystra"] * 2
    assert difference(result.model, path, 64, 64, batch=3) > 1e-4  # it is another mechanism


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
def test_scores_that_are_cut_for_a_mask_of_free_sides_are_served(tmp_path: Path) -> None:
    toy = toys.lively(toys.PairsBesideRegions())
    network = nn.Sequential(toy, nn.Conv2d(16, 3, 3, padding=1)).eval()
    axes = {0: Dim.DYNAMIC, 2: 4 * Dim("rows"), 3: 4 * Dim("columns")}
    path = tmp_path / "theirs.onnx"
    torch.onnx.export(
        network,
        (torch.rand(2, 3, 16, 24),),
        path,
        dynamo=True,
        dynamic_shapes=((axes,)),
        external_data=False,
        verbose=False,
    )
    result = export_model(path, tmp_path / "ours.onnx", LINEAR)
    assert [site.name for site in result.source.resolved.values()] == ["nystra"]
    exact = load_onnx(path, {}).network
    image = np.random.default_rng(0).random((3, 3, 24, 40)).astype(np.float32)
    with torch.no_grad():
        got = exact(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(got, in_onnxruntime(path, image), atol=1e-5)
    assert difference(result.model, path, 24, 40, batch=3) > 1e-4  # it is another mechanism


@pytest.mark.full
def test_a_file_with_weights_of_half_precision_does_what_it_did(tmp_path: Path) -> None:
    plain = window_attention(tmp_path / "theirs.onnx", change=halve_weights)
    result = export_model(plain, tmp_path / "ours.onnx", FULL)
    assert any(node.domain == DOMAIN for node in onnx.load(result.model).graph.node)
    assert all(difference(result.model, plain, *size) < 1e-5 for size in [(32, 32), (24, 40)])
