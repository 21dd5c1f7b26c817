"""Low precision in the graph: what is cast, what is not, and its validation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export.graph.precision.cast import write_casts
from nystra.export.graph.precision.choice import choose_nodes
from nystra.export.graph.precision.constants import describe_loss
from nystra.export.graph.precision.lowering import lower_model
from nystra.export.graph.precision.rounded_copy import make_rounded_copy
from nystra.export.graph.precision.table import LOW_TYPES
from nystra.export.transforms import find_transform
from nystra.models.architecture import PrecisionPolicy
from nystra.plugins.operators.functions import operator_body
from nystra.plugins.operators.schema import node_attributes
from small_graphs import CONV, model_of, run, small, types, weight


def lowered(model: onnx.ModelProto, precision: str = "fp16", **more: Any) -> onnx.ModelProto:
    """A low-precision copy of a model."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    write_casts(copy, choose_nodes(copy, precision, **more))
    return copy


@pytest.mark.parametrize("opset", [18, 20])
def test_what_is_low_and_what_is_not(opset: int) -> None:
    model = lowered(small(opset))
    kinds = types(model)
    low = {name for name, kind in kinds.items() if kind == TensorProto.FLOAT16}
    assert {"first", "map", "wide", "biased", "active", "back", "last"} <= low
    assert not low & {"x", "y", "normal", "stream", "image", "done"}
    assert kinds["sizes"] == TensorProto.INT64
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert stored["w1.fp16"] == stored["b1.fp16"] == TensorProto.FLOAT16
    assert "w1" not in stored, "the float32 weight stays in the file"
    assert stored["g"] == stored["mean"] == TensorProto.FLOAT
    assert stored["b0"] == TensorProto.FLOAT  # the normalization has it too
    assert stored["b0.fp16"] == TensorProto.FLOAT16


@pytest.mark.parametrize("shape", [(2, 4, 5, 7), (1, 4, 1, 1), (3, 4, 16, 9)])
def test_any_size_gives_the_same_image(shape: tuple[int, ...]) -> None:
    model = small()
    exact, got = run(model, shape), run(lowered(model), shape)
    assert got.dtype == np.float32
    scale = np.abs(exact).max()
    assert 1e-6 * scale < np.abs(got - exact).max() < 5e-3 * scale


def cast_pairs(model: onnx.ModelProto) -> list[str]:
    """Casts of the output of a cast, and duplicate casts."""
    made = {
        node.output[0]: (node.input[0], node.attribute[0].i)
        for node in model.graph.node
        if node.op_type == "Cast"
    }
    twice = [key for key, count in Counter(made.values()).items() if count > 1]
    return [name for name, (source, _) in made.items() if source in made] + list(map(str, twice))


def test_no_cast_is_undone_or_made_twice() -> None:
    model = small()
    model.graph.node.insert(
        4, helper.make_node("MatMul", ["normal", "w1"], ["wide_2"])
    )  # a second reader of a cast tensor
    model.graph.node.insert(11, helper.make_node("Softmax", ["first"], ["soft"]))
    model.graph.node.insert(12, helper.make_node("Exp", ["first"], ["large"]))
    low = lowered(model)
    assert not cast_pairs(low)
    assert sum(node.op_type == "Cast" for node in low.graph.node) == 7
    planted = helper.make_node("Cast", ["x.fp16"], ["again"], to=TensorProto.FLOAT)
    low.graph.node.append(planted)
    assert cast_pairs(low) == ["again"]


def test_two_maps_are_never_multiplied_in_low() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["q"], **CONV),
        helper.make_node("Transpose", ["q"], ["k"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Conv", ["scores", "w", "b"], ["y"], **CONV),
    ]
    kinds = types(lowered(model_of(nodes, [weight("w", 4, 4, 3, 3), weight("b", 4)])))
    assert kinds["q"] == kinds["k"] == TensorProto.FLOAT16
    assert kinds["scores"] == TensorProto.FLOAT


def test_a_low_output_of_the_graph_keeps_name_and_type() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], **CONV),
    ]
    model = lowered(model_of(nodes, [weight("w", 4, 4, 3, 3), weight("b", 4)]))
    kinds = types(model)
    assert kinds["y"] == TensorProto.FLOAT
    assert kinds["y.fp16"] == TensorProto.FLOAT16


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1e5, 1.0], "a constant of 1e.05 overflows fp16"),
        ([1e-8, 2e-8], "constants as small as 2e-08 lose"),
        ([1.0, 1e-8], None),
        ([0.0, 0.0], None),
        ([0.3, -0.7], None),
    ],
)
def test_constants_that_do_not_fit(values: list[float], words: str | None) -> None:
    import re

    reason = describe_loss(np.array(values, np.float32), LOW_TYPES["fp16"])
    assert (reason is None) == (words is None)
    assert words is None or re.search(words, reason or "")
    assert describe_loss(np.array(values, np.float32), LOW_TYPES["bf16"]) is None


def test_a_node_whose_weights_overflow_stays_float_and_is_reported() -> None:
    model = small(weights=1e5)
    chosen = choose_nodes(model, "fp16")
    assert chosen.reasons == {"first": "a constant of 1e+05 overflows fp16"}
    kinds = types(lowered(model))
    assert kinds["first"] == TensorProto.FLOAT
    assert kinds["wide"] == TensorProto.FLOAT16


def test_values_near_the_limit_stay_float_and_are_reported() -> None:
    model = small(weights=1e3)  # 36 x 1000: fp16 holds it, but with little to spare
    model.graph.node[9].input[0] = "normal"  # the rest of the network sees usual values
    feeds = [{"x": np.full((1, 4, 6, 6), 0.9, np.float32)}]
    done = lower_model(model, "fp16", PrecisionPolicy(), feeds)
    assert done.reasons == {
        "first": "values up to 3.2e+04, above 8.2e+03 (1/8 of the maximum of fp16)"
    }
    assert done.largest < 65504 / 8
    assert types(model)["first"] == TensorProto.FLOAT
    assert done.notes()[0].startswith("1 nodes stay in float32: values up to 3.2e+04")


@pytest.mark.parametrize("opset", [20, 22])
def test_bf16_is_for_every_program_or_for_tensorrt(opset: int) -> None:
    everywhere = choose_nodes(small(opset), "bf16")
    assert {everywhere.reasons[name] for name in ("first", "last")} == {
        f"ONNX has no bf16 Conv at opset {min(opset, 21)}"
    }
    kinds = types(lowered(small(), "bf16"))  # valid ONNX
    assert kinds["wide"] == kinds["back"] == TensorProto.BFLOAT16
    assert kinds["active"] == TensorProto.FLOAT  # its digits are too few to round at every step
    alone = choose_nodes(small(), "bf16", tensorrt=True)
    assert not alone.reasons
    assert "first" in alone.tensors


def test_nothing_low_is_refused() -> None:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **CONV)]
    model = model_of(nodes, [weight("w", 4, 4, 3, 3), weight("b", 4)])
    with pytest.raises(UnsupportedModelError, match=r"no bf16 Conv .* `target` tensorrt"):
        lower_model(model, "bf16", PrecisionPolicy(), [])


def test_a_graph_in_a_node_reads_float32() -> None:
    model = small()
    last = model.graph.node[-1]
    result, last.output[0] = last.output[0], "before"
    value = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    inner = helper.make_node("Mul", ["first", "first"], ["square"])
    mean = helper.make_node("ReduceMean", ["square"], ["z"], keepdims=0)
    body = helper.make_graph([inner, mean], "body", [], [value])
    nodes = [
        helper.make_node("Constant", [], ["go"], value=numpy_helper.from_array(np.bool_(True))),
        helper.make_node("If", ["go"], ["some"], then_branch=body, else_branch=body),
        helper.make_node("Add", ["before", "some"], [result]),
    ]
    model.graph.node.extend(nodes)
    low = lowered(model)
    assert types(low)["first"] == TensorProto.FLOAT16
    exact, got = run(model, (1, 4, 5, 7)), run(low, (1, 4, 5, 7))
    assert 1e-6 < np.abs(got - exact).max() < 5e-3 * np.abs(exact).max()


def search_model() -> onnx.ModelProto:
    """Convolutions around a search with int32 start and index."""
    attributes = node_attributes("NystraPatchMatch", patch_size=3, iterations=1, neighbors=1)
    names = ["q", "k", "m", "m", "start"]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["q"], **CONV),
        helper.make_node("Conv", ["x", "w2", "b"], ["k"], **CONV),
        helper.make_node(
            "NystraPatchMatch", names, ["index", "score"], domain="nystra", **attributes
        ),
        helper.make_node("Cast", ["index"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "tenth"], ["small"]),
        helper.make_node("Add", ["small", "score"], ["y"]),
    ]
    given = [
        weight("w", 4, 4, 3, 3),
        weight("w2", 4, 4, 3, 3),
        weight("b", 4),
        weight("m", 1, 1, 1, 1, value=1.0),
        weight("tenth", 1, value=0.1),
        numpy_helper.from_array(np.full((1, 1, 1, 1), -1, np.int32), "start"),
    ]
    model = model_of(nodes, given)
    model.functions.append(operator_body("NystraPatchMatch", 20))
    return model


@pytest.mark.parametrize("low_search", [False, True])
def test_a_search_keeps_its_int32_ports(low_search: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.export.graph.precision import choice

    if low_search:  # as a later version may; its ports must not change then either
        monkeypatch.setattr(choice, "ATTENTION", {"NystraPatchMatch"})
    model = lowered(search_model())
    node = next(node for node in model.graph.node if node.domain == "nystra")
    assert node.input[4] == "start"
    start = next(tensor for tensor in model.graph.initializer if tensor.name == "start")
    assert start.data_type == TensorProto.INT32
    cast = next(node for node in model.graph.node if node.output[0] == "number")
    assert cast.input[0] == node.output[0] == "index"
    assert node.input[2] == ("m.fp16" if low_search else "m")
    got = run(model)
    assert got.shape == (2, 1, 5, 7)
    assert np.isfinite(got).all()


def test_the_rounded_copy_shows_an_overflow_that_onnxruntime_hides() -> None:
    """1.3e5 between a product and a division by 1e3: infinite in float16."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["map"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["map", "w"], ["large"]),
        helper.make_node("Mul", ["large", "s"], ["normal"]),
        helper.make_node("MatMul", ["normal", "one"], ["out"]),
        helper.make_node("Transpose", ["out"], ["y"], perm=[0, 3, 1, 2]),
    ]
    given = [
        weight("w", 4, 4, value=6e4),
        weight("s", 1, value=1e-3),
        numpy_helper.from_array(np.eye(4, dtype=np.float32), "one"),
    ]
    model = model_of(nodes, given)
    low = onnx.ModelProto.FromString(model.SerializeToString())
    tensors = write_casts(low, choose_nodes(low, "fp16"))
    copied = make_rounded_copy(low, "fp16", tensors)
    assert set(types(copied).values()) <= {TensorProto.FLOAT, TensorProto.FLOAT16}
    assert not np.isfinite(run(copied)).all()
    assert np.isfinite(run(low)).all()  # the check on the file itself would have passed
    feeds = [{"x": np.ones((1, 4, 3, 3), np.float32)}]
    done = lower_model(
        model, "fp16", PrecisionPolicy(), feeds
    )  # the pass measures it and keeps it float
    assert set(done.reasons) == {"large", "normal"} or set(done.reasons) == {"large"}
    assert np.isfinite(run(done.rounded_copy)).all()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_rounded_copy_rounds_to_the_type(precision: str) -> None:
    low = small()
    tensors = write_casts(low, choose_nodes(low, precision, tensorrt=True))
    copied = make_rounded_copy(low, precision, tensors)
    node = next(node for node in copied.graph.node if "wide" in node.output)
    assert node.op_type == "Cast"
    copied.graph.output.append(helper.make_tensor_value_info("wide", TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(
        copied.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    image = np.random.default_rng(1).random((1, 4, 6, 6), dtype=np.float32)
    wide = session.run(["wide"], {"x": image})[0]
    drop = 24 - LOW_TYPES[precision].digits
    assert not (wide.view(np.int32) & ((1 << drop) - 1)).any()
    assert (wide.view(np.int32) & (1 << drop)).any()


@pytest.mark.parametrize(
    ("precision", "target", "label"),
    [
        ("fp32", None, "fp32"),
        ("fp16", None, "fp16"),
        ("bf16", None, "bf16"),
        ("bf16", "tensorrt", "bf16-tensorrt"),
    ],
)
def test_labels(precision: str, target: str | None, label: str) -> None:
    assert find_transform(precision, target).label == label


@pytest.mark.parametrize(
    ("precision", "target", "words"),
    [
        ("int4", None, "unknown `precision` 'int4': expected one of fp32, fp16, bf16, int8"),
        ("bf16", "ncnn", "`target` 'ncnn' is unknown: expected tensorrt"),
        ("fp16", "tensorrt", "it is for `precision` bf16"),
    ],
)
def test_unknown_precisions(precision: str, target: str | None, words: str) -> None:
    with pytest.raises(NystraError, match=words):
        find_transform(precision, target)
