"""The operations of ONNX files are counted as those of PyTorch networks."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, shape_inference
from torch.utils.flop_counter import FlopCounterMode

import found_toys as toys
from later import full
from nystra.cli.main import main
from nystra.export.attention.cost import (
    count_all_operations,
    count_graph_operations,
    count_operations,
    count_quadratic,
)
from nystra.export.load.onnx_file import load_onnx
from nystra.export.rewrite.graph_network import GraphNetwork
from nystra.models import load
from onnx_files import window_attention
from searched_graphs import of_any_size

ONES = (1, 1)
CASES = {
    "MatMul": ({}, [(2, 3, 4, 5), (2, 3, 5, 6)], torch.matmul),
    "Gemm": ({"transA": 1}, [(5, 4), (5, 6)], lambda a, b: a.T @ b),
    "Conv": (
        {"group": 2, "strides": [2, 1], "pads": [1, 1, 1, 1]},
        [(2, 4, 8, 6), (6, 2, 3, 3)],
        lambda x, w: torch.conv2d(x, w, None, (2, 1), ONES, ONES, 2),
    ),
    "ConvTranspose": (
        {"group": 2, "strides": [2, 2]},
        [(2, 4, 8, 6), (4, 3, 2, 2)],
        lambda x, w: torch.conv_transpose2d(x, w, None, (2, 2), (0, 0), (0, 0), 2),
    ),
    "Einsum": (
        {"equation": "...qd, ...kd->...qk"},
        [(2, 3, 7, 5), (2, 3, 4, 5)],
        lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k),
    ),
    "Attention": (
        {},
        [(2, 3, 7, 8), (2, 3, 5, 8), (2, 3, 5, 8)],
        torch.nn.functional.scaled_dot_product_attention,
    ),
}


@pytest.mark.parametrize("operator", CASES)
def test_an_operator_counts_as_in_pytorch(operator: str) -> None:
    attributes, sizes, compute = CASES[operator]
    inputs = [
        helper.make_tensor_value_info(f"x{at}", TensorProto.FLOAT, size)
        for at, size in enumerate(sizes)
    ]
    node = helper.make_node(operator, [value.name for value in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")])
    model = shape_inference.infer_shapes(helper.make_model(graph))
    with FlopCounterMode(display=False) as counter:
        made = compute(*map(torch.ones, sizes))
    shapes = {f"x{at}": size for at, size in enumerate(sizes)} | {"y": tuple(made.shape)}
    assert count_graph_operations(ir.from_proto(model).graph, shapes) == counter.get_total_flops()


def test_the_share_of_attention_in_a_file_is_of_the_whole_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    assert main(["inspect", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    shares = [site["flops_share"] for site in document["sites"]]
    assert 0 < sum(shares) < 0.9
    assert document["flops"]["attention"] < 0.9 * document["flops"]["network"]


def test_all_operations_of_a_file_are_counted_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_onnx(window_attention(tmp_path / "theirs.onnx"), {})
    expected, _ = count_operations(loaded.network, loaded.facts)
    monkeypatch.setattr(GraphNetwork, "forward", None)
    assert count_all_operations(loaded.network, loaded.facts) == expected > 0


@pytest.mark.parametrize("kind", ["module", *full("graph")])
def test_attention_between_all_pixels_is_counted_though_nothing_replaces_it(kind: str) -> None:
    """A file with a scale log(N) of its scores was compared at 131x138: 160 s of an export."""
    facts = load("swinir_x2_w16").facts
    for toy, expected in ((toys.Whole, 256.0), (toys.RearrangedByHand, 0.0)):
        network = toys.lively(toy())
        if kind == "graph":
            network = of_any_size(network, (2, 3, 16, 24), (3, 3, 32, 16)).network
        assert count_quadratic(network, facts) == expected
