"""Sums of token maps are computed as rows in OpenVINO; sums of maps of channels are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nystra.runtime.backends._openvino_rows import sum_rows

openvino = pytest.importorskip("openvino", reason="nystra[openvino] is not installed")
opset = pytest.importorskip("openvino.opset13")


def block(tokens: Any) -> Any:
    """A linear layer with a bias, and what went in."""
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


def results(model: Any) -> Any:
    given = np.random.default_rng(0).random((2, 6, 4, 5), np.float32)
    return openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(given)[
        0
    ]


def test_sums_of_token_maps_become_rows() -> None:
    model = network()
    expected = results(model)
    assert sum_rows(model) == 2
    sums = [list(n.shape) for n in model.get_ordered_ops() if n.get_type_name() == "Add"]
    assert sums.count([40, 6]) == 2
    assert sums.count([2, 4, 5, 6]) == 2  # of a bias
    assert sums.count([2, 6, 4, 5]) == 1
    np.testing.assert_allclose(results(model), expected, rtol=1e-6)


def test_what_has_an_open_size_stays() -> None:
    model = network()
    model.reshape({0: [2, 6, -1, 5]})
    assert sum_rows(model) == 0
