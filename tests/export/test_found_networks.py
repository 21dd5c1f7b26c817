"""Sites found in networks of other libraries, through a whole export."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

import found_toys as toys
from later import full, release
from nystra.core.errors import ExportError, NystraError, TraceError, UnsupportedModelError
from nystra.export import (
    ExportOptions,
    Plan,
    export_model,
    export_module,
    mechanism,
    replacement_timing,
)
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.site import find_sites, swap
from nystra.export.execute.sized import Sized
from nystra.export.load import searching
from nystra.export.load.module_sites import with_found_sites
from nystra.export.load.network import load_fixed
from nystra.export.load.source import load_source
from nystra.export.report.figures import figures_of
from nystra.export.tracing.site_graph import trace_network
from nystra.models import loading
from nystra.models.own.network import OwnNetwork
from nystra.runtime import Session
from nystra.runtime.model.onnx_header import read_onnx_header

CLUSTER = ExportOptions(Plan(mechanism("cluster", clusters=(2, 2), block=4)), speed=False)
EXACT = ExportOptions(Plan(mechanism("full")), speed=False)


class Restorer(nn.Module):
    """A restoration network around a toy's attention."""

    def __init__(self, toy: nn.Module) -> None:
        super().__init__()
        self.body, self.last = toy, nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        restored: Tensor = x + 0.1 * self.last(self.body(x))
        return restored


def test_a_network_without_softmax_is_left_alone() -> None:
    loaded = loading.load(OwnNetwork.of(nn.Conv2d(3, 3, 3, padding=1)))
    assert with_found_sites(loaded) is loaded


def test_a_network_with_sites_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "nystra.export.load.module_sites.find_sited_graph",
        lambda *_: pytest.fail("it was looked for"),
    )
    loaded = loading.load("swinir_x2_w16")
    assert with_found_sites(loaded) is loaded


@pytest.mark.full
def test_a_network_that_cannot_be_traced_keeps_its_attention_and_says_why() -> None:
    class Choosing(toys.RearrangedByHand):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.mean() > 2 else -x)

    loaded = loading.load(OwnNetwork.of(Restorer(toys.lively(Choosing()))))
    found = with_found_sites(loaded)
    assert found.network is loaded.network
    text = found.warnings[-1]
    assert text.startswith("its attention stays as trained: there is no graph of it for any size")
    assert "branches on the values of a tensor" in text


@pytest.mark.full
def test_a_copy_keeps_hooks() -> None:
    loaded = loading.load(OwnNetwork.of(Restorer(toys.lively(toys.RearrangedByHand()))))
    network = with_found_sites(loaded).network
    network.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 0,))
    image = torch.rand(1, 3, 16, 16)
    expected = loaded.network(image * 0)
    assert torch.equal(copy.deepcopy(network)(image), expected)
    assert torch.equal(
        swap(network, {site.path: Full() for site in find_sites(network)})(image), expected
    )


@pytest.mark.full
def test_a_network_that_asks_for_the_size_of_its_training_is_traced_for_any() -> None:
    """Sides of 63 are padded to a multiple of 8."""

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.pixel_shuffle(nn.functional.pixel_unshuffle(x, 8), 8)
            return self.conv(x) if x.shape[2] == 64 else self.conv(x) * 1.0

    loaded = loading.load(OwnNetwork.of(Trained()))
    graph = trace_network(loaded.network, loaded.facts, 20).write_mechanisms({}).graph
    assert [bool(side.dim_param) for side in graph.input[0].type.tensor_type.shape.dim[2:]] == [
        True,
        True,
    ]


@pytest.mark.full
def test_a_network_of_ones_own_is_exported_with_the_sites_that_are_found(tmp_path: Path) -> None:
    network = Restorer(toys.lively(toys.RearrangedByHand()))
    result = export_module(network, tmp_path / "m.onnx", CLUSTER)
    assert result.validation.passed
    resolved = result.source.resolved
    assert {path: site.name for path, site in resolved.items()} == {"network.body": "cluster"}


@pytest.mark.full
def test_the_window_that_is_found_is_a_fact_of_the_network() -> None:
    network = OwnNetwork.of(Restorer(toys.lively(toys.RearrangedByHand())))
    loaded = load_fixed(network, replace(CLUSTER.plan, window=(8, 8)), {}, None)
    assert loaded.facts.window == (8, 8)
    with pytest.raises(NystraError, match="the plan is for the window 4x4, the network has 8x8"):
        load_fixed(network, replace(CLUSTER.plan, window=(4, 4)), {}, None)


def operators(model: Path) -> set[str]:
    return {node.op_type for node in onnx.load(model).graph.node if node.domain == "nystra"}


@pytest.mark.full
def test_exact_sites_stay_where_they_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])
    network = Restorer(toys.lively(toys.SharedWeights()))
    result = export_module(network, tmp_path / "m.onnx", EXACT)
    assert operators(result.model) == {"NystraWindowSoftmax"}
    assert result.validation.passed
    assert not any("stay" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("refused", "times", "reason"),
    [
        *full((False, [[[1.0], [1.5]]], "nystra's node took 1.50 times as long")),
        *release(
            (True, [[[1.0], [1.2]]], "the whole file took 1.20 times as long"),
            (False, [[[1.0, 2.0, 2.0], [1.5, 2.0, 2.0]]], "node took 1.00 to 1.50 times as long"),
        ),
    ],
)
def test_exact_sites_that_do_not_pay_give_way_to_the_network_s_own_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool, times: Any, reason: str
) -> None:
    """The whole is timed if a piece has no graph."""

    def refusing(*_: object, **__: object) -> onnx.ModelProto:
        raise ExportError("it is this piece")

    if refused:
        monkeypatch.setattr(replacement_timing, "_piece", refusing)
    timed = iter(times)
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: next(timed))
    network = Restorer(toys.lively(toys.SharedWeights()))
    seen: list[str] = []
    result = export_module(network, tmp_path / "m.onnx", EXACT, seen.append)
    assert operators(result.model) == set()
    assert dict(figures_of(result))["attention"] == "2 sites not replaced"
    assert (result.nystra_nodes, set(result.unchanged)) == (0, set(result.source.resolved))
    assert result.validation.passed
    assert list(timed) == []  # what is of one kind is timed once
    (text,) = (text for text in result.warnings if reason in text)
    assert text.startswith("2 sites (first network.body.attention_0) not replaced, unchanged")
    assert all(reason in site.reason for site in result.source.resolved.values())
    assert "1/1 time the attention of the network" in seen


@pytest.mark.parametrize("toy", [*full("SharedWeights"), *release("ShiftedWithBooleanMask")])
def test_pieces_compute_the_same(toy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of it, scores too: some graphs ask them for their sizes."""
    results: list[np.ndarray] = []

    def computed(timed: replacement_timing.Timed, _: float) -> list[list[float]]:
        assert "Softmax" in {node.op_type for node in timed.own.graph.node}
        for model in (timed.own, timed.replaced):
            onnx.save(model, tmp_path / "piece.onnx")
            feeds = {value.name: timed.feeds[value.name] for value in model.graph.input}
            (value,) = Session(tmp_path / "piece.onnx").run(feeds).values()
            results.append(value)
        return [[2.0], [1.0]]

    monkeypatch.setattr(replacement_timing, "_time_in_turns", computed)
    network = Restorer(toys.lively(getattr(toys, toy)()))
    export_module(network, tmp_path / "m.onnx", EXACT)
    piece, own_piece = results  # the whole is not: a trace of it takes longer than all else
    np.testing.assert_allclose(piece, own_piece, atol=1e-5 * np.abs(own_piece).max(), rtol=0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("toy", "size", "searched"),
    [("RearrangedByHand", (64, 96), (16, 24)), ("StridedSlices", (8, 12), (8, 12))],
)
def test_a_file_of_one_size_is_searched_at_small_images(
    toy: str,
    size: tuple[int, int],
    searched: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its own size where no graph for any size shows what its attention is."""
    sizes: list[tuple[int, ...]] = []
    taken = searching.at_shapes

    def at_shapes(model: ir.Model, shapes: dict[str, tuple[int, ...]]) -> Sized:
        sizes.append(next(iter(shapes.values()))[2:])
        return taken(model, shapes)

    monkeypatch.setattr(searching, "at_shapes", at_shapes)
    network = Restorer(toys.lively(getattr(toys, toy)()))
    plan = Plan(mechanism("cluster", clusters=(2, 2), block=2))
    options = replace(CLUSTER, plan=plan, static=(1, 3, *size))
    result = export_module(network, tmp_path / "m.onnx", options)
    assert sizes[0 if searched != size else -1] == searched
    assert result.validation.passed
    assert {site.name for site in result.source.resolved.values()} == {"cluster"}
    (image,) = onnx.load(result.model).graph.input
    assert [side.dim_value for side in image.type.tensor_type.shape.dim] == [1, 3, *size]


@pytest.mark.full
def test_equal_modules_are_traced_each_where_one_trace_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusing(*_: object) -> None:
        raise KeyError("it is this one")

    monkeypatch.setattr("nystra.export.tracing.repeats.Repeats.list_calls", refusing)
    loaded = loading.load(OwnNetwork.of(Restorer(toys.lively(toys.RearrangedByHand()))))
    seen: list[str] = []
    found = with_found_sites(loaded, seen.append)
    assert len(find_sites(found.network)) == 1
    assert seen[-1].startswith(
        "find attention without reuse of equal modules: 'it is this one' (test_found_networks.py"
    )


@pytest.mark.parametrize("wrap", [*full(nn.Module.half), *release(torch.compile, nn.DataParallel)])
def test_attention_of_a_wrapped_or_half_network_is_found(
    wrap: Callable[[nn.Module], nn.Module],
) -> None:
    loaded = loading.load(OwnNetwork.of(wrap(Restorer(toys.lively(toys.RearrangedByHand())))))
    network = with_found_sites(loaded).network
    assert [site.path for site in find_sites(network)] == ["network.body"]
    image = torch.rand(1, 3, 24, 40)
    torch.testing.assert_close(network(image), loaded.network(image), rtol=0, atol=1e-5)


@pytest.mark.full
def test_a_graph_that_cannot_be_traced_again_is_exported_as_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object, **__: object) -> onnx.ModelProto:
        raise TraceError("PyTorch could not trace the network: it is this one")

    monkeypatch.setattr("nystra.export.rewrite.mechanisms._trace_mechanism", refusing)
    network = Restorer(toys.lively(toys.RearrangedByHand()))
    result = export_module(network, tmp_path / "m.onnx", CLUSTER)
    assert result.validation.passed
    assert result.source.resolved == {}
    text = (
        "the attention that was found stays as trained; replacing it failed: "
        "PyTorch could not trace the network: it is this one"
    )
    assert text in result.warnings


@pytest.mark.full
def test_a_network_without_found_sites_that_cannot_be_traced_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object, **__: object) -> onnx.ModelProto:
        raise TraceError("it is this one")

    monkeypatch.setattr("nystra.export.sited_graph.trace_network", refusing)
    with pytest.raises(TraceError, match=r"^it is this one$"):
        export_module(nn.Conv2d(3, 3, 3, padding=1), tmp_path / "m.onnx")


@pytest.mark.full
def test_where_nothing_is_served_the_refusal_has_the_reasons(tmp_path: Path) -> None:
    network = Restorer(toys.lively(toys.Channels()))
    text = r"can replace no attention .*: attention stays as trained: its tokens are channels \("
    with pytest.raises(UnsupportedModelError, match=text):
        export_module(network, tmp_path / "m.onnx", CLUSTER)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
def test_windows_of_a_network_without_adapter(tmp_path: Path) -> None:
    pytest.importorskip("spandrel", reason="pip install 'nystra[spandrel]'")
    from studies.networks.small import save_small

    path = save_small("OmniSR", tmp_path / "a.pth")
    result = export_model(path, tmp_path / "m.onnx", CLUSTER)
    assert result.validation.passed
    assert [site.name for site in result.source.resolved.values()] == ["cluster", "cluster"]
    assert any("its tokens are channels" in text for text in result.warnings)
    metadata = read_onnx_header(result.model).metadata
    source = load_source(result.model, metadata, path, {})
    assert source.resolved.keys() == result.source.resolved.keys()
