"""NystraPatchMatch in the native library: what its binding refuses, threads, batches and quality.

The rows of the conformance table compare its fields with the reference, on every instruction set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from native_nodes import TYPES, library
from nystra.plugins.domain import DOMAIN
from nystra.plugins.operators.schema import VERSION
from reference.patch_match import exhaustive, reference

NAME = "NystraPatchMatch"
INPUTS = ("query", "key", "query_mask", "key_mask", "start")
GOOD = {"patch_size": 3, "iterations": 2, "neighbors": 3, "metric": 0, "seed": 0, "revision": 1}
Search = Callable[..., tuple[np.ndarray, np.ndarray]]


def search(
    threads: int = 2, dtype: str = "float32", start_type: int = TensorProto.INT32, **changes: Any
) -> Search:
    """A function of the five inputs on one session; the last three are optional."""
    attributes = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    types = [TYPES[dtype]] * 4 + [start_type]
    node = helper.make_node(NAME, INPUTS, ["index", "score"], domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "node",
        [helper.make_tensor_value_info(n, t, None) for n, t in zip(INPUTS, types, strict=True)],
        [
            helper.make_tensor_value_info("index", TensorProto.INT32, None),
            helper.make_tensor_value_info("score", TYPES[dtype], None),
        ],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library()))
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(*inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones((1, 1, 1, 1), dtype)
        given = [*inputs, *[ones, ones, np.full((1, 1, 1, 1), -1, np.int32)][len(inputs) - 2 :]]
        index, score = session.run(None, dict(zip(INPUTS, given, strict=True)))
        return index, score

    return run


def maps(*shapes: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def integers(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def assert_like_reference(inputs: list[np.ndarray], **attributes: int) -> None:
    ones = np.ones((1, 1, 1, 1), np.float32)
    full = [*inputs, *[ones, ones, np.full((1, 1, 1, 1), -1, np.int32)][len(inputs) - 2 :]]
    index, score = reference(*full, **{**GOOD, **attributes})
    field = search(**attributes)(*full)
    np.testing.assert_array_equal(field[0], index)
    np.testing.assert_array_equal(field[1], score.astype(np.float32))


@pytest.mark.full
@pytest.mark.parametrize("metric", [0, 1])
@pytest.mark.parametrize("size", [(70, 41), (33, 130)])
def test_more_than_one_tile(size: tuple[int, int], metric: int) -> None:
    inputs = integers((1, 2, *size), (1, 2, 37, 44))
    assert_like_reference(inputs, metric=metric, iterations=1)


@pytest.mark.parametrize("channels", [40, 150])
@pytest.mark.parametrize("metric", [0, 1])
def test_more_vectors_than_a_row_has_of_its_own(channels: int, metric: int) -> None:
    assert_like_reference(integers((1, channels, 6, 7), (1, channels, 5, 9)), metric=metric)


def test_no_channels() -> None:
    index, score = search()(*maps((1, 0, 2, 2), (1, 0, 2, 3)))
    np.testing.assert_array_equal(index[0, :, 0, 0], [0, 1, 2])
    np.testing.assert_array_equal(score, 0)


def test_query_that_is_the_key() -> None:
    (image,) = integers((2, 3, 20, 18))
    assert_like_reference([image, image], patch_size=5)
    np.testing.assert_array_equal(search()(image, image)[1][:, 0], 0)


def test_batch_searched_at_once_is_each_alone() -> None:
    query, key = maps((5, 4, 9, 11), (5, 4, 8, 12))
    starts = np.random.default_rng(1).integers(-1, 96, (5, 3, 9, 11)).astype(np.int32)
    masks = [(array > -1).astype(np.float32) for array in maps((5, 1, 9, 11), (5, 1, 8, 12))]
    run = search()
    index, score = run(query, key, *masks, starts)
    for b in range(5):
        item = slice(b, b + 1)
        alone = run(query[item], key[item], *(m[item] for m in masks), starts[item])
        np.testing.assert_array_equal(index[item], alone[0])
        np.testing.assert_array_equal(score[item], alone[1])


def test_large_maps_of_a_batch_are_each_alone() -> None:
    query, key = maps((2, 16, 150, 130), (2, 16, 140, 120))
    run = search(iterations=1)
    index, score = run(query, key)
    alone = run(query[1:], key[1:])
    np.testing.assert_array_equal(index[1:], alone[0])
    np.testing.assert_array_equal(score[1:], alone[1])


@pytest.mark.full
@pytest.mark.parametrize("metric", [0, 1, 2])
def test_thread_count_does_not_matter(metric: int) -> None:
    inputs = maps((1, 5, 75, 140), (1, 5, 60, 90))
    one, two, three = (search(n, metric=metric, patch_size=7)(*inputs) for n in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.full
@pytest.mark.parametrize("metric", [0, 1, 2])
def test_scores_are_those_of_the_pairs_and_near_the_best(metric: int) -> None:
    query = maps((1, 3, 28, 26))[0]
    for axis in (2, 3):
        query = (np.roll(query, 1, axis) + query + np.roll(query, -1, axis)) / 3
    key = np.roll(query, (3, -5), (2, 3)) + 0.01 * maps((1, 3, 28, 26), seed=1)[0]
    attributes = {"patch_size": 5, "metric": metric}
    _, score = search(iterations=5, **attributes)(query, key)
    _, best = exhaustive(query, key, neighbors=3, **attributes)
    # the field is not the reference's on real numbers, but it is as good
    _, again = reference(
        query, key, *np.ones((2, 1, 1, 1, 1)), np.full((1, 1, 1, 1), -1), **{**GOOD, **attributes,
                                                                             "iterations": 5}
    )  # fmt: skip
    assert abs(score.mean() - again.mean()) <= 0.01 * abs(again.mean())
    assert (score <= best + 1e-4 * np.abs(best)).all()
    assert (np.diff(score, axis=1) <= 0).all()


def test_half_is_searched_in_float() -> None:
    query, key = maps((1, 6, 15, 14), (1, 6, 13, 17), dtype="float16")
    half = search(dtype="float16")(query, key)
    full = search()(query.astype(np.float32), key.astype(np.float32))
    np.testing.assert_array_equal(half[0], full[0])
    np.testing.assert_array_equal(half[1], full[1].astype(np.float16))


def test_half_score_out_of_range_is_infinite() -> None:
    query, key = np.full((1, 1, 4, 4), 300, np.float16), np.zeros((1, 1, 4, 4), np.float16)
    index, score = search(dtype="float16")(query, key)
    assert (score == -np.inf).all()
    np.testing.assert_array_equal(index[0, :, 0, 0], [0, 1, 2])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("metric", [0, 1, 2])
def test_no_number_never_wins(metric: int, value: float) -> None:
    query, key = maps((1, 3, 12, 12), (1, 3, 12, 12))
    key[0, 1, 4, 4] = value
    index, score = search(metric=metric, iterations=4)(query, key)
    y, x = np.divmod(index, 12)
    touched = (abs(y - 4) <= 1) & (abs(x - 4) <= 1)
    assert not np.isnan(score).any()
    if np.isnan(value) or metric == 0:
        assert not touched.any()
    query[:] = np.nan
    index, score = search(metric=metric)(query, key)
    assert (score == -np.inf).all()
    assert (np.diff(index, axis=1) > 0).all()


def test_empty_maps_of_the_query() -> None:
    run = search()
    for shape in ((0, 4, 5, 6), (2, 4, 0, 6), (2, 4, 5, 0)):
        index, score = run(*maps(shape, (shape[0], 4, 3, 3)))
        assert index.shape == score.shape == (shape[0], 3, *shape[2:])
        assert (index.dtype, score.dtype) == (np.int32, np.float32)


Q, K, MASK, START = (2, 4, 5, 6), (2, 4, 7, 3), (1, 1, 1, 1), (1, 1, 1, 1)
BAD_SHAPES = [
    (0, (4, 5, 6), r"input query is \(4, 5, 6\); expected rank 4: \(batch, channels, height"),
    (1, (2, 4, 7, 3, 1), r"input key is \(2, 4, 7, 3, 1\); expected rank 4"),
    (1, (2, 5, 7, 3), r"input key is \(2, 5, 7, 3\); expected the batch and channels of query, "),
    (1, (1, 4, 7, 3), r"input key is \(1, 4, 7, 3\); expected the batch and channels of query, "),
    (1, (2, 4, 0, 3), r"input key is \(2, 4, 0, 3\); expected at least one key"),
    (2, (1, 1, 5, 5), r"input query_mask is \(1, 1, 5, 5\); expected \(2, 1, 5, 6\), or 1 for any"),
    (2, (5, 6), r"input query_mask is \(5, 6\); expected \(2, 1, 5, 6\)"),
    (2, (2, 4, 5, 6), r"input query_mask is \(2, 4, 5, 6\); expected \(2, 1, 5, 6\)"),
    (3, (2, 1, 5, 6), r"input key_mask is \(2, 1, 5, 6\); expected \(2, 1, 7, 3\)"),
    (3, (0, 1, 1, 1), r"input key_mask is \(0, 1, 1, 1\); expected \(2, 1, 7, 3\)"),
    (4, (2, 2, 5, 6), r"input start is \(2, 2, 5, 6\); expected \(2, 3, 5, 6\)"),
    (4, (1,), r"input start is \(1\); expected \(2, 3, 5, 6\)"),
]


@pytest.mark.parametrize(("place", "shape", "message"), BAD_SHAPES)
def test_wrong_shape(place: int, shape: tuple[int, ...], message: str) -> None:
    inputs = [np.zeros(s, np.float32) for s in (Q, K, MASK, MASK)]
    inputs.append(np.zeros(START, np.int32))
    inputs[place] = np.zeros(shape, inputs[place].dtype)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument) as error:
        search()(*inputs)
    assert re.search(f"{NAME}: {message}", str(error.value))


def test_too_many_pixels() -> None:
    wide = np.zeros((1, 1, 1, 1 << 24), np.float16)
    one = np.zeros((1, 1, 1, 1), np.float16)
    for pair in ((wide, one), (one, wide)):
        with pytest.raises(Exception, match=f"{NAME}: input .* fewer than 16777216 pixels per map"):
            search(dtype="float16", patch_size=1, neighbors=1)(*pair)


BAD_ATTRIBUTES = [
    ({"revision": 2}, "node has revision 2, this library.*revision 1"),
    ({"patch_size": 4}, "attribute patch_size is 4; expected an odd number"),
    ({"patch_size": 25}, "attribute patch_size is 25; expected 1 to 23"),
    ({"patch_size": -1}, "attribute patch_size is -1"),
    ({"iterations": 0}, "attribute iterations is 0; expected 1 to 16"),
    ({"iterations": 17}, "attribute iterations is 17; expected 1 to 16"),
    ({"neighbors": 0}, "attribute neighbors is 0; expected 1 to 32"),
    ({"neighbors": 33}, "attribute neighbors is 33; expected 1 to 32"),
    ({"metric": 3}, "attribute metric is 3; expected 0 to 2"),
    ({"seed": 4096}, "attribute seed is 4096; expected 0 to 4095"),
    ({"seed": 2**62}, "attribute seed is 4611686018427387904"),
    ({"seed": None}, "attribute seed is missing or not an INT"),
    ({"metric": 0.0}, "attribute metric is missing or not an INT"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ATTRIBUTES)
def test_wrong_attribute(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=f"{NAME}: .*{message}"):
        search(**changes)


def test_wrong_type_of_start() -> None:
    with pytest.raises(Exception, match=r"(?i)type.*start|start.*type"):
        search(start_type=TensorProto.INT64)


def dimension(full: int) -> st.SearchStrategy[int]:
    return st.sampled_from([1, full, full, 0, 2])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_any_shapes_run_or_are_refused(data: st.DataObject) -> None:
    k = data.draw(st.sampled_from([1, 3, 32]))
    size = st.integers(0, 9)
    shapes = [[data.draw(st.integers(0, 3)), data.draw(size), data.draw(size), data.draw(size)]]
    shapes.append([*shapes[0][:2], data.draw(size), data.draw(size)])
    for full in ([1, *shapes[0][2:]], [1, *shapes[1][2:]], [k, *shapes[0][2:]]):
        shapes.append([data.draw(dimension(one)) for one in (shapes[0][0], *full)])
    if data.draw(st.booleans()):
        shapes[data.draw(st.integers(0, 4))].pop()
    inputs = maps(*(tuple(shape) for shape in shapes))
    starts = np.random.default_rng(0).integers(-(2**31), 2**31, shapes[4]) >> data.draw(
        st.sampled_from([0, 26])
    )
    patch = data.draw(st.sampled_from([1, 3, 23]))
    message = ""
    try:
        index, score = search(patch_size=patch, neighbors=k)(*inputs[:4], starts.astype(np.int32))
    except ort.capi.onnxruntime_pybind11_state.InvalidArgument as error:
        message = str(error)
    if message:
        assert NAME in message
    else:
        assert index.shape == score.shape == (shapes[0][0], k, *shapes[0][2:])
        keys = shapes[1][2] * shapes[1][3]
        assert ((index >= -1) & (index < keys)).all()
        assert (np.isfinite(score) == (index >= 0)).all()
