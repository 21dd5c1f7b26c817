"""What OpenVINO computes on matrices: sums of token maps, and 8-bit linear layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nystra.runtime.backends.openvino.token_maps import compute_rows
from openvino_results import openvino, results

opset = pytest.importorskip("openvino.opset13")


def block(tokens: Any) -> Any:
    """A linear layer with a bias, added to its input."""
    weight = opset.constant(np.full((6, 6), 0.25, np.float32))
    bias = opset.constant(np.arange(6, dtype=np.float32))
    return opset.add(tokens, opset.add(opset.matmul(tokens, weight, False, False), bias))


def network() -> Any:
    """A convolution with its input added; then two blocks on the tokens."""
    given = opset.parameter([2, 6, 4, 5], np.float32)
    kernel = opset.constant(np.full((6, 6, 1, 1), 0.5, np.float32))
    around = opset.convolution(given, kernel, [1, 1], [0, 0], [0, 0], [1, 1])
    order = opset.constant(np.array([0, 2, 3, 1]))
    tokens = opset.transpose(opset.add(given, around), order)
    return openvino.Model([block(block(tokens))], [given], "blocks")


def test_sums_of_token_maps_become_rows() -> None:
    model = network()
    expected = results(model)
    assert compute_rows(model) == 2
    sums = [list(n.shape) for n in model.get_ordered_ops() if n.get_type_name() == "Add"]
    assert sums.count([40, 6]) == 2
    assert sums.count([2, 4, 5, 6]) == 2  # of a bias
    assert sums.count([2, 6, 4, 5]) == 1
    np.testing.assert_allclose(results(model), expected, rtol=1e-6)


def test_joined_channels_become_rows() -> None:
    given = opset.parameter([2, 4, 5, 6], np.float32)
    weights = (opset.constant(np.full((6, n), 0.25, np.float32)) for n in (6, 3))
    both = opset.concat([opset.matmul(given, one, False, False) for one in weights], 3)
    model = openvino.Model([opset.add(both, both)], [given], "two layers")
    expected = results(model)
    assert compute_rows(model) == 2
    shapes = {n.get_type_name(): tuple(n.shape) for n in model.get_ordered_ops()}
    assert (shapes["Concat"], shapes["Add"], shapes["Result"]) == ((40, 9), (40, 9), (2, 4, 5, 9))
    np.testing.assert_allclose(results(model), expected, rtol=1e-6)


def test_what_has_an_open_size_stays() -> None:
    model = network()
    model.reshape({0: [2, 6, -1, 5]})
    assert compute_rows(model) == 0


def rounded(tokens: Any) -> Any:
    ends = (opset.constant(np.float32(end)) for end in (-2, 2, -2, 2))
    return opset.fake_quantize(tokens, *ends, 255)


def layer(tokens: Any, weight: Any) -> Any:
    """A linear layer with a bias and a function after it."""
    bias = opset.constant(np.arange(6, dtype=np.float32) / 4)
    return opset.gelu(opset.add(opset.matmul(tokens, weight, False, True), bias), "erf")


def integers() -> Any:
    """8-bit weights with their DequantizeLinear."""
    kept = opset.constant(np.random.default_rng(1).integers(-127, 127, (6, 6), np.int8))
    steps = opset.constant(np.full((6, 1), 0.01, np.float32))
    return opset.multiply(opset.convert(kept, "f32"), steps)


@pytest.mark.parametrize("kind", ["8-bit", "float32"])
def test_layers_of_integers_become_rows(kind: str) -> None:
    """With bias, function and rounding, which OpenVINO then computes in the layer."""
    given = opset.parameter([2, 4, 5, 6], np.float32)
    weights = [
        integers() if kind == "8-bit" else opset.constant(np.full((6, 6), 0.25, np.float32))
        for _ in range(2)
    ]
    first = rounded(layer(rounded(given), weights[0]))
    model = openvino.Model([layer(first, weights[1])], [given], "layers")
    expected = results(model)
    assert compute_rows(model) == (7 if kind == "8-bit" else 0)
    shapes = {
        (node.get_type_name(), tuple(node.shape))
        for node in model.get_ordered_ops()
        if node.get_type_name() in ("MatMul", "Add", "Gelu")
    }
    where = (40, 6) if kind == "8-bit" else (2, 4, 5, 6)
    assert shapes == {("MatMul", where), ("Add", where), ("Gelu", where)}
    got = results(model)
    assert got.shape == (2, 4, 5, 6)
    np.testing.assert_allclose(got, expected, atol=1e-5)
