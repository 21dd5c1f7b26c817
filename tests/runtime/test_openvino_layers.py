"""Linear layers of token maps are convolutions in OpenVINO if no transpose is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nystra.runtime.backends.openvino.token_maps import compute_rows, convolve
from openvino_results import results

openvino = pytest.importorskip("openvino", reason="nystra[openvino] is not installed")
opset = pytest.importorskip("openvino.opset13")


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def mlp(tokens: Any, kind: str = "f32") -> Any:
    """Two layers with biases and a function between them, the second weight transposed."""
    weights = [random(6, 8).astype(np.float16 if kind == "f16" else np.float32), random(6, 8)]
    if kind == "f16":
        tokens = opset.convert(tokens, "f16")
    first = opset.matmul(tokens, opset.constant(weights[0]), False, False)
    if kind == "f16":
        first = opset.convert(first, "f32")
    middle = opset.gelu(opset.add(first, opset.constant(random(8))), "erf")
    second = opset.matmul(middle, opset.constant(weights[1]), False, True)
    return opset.add(second, opset.constant(random(6)))


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_layers_become_convolutions(kind: str) -> None:
    given = opset.parameter([2, 4, 5, 6], np.float32)
    rows = opset.reshape(mlp(given, kind), [-1, 6], False)
    model = openvino.Model([opset.add(rows, opset.reshape(given, [-1, 6], False))], [given], "mlp")
    expected = results(model)
    assert convolve(model) == 2
    kinds = [node.get_type_name() for node in model.get_ordered_ops()]
    assert (kinds.count("Convolution"), kinds.count("MatMul"), kinds.count("Transpose")) == (
        2,
        0,
        2,
    )
    np.testing.assert_allclose(results(model), expected, rtol=1e-4, atol=1e-4)


def test_a_layer_stays_whose_result_would_be_turned() -> None:
    """The norm after the second would need a transpose."""
    given = opset.parameter([2, 4, 5, 6], np.float32)
    axes = opset.constant(np.array([-1]))
    norm = opset.mvn(mlp(given), axes, True, 1e-5, "inside_sqrt")
    model = openvino.Model([norm], [given], "mlp")
    assert convolve(model) == 1
    assert [n.get_type_name() for n in model.get_ordered_ops()].count("MatMul") == 1


def test_names_need_not_differ() -> None:
    """Nodes of other programs' files may have equal names."""
    given = opset.parameter([2, 4, 5, 6], np.float32)
    rows = [opset.reshape(opset.add(mlp(given), given), [-1, 6], False) for _ in range(2)]
    model = openvino.Model([opset.concat(rows, 1)], [given], "mlps")
    for node in model.get_ordered_ops():
        node.set_friendly_name("node")
    expected = results(model)
    assert compute_rows(model) == 2
    assert convolve(model) == 4
    np.testing.assert_allclose(results(model), expected, rtol=1e-4, atol=1e-4)


def test_other_products_stay() -> None:
    given = opset.parameter([2, 4, 5, 6], np.float32)
    integers = opset.convert(opset.constant(np.ones((6, 6), np.int8)), "f32")
    products = [
        opset.matmul(given, opset.reshape(given, [2, 4, 6, 5], False), False, False),
        opset.matmul(given, integers, False, False),
        opset.matmul(
            opset.reshape(given, [8, 5, 6], False), opset.constant(random(6, 6)), False, False
        ),
    ]
    results = [opset.reshape(product, [-1, 1], False) for product in products]
    assert convolve(openvino.Model(results, [given], "products")) == 0


def test_what_has_an_open_size_stays() -> None:
    given = opset.parameter([2, -1, 5, 6], np.float32)
    model = openvino.Model([opset.reshape(mlp(given), [-1, 6], False)], [given], "mlp")
    assert convolve(model) == 0
