"""8-bit integers in a graph: which layers, which ranges, and what stays in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.core.errors import UnsupportedModelError
from nystra.core.ports.port import Port
from nystra.export.graph.int8 import budget, transform
from nystra.export.graph.int8.budget import keep_budget
from nystra.export.graph.int8.calibration import (
    CONTRAST,
    Calibration,
    add_contrast,
    calibrate,
    find_range,
)
from nystra.export.graph.int8.layers import find_layers
from nystra.export.graph.int8.quantizer import quantize
from nystra.export.graph.int8.rounded_copy import make_rounded_copy
from nystra.export.graph.int8.transform import quantize_model
from nystra.export.graph.probing import open_probe
from nystra.export.transforms import TransformInputs, find_transform
from nystra.models.architecture import PrecisionPolicy
from nystra.runtime.metrics.measures import MEASURES
from small_graphs import CONV, model_of, run, small, weight

IMAGE = MEASURES["picture"]
SHAPE = (1, 4, 9, 12)
FEEDS = [{"x": np.random.default_rng(seed).random(SHAPE, np.float32)} for seed in range(3)]


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name for every node, as traced models have."""
    for place, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{place}"
    return model


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return named(small())


@pytest.fixture(scope="module")
def calibration(model: onnx.ModelProto) -> Calibration:
    return calibrate(model, find_layers(model.graph), FEEDS)


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def quantized(model: onnx.ModelProto, ranges: Any, *skipped: str) -> onnx.ModelProto:
    got = copy_of(model)
    layers = [layer for layer in find_layers(got.graph) if layer.output not in skipped]
    quantize(got, layers, ranges)
    return got


def test_layers_are_products_with_a_weight_of_their_own(model: onnx.ModelProto) -> None:
    layers = find_layers(model.graph)
    assert [layer.output for layer in layers] == ["first", "wide", "back", "last"]
    assert [layer.products for layer in layers] == [4 * 9, 4, 8, 4 * 9]
    shared = copy_of(model)
    shared.graph.node[-2].input[1] = "w0"  # the last convolution reads the weight of the first
    assert [layer.output for layer in find_layers(shared.graph)] == ["wide", "back"]


def test_a_layer_is_called_as_its_module() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "head.conv.weight"], ["a"], "one", **CONV),
        helper.make_node("MatMul", ["a", "val_3"], ["b"], "two"),
        helper.make_node("Add", ["body.fc.bias", "b"], ["c"], "three"),
        helper.make_node("MatMul", ["c", "val_4"], ["d"], "four"),
        helper.make_node("MatMul", ["d", "c"], ["y"], "five"),
    ]
    weights = [
        weight("head.conv.weight", 4, 4, 3, 3),
        weight("val_3", 7, 7),
        weight("body.fc.bias", 7),
        weight("val_4", 7, 7),
    ]
    layers = find_layers(model_of(nodes, weights).graph)
    assert [layer.path for layer in layers] == ["head.conv", "body.fc", "four"]


def test_a_weight_has_127_steps_for_every_output_channel(model: onnx.ModelProto) -> None:
    for layer in find_layers(model.graph):
        others = tuple(axis for axis in range(layer.values.ndim) if axis != layer.axis)
        step = np.abs(layer.values).max(axis=others, keepdims=True) / 127.0
        assert np.abs(layer.round_weight() - layer.values).max() > 0.0
        assert np.all(np.abs(layer.round_weight() - layer.values) <= 0.5001 * step)


def test_the_range_of_least_error_cuts_what_hardly_occurs() -> None:
    values = np.random.default_rng(0).standard_normal(20000).astype(np.float32)
    largest = float(np.abs(values).max())
    assert 0.9 * largest <= find_range(values, largest) <= largest
    assert find_range(values, 8.0 * largest) < 1.2 * largest  # what no draw has met
    many = np.append(values, np.full(50, 8.0 * largest, np.float32))
    assert find_range(many, 8.0 * largest) > 7.0 * largest
    assert find_range(np.zeros(5, np.float32), 0.0) == 1.0


def test_every_image_is_used_at_a_higher_contrast_too() -> None:
    image = np.linspace(0.4, 0.6, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    wide = np.linspace(0.0, 1.0, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    level, frames = np.full((1, 1, 4, 4), 0.1, np.float32), np.array([3])
    first, second = ({"x": x, "level": level, "frames": frames} for x in (image, wide))
    *same, higher, clipped = add_contrast([first, second])
    assert same == [first, second]
    assert np.ptp(higher["x"]) == pytest.approx(CONTRAST * np.ptp(image))
    assert higher["x"].mean() == pytest.approx(0.5)
    assert higher["x"].dtype == np.float32
    assert higher["level"] is level
    assert higher["frames"] is frames
    assert (clipped["x"].min(), clipped["x"].max()) == (0.0, 1.0)
    assert np.mean(np.isin(clipped["x"], (0.0, 1.0))) > 0.4


def test_ranges_and_costs_are_measured(model: onnx.ModelProto, calibration: Calibration) -> None:
    largest = max(float(feed["x"].max()) for feed in FEEDS)
    assert 0.5 * largest < calibration.ranges["x"] <= largest
    first, wide, *_ = find_layers(model.graph)
    places = math.prod(SHAPE) / 4
    assert calibration.products(first) == places * 4 * 4 * 9
    assert calibration.products(wide) == places * 4 * 8


def test_the_file_gives_what_the_rounded_copy_says(
    model: onnx.ModelProto, calibration: Calibration
) -> None:
    """onnxruntime's quantizer against scales and weights computed in another way."""
    written = quantized(model, calibration.ranges)
    onnx.checker.check_model(written, full_check=True)
    copied = make_rounded_copy(model, find_layers(model.graph), calibration.ranges)
    for shape in (SHAPE, (2, 4, 1, 1), (1, 4, 16, 5)):
        want, exact = run(copied, shape), run(model, shape)
        lost = np.abs(want - exact).max()
        assert lost > 1e-3 * np.abs(exact).max(), "the copied rounds nothing"
        assert np.abs(run(written, shape) - want).max() < 0.5 * lost
    worse = {name: 0.5 * limit for name, limit in calibration.ranges.items()}
    wrong = run(quantized(model, worse), SHAPE)
    assert (
        np.abs(wrong - run(copied, SHAPE)).max()
        > np.abs(run(copied, SHAPE) - run(model, SHAPE)).max()
    )


def test_weights_are_8_bits_and_zero_points_are_0(
    model: onnx.ModelProto, calibration: Calibration
) -> None:
    graph = quantized(model, calibration.ranges).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    held = [tensor for tensor in stored.values() if tensor.data_type == TensorProto.INT8]
    assert sorted(tuple(tensor.dims) for tensor in held if len(tensor.dims) > 1) == sorted(
        [(4, 4, 3, 3), (4, 8), (8, 4), (4, 4, 3, 3)]
    )
    points = [node.input[2] for node in graph.node if node.op_type.endswith("quantizeLinear")]
    points += [node.input[2] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert all(not numpy_helper.to_array(stored[name]).any() for name in points)
    assert not {"w0", "w1", "w2", "w3"} & stored.keys(), "float32 weights stay in the file"
    assert {stored[name].data_type for name in ("b0", "b1")} == {TensorProto.FLOAT}


def test_what_else_reads_a_map_keeps_its_digits(
    model: onnx.ModelProto, calibration: Calibration
) -> None:
    """The residual sum and the norm read the map, not its 8-bit values."""
    graph = quantized(model, calibration.ranges).graph
    reads = {node.output[0]: list(node.input) for node in graph.node}
    assert reads["stream"] == ["map", "done"]
    assert reads["normal"][0] == "map"
    quantizers = [node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert sorted(quantizers) == ["active", "normal", "same", "x"]
    assert not [node for node in graph.node if node.op_type == "Identity"]


def dense(*more: onnx.NodeProto) -> onnx.ModelProto:
    """Convolutions of all maps before them, as in an RRDB network."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["one"], **CONV),
        helper.make_node("LeakyRelu", ["one"], ["first"], alpha=0.2),
        helper.make_node("Concat", ["x", "first"], ["two"], axis=1),
        helper.make_node("Conv", ["two", "w2"], ["second"], **CONV),
        helper.make_node("Concat", ["x", "first", "second"], ["three"], axis=1),
        helper.make_node("Conv", ["three", "w3"], ["y"], **CONV),
    ]
    weights = [weight(f"w{count}", 4, 4 * count, 3, 3) for count in (1, 2, 3)]
    return named(model_of([*nodes, *more], weights))


def test_joined_maps_are_rounded_once_and_joined_as_integers() -> None:
    joined = dense()
    layers = find_layers(joined.graph)
    ranges = calibrate(joined, layers, FEEDS).ranges
    assert len(set(ranges.values())) == 1
    written = quantized(joined, ranges)
    onnx.checker.check_model(written, full_check=True)
    makers = {node.output[0]: node for node in written.graph.node}
    quantizers = [node.input[0] for node in written.graph.node if node.op_type == "QuantizeLinear"]
    assert sorted(quantizers) == ["first", "second", "x"]
    for name in ("two", "three"):
        assert {makers[part].op_type for part in makers[name].input} == {"DequantizeLinear"}
    want = run(make_rounded_copy(joined, layers, ranges), SHAPE)
    lost = np.abs(want - run(joined, SHAPE)).max()
    assert np.abs(run(written, SHAPE) - want).max() < 0.1 * lost


def test_a_joined_map_that_is_read_in_float32_is_rounded_after_the_concat() -> None:
    read = dense(helper.make_node("Relu", ["two"], ["also"]))
    ranges = calibrate(read, find_layers(read.graph), FEEDS).ranges
    for model, skipped in ((read, ()), (dense(), ("y",))):
        makers = {node.output[0]: node for node in quantized(model, ranges, *skipped).graph.node}
        sources = [node.input[0] for node in makers.values() if node.op_type == "QuantizeLinear"]
        assert ("two" in sources) == (not skipped)
        assert "three" not in sources


def test_what_a_branch_reads_stays() -> None:
    def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [out])

    then = branch("then", helper.make_node("Mul", ["two", "only"], ["then"]))
    other = branch("other", helper.make_node("Identity", ["two"], ["other"]))
    chosen = helper.make_node("If", ["go"], ["chosen"], then_branch=then, else_branch=other)
    read = dense(chosen)
    read.graph.initializer.append(numpy_helper.from_array(np.float32(2), "only"))
    read.graph.initializer.append(numpy_helper.from_array(np.bool_(True), "go"))
    read.graph.output.append(helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None))
    written = quantized(read, calibrate(read, find_layers(read.graph), FEEDS).ranges)
    onnx.checker.check_model(written, full_check=True)
    assert "only" in {tensor.name for tensor in written.graph.initializer}
    sources = [node.input[0] for node in written.graph.node if node.op_type == "QuantizeLinear"]
    assert "two" in sources
    assert "three" not in sources


def test_layers_go_back_by_harm_for_their_cost(
    model: onnx.ModelProto, calibration: Calibration
) -> None:
    layers = find_layers(model.graph)
    free = keep_budget(model, layers, calibration, FEEDS, IMAGE, -100.0)
    assert (free.layers, free.returned) == (tuple(layers), ())
    tight = keep_budget(model, layers, calibration, FEEDS, IMAGE, free.figure + 3.0)
    assert 0 < len(tight.returned) < len(layers)
    assert tight.figure >= free.figure + 3.0
    none = keep_budget(model, layers, calibration, FEEDS, IMAGE, math.inf)
    assert none.layers == ()
    errors = {layer.path: 10.0 ** (-layer.alone / 10.0) / layer.share for layer in none.returned}
    assert sum(layer.share for layer in none.returned) == pytest.approx(1.0)
    order = list(errors.values())
    assert order[0] == max(order)
    assert [layer.path for layer in tight.returned] == list(errors)[: len(tight.returned)]


def deep(count: int) -> onnx.ModelProto:
    """Convolutions one after another that change their map little."""
    maps = ["x", *(f"map{place}" for place in range(1, count)), "y"]
    nodes = [
        helper.make_node("Conv", [maps[place], f"w{place}"], [maps[place + 1]], **CONV)
        for place in range(count)
    ]
    random = np.random.default_rng(0)
    weights = []
    for place in range(count):
        values = 0.05 * random.standard_normal((4, 4, 3, 3))
        values[range(4), range(4), 1, 1] += 1.0
        if place % 23 == 17:
            values[:, 0, 0, 0] += 1.0  # coarse steps for the other weights
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{place}"))
    return named(model_of(nodes, weights))


@pytest.mark.full
def test_many_layers_are_tried_in_a_bounded_number_of_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = deep(90)
    layers = find_layers(many.graph)
    calibration = calibrate(many, layers, FEEDS)
    runs = []

    @contextmanager
    def counting(model: onnx.ModelProto) -> Iterator[Any]:
        with open_probe(model) as session:
            plain = session.run

            def run(feed: Any) -> Any:
                runs.append(feed)
                return plain(feed)

            monkeypatch.setattr(session, "run", run)
            yield session

    monkeypatch.setattr(budget, "open_probe", counting)
    free = keep_budget(many, layers, calibration, FEEDS, IMAGE, -100.0)
    runs.clear()
    tight = keep_budget(many, layers, calibration, FEEDS, IMAGE, free.figure + 2.0)
    assert tight.figure >= free.figure + 2.0
    assert 0 < len(tight.returned) < len(layers) / 2
    assert len(runs) <= budget.MAX_RUNS + 2 * math.ceil(math.log2(len(layers))) + 4 * len(FEEDS)
    monkeypatch.setattr(budget, "MAX_ALONE", len(layers))
    alone = keep_budget(many, layers, calibration, FEEDS, IMAGE, free.figure + 2.0)
    assert len(tight.returned) <= 1.2 * len(alone.returned)
    none = keep_budget(many, layers, calibration, FEEDS, IMAGE, math.inf)
    assert len(none.returned) == len(layers)


def test_a_limit_below_that_of_every_file_is_raised_to_it(
    model: onnx.ModelProto, calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = find_layers(model.graph)
    free = keep_budget(model, layers, calibration, add_contrast(FEEDS), IMAGE, -100.0)
    coarsest = free.figure + 3.0
    int8 = replace(IMAGE.tolerances["int8"], coarsest=coarsest)
    strict = replace(IMAGE, tolerances={**IMAGE.tolerances, "int8": int8})
    monkeypatch.setattr(transform, "measure_for", lambda _: strict)
    limits = []

    def recording(*settings: Any) -> Any:
        limits.append(settings[-1])
        return keep_budget(*settings)

    monkeypatch.setattr(transform, "keep_budget", recording)
    inputs = TransformInputs("own:Net", FEEDS, FEEDS, Port("y", "image"), minimum=1.0)
    done = transform.quantize_within(copy_of(model), inputs)
    assert limits == [coarsest + transform.MARGIN]
    assert 0 < len(done.selection.returned) < len(layers)
    assert done.selection.figure >= coarsest


def test_a_file_with_few_multiplications_in_int8_says_so(model: onnx.ModelProto) -> None:
    everything = quantize_model(copy_of(model), PrecisionPolicy(), FEEDS, IMAGE, -100.0)
    assert not any("gains little" in text for text in everything.warnings())
    kept = replace(everything, share=0.27)
    said = [text for text in kept.warnings() if "gains little" in text]
    assert len(said) == 1
    assert "73% of the multiplications of layers stay float32" in said[0]
    assert "`nystra bench`" in said[0]


def test_the_inputs_of_the_validation_reach_its_limit(
    model: onnx.ModelProto, calibration: Calibration
) -> None:
    """A map of one bright pixel is rounded coarsely there, whatever the ranges are."""
    layers, spot = find_layers(model.graph), np.zeros(SHAPE, np.float32)
    spot[0, :, 4, 5] = 20.0
    validated = [{"x": FEEDS[0]["x"] + spot}]
    settings = (model, layers, calibration, FEEDS, IMAGE, -100.0)
    assert keep_budget(*settings).returned == ()
    free = keep_budget(*settings, validated, -100.0)
    assert free.returned == ()
    kept = keep_budget(*settings, validated, 30.0)
    assert 0 < len(kept.returned) <= len(layers)
    assert kept.figure > free.figure


@pytest.mark.full
def test_a_policy_is_heeded_and_nothing_left_is_said(model: onnx.ModelProto) -> None:
    policy = PrecisionPolicy(modules={"node_0": "places in an image"})
    done = quantize_model(copy_of(model), policy, FEEDS, IMAGE, -100.0)
    assert done.as_dict()["kept"] == {"node_0": "places in an image"}
    assert len(done.selection.layers) == 3
    assert done.share == 1.0
    assert any("3 layers in int8, 100%" in text for text in done.notes())
    everything = PrecisionPolicy(modules={"*": "places in an image"})
    with pytest.raises(UnsupportedModelError, match="can be int8: places in an image"):
        quantize_model(copy_of(model), everything, FEEDS, IMAGE, -100.0)
    with pytest.raises(UnsupportedModelError, match="no layer can be int8 if every image"):
        quantize_model(copy_of(model), PrecisionPolicy(), FEEDS, IMAGE, math.inf)
    bare = named(model_of([helper.make_node("Relu", ["x"], ["y"])], []))
    with pytest.raises(UnsupportedModelError, match="it has no layers of float32 weights"):
        quantize_model(bare, PrecisionPolicy(), FEEDS, IMAGE, -100.0)


def test_video_is_refused() -> None:
    allow = find_transform("int8").allow
    assert allow is not None
    with pytest.raises(UnsupportedModelError, match="rvrt in int8 is refused: its calibration"):
        allow()("rvrt")
