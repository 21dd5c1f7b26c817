"""The program that test_library_fuzz.py starts: every operator, random nodes and inputs.

``library_fuzz.py EXAMPLES LOG``: each example is written to LOG before it runs, so that whoever
started this can tell which one killed it. An example that the reference computes must run
and give the same; any other must be refused in words that name the operator and what it expects.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance_tolerance import check
from native_nodes import NODES, node_session
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.schema import PLUGIN_ATTRIBUTES, Attribute
from operator_tests import find_reference

HUGE = 2**62
WILD = {
    "int": [-HUGE, -1, 0, 1, 2, 3, 7, 63, 64, 65, 1024, 1025, 2**31, 2**32 + 1, HUGE],
    "float": [-1.0, -0.0, 0.0, 0.02, 0.5, 1.0, 30.0, 1e6, 1e38, float("inf"), float("nan")],
}
SAID = ("expected", "missing or not", "supports revision", "is invalid", "Type Error", "kernel def")
"""One of these says what was expected; the last three are onnxruntime's, of element types."""

LARGEST = 4  # of the sizes of near-valid nodes: rows of a window, heads, ...


@st.composite
def examples(draw: st.DrawFn, operator: str) -> dict[str, Any]:
    """A node and its inputs, valid or with up to two faults."""
    schema = find_schema(operator)
    values = {attribute.name: draw(_value(attribute)) for attribute in schema.attributes[:-1]}
    values["revision"] = 1
    if operator == "NystraPatchMatch":
        values["patch_size"] = draw(st.sampled_from([1, 3]))
    for axis in "hw":
        if f"shift_{axis}" in values:
            window = int(values[f"window_{axis}"])
            values[f"shift_{axis}"] = draw(st.sampled_from([0, window // 2, window - 1]))
    shapes = draw(_shapes(operator, values))
    dtype = draw(st.sampled_from(["float32", "float32", "float16"]))
    dtypes = ["int32" if name in schema.int32 else dtype for name in schema.inputs]
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2]))):
        place = draw(st.integers(0, len(shapes) - 1))
        match draw(st.sampled_from(["attribute", "kind", "missing", "size", "rank", "type"])):
            case "attribute":
                attribute = draw(st.sampled_from(schema.attributes))
                values[attribute.name] = draw(st.sampled_from(WILD[attribute.kind]))
            case "kind":
                name = draw(st.sampled_from(schema.attributes)).name
                values[name] = draw(st.sampled_from(["text", [1, 2], 0.25, 3]))
            case "missing":
                values.pop(draw(st.sampled_from(schema.attributes)).name, None)
            case "size" if shapes[place]:
                axis = draw(st.integers(0, len(shapes[place]) - 1))
                shapes[place][axis] = draw(st.integers(0, 9))
            case "rank":
                shapes[place] = draw(st.lists(st.integers(0, 4), max_size=6))
            case "type":
                kinds = ["float32", "float16", "float64", "int32", "int64"]
                dtypes[place] = draw(st.sampled_from(kinds))
            case _:
                pass
    return {
        "attributes": values,
        "shapes": shapes,
        "dtypes": dtypes,
        "values": draw(st.sampled_from(["integer", "normal", "integer", "nan", "huge"])),
        "seed": draw(st.integers(0, 9)),
        "threads": draw(st.integers(1, 3)),
    }


def _value(attribute: Attribute) -> st.SearchStrategy[int | float]:
    """A value that the schema accepts, small if it is a size."""
    if attribute.kind == "float":
        least = max(attribute.minimum, -4)
        least = max(least, 2.0**-14) if least > 0 else least  # the smallest normal float16
        return st.floats(least, min(attribute.maximum, 4), width=16)
    return st.sampled_from(range(int(attribute.minimum), int(min(attribute.maximum, LARGEST)) + 1))


@st.composite
def _shapes(draw: st.DrawFn, operator: str, values: dict[str, Any]) -> list[list[int]]:
    """Input shapes that fit the attributes."""
    few = st.sampled_from([1, 2, 1, 0])
    if operator == "NystraPinv":
        m = draw(st.integers(1, 9))
        return [[*draw(st.lists(few, max_size=2)), m, m]]
    if operator == "NystraAttention":
        batch, heads, queries, keys, d, e = (draw(st.integers(1, 5)) for _ in range(6))
        full = [batch, heads, queries, keys]
        bias = [size if draw(st.booleans()) else 1 for size in full]
        lists = [[batch, heads, n, c] for n, c in ((queries, d), (keys, d), (keys, e))]
        return [*lists, bias if values["bias"] else [1]]
    if operator == "NystraPatchMatch":
        batch, channels = draw(few), draw(st.integers(1, 3))
        sides = st.integers(1, 5)
        h, w, hk, wk = (draw(sides) for _ in range(4))
        whole = [[batch, 1, h, w], [batch, 1, hk, wk], [batch, values["neighbors"], h, w]]
        broadcast = [shape if draw(st.booleans()) else [1, 1, 1, 1] for shape in whole]
        return [[batch, channels, h, w], [batch, channels, hk, wk], *broadcast]
    channels = values["heads"] * (2 * values["head_dim"] + values["value_dim"])
    size = [draw(few) * values["window_h"], draw(st.integers(1, 2)) * values["window_w"]]
    shapes = [[draw(st.integers(1, 2)), *size, channels]]
    if "bias" in values:
        shapes.append([_bias_rows(values), values["heads"]] if values["bias"] else [1])
    if "epsilon" in values:
        shapes.append([values["heads"]])
    return shapes


def _bias_rows(values: dict[str, Any]) -> int:
    """Rows of the bias table: one per offset of query and key."""
    rows, cols = (
        2 * (values[f"window_{axis}"] + values.get(f"margin_{axis}", 0)) - 1 for axis in "hw"
    )
    return int(rows * cols)


def _inputs(operator: str, example: dict[str, Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(example["seed"])
    whole = example["values"] == "integer"
    whole &= operator != "NystraWindowCluster"  # a key as near to two centers: rounding decides
    drawn = []
    names = find_schema(operator).inputs
    for name, shape, dtype in zip(names, example["shapes"], example["dtypes"], strict=True):
        values = rng.integers(-3, 4, shape) if whole else None
        values = rng.standard_normal(shape) if values is None else values.astype(np.float64)
        if name == "start":
            values = rng.integers(-2, 30, shape).astype(np.float64)
        elif example["values"] == "huge":
            values = values * 1e4
        elif example["values"] == "nan" and values.size:
            values.reshape(-1)[rng.integers(values.size)] = np.nan
        with np.errstate(all="ignore"):
            drawn.append(np.asarray(values).astype(dtype))
    return drawn


def _expected(operator: str, example: dict[str, Any], inputs: list[np.ndarray]) -> Any:
    """The output of the reference, or the error of the reference or the schema."""
    schema, values = find_schema(operator), example["attributes"]
    missing = [attribute.name for attribute in schema.attributes if attribute.name not in values]
    exact = {
        attribute.name: int if attribute.kind == "int" else float for attribute in schema.attributes
    }
    wrong = [name for name, value in values.items() if type(value) is not exact[name]]
    types = {x.dtype for x, n in zip(inputs, schema.inputs, strict=True) if n not in schema.int32}
    starts = {x.dtype for x, n in zip(inputs, schema.inputs, strict=True) if n in schema.int32}
    if missing or wrong or len(types) > 1 or types - {np.dtype("f4"), np.dtype("f2")}:
        return TypeError(f"missing {missing}, wrong {wrong}, types {types}")
    if starts - {np.dtype("i4")}:
        return TypeError(f"starts {starts}")
    if _broadcasts(operator, values, inputs):
        return ValueError("a shape that the reference broadcasts")
    try:
        with np.errstate(all="ignore"):
            return find_reference(operator)(*inputs, **schema.validate(values))
    except Exception as error:
        return error


def _broadcasts(operator: str, values: dict[str, Any], inputs: list[np.ndarray]) -> bool:
    """Whether numpy would broadcast a wrong shape, so that the reference accepts it."""
    if operator == "NystraPinv":
        return inputs[0].shape[-1:] != inputs[0].shape[-2:-1]
    if operator == "NystraPatchMatch":
        return any(array.ndim != 4 for array in inputs)
    if operator == "NystraAttention":
        return False  # its reference checks all shapes
    if operator == "NystraWindowCosine" and inputs[2].shape != (values["heads"],):
        return True
    if values.get("bias", 0) == 0:
        return False
    return inputs[1].shape != (_bias_rows(values), values["heads"])


def _difficulty(operator: str, example: dict[str, Any], inputs: list[np.ndarray]) -> np.ndarray:
    """The plain torch function in float32."""
    module = importlib.import_module(f"nystra.plugins.operators.{OPERATORS[operator]}.torch_op")
    values = {name: v for name, v in example["attributes"].items() if name != "revision"}
    tensors = [torch.from_numpy(array).float() for array in inputs]
    result: np.ndarray = getattr(module, OPERATORS[operator])(*tensors, **values).numpy()
    return result.astype(inputs[0].dtype)


def try_one(operator: str, example: dict[str, Any]) -> str:
    """Run one example and compare; return the outcome."""
    inputs = _inputs(operator, example)
    values = {**example["attributes"], **PLUGIN_ATTRIBUTES}
    want = _expected(operator, example, inputs)
    try:
        runner = node_session(operator, values, inputs, example["threads"])
        got: Any = runner.run(None, {f"x{i}": array for i, array in enumerate(inputs)})
    except Exception as error:
        text = str(error)
        assert operator in text, f"the operator is not named: {text}"
        assert any(word in text for word in SAID), (
            f"the message does not name what is expected: {text}"
        )
        empty = any(0 in shape for shape in example["shapes"])
        assert isinstance(want, Exception) or empty, f"refused, the reference takes it: {text}"
        return "refused"
    if any(0 in shape for shape in example["shapes"]):
        return "empty"
    assert not isinstance(want, Exception), f"taken, the reference refuses it: {want!r}"
    if example["values"] in ("nan", "huge"):
        return "ran"
    if operator == "NystraPatchMatch":
        if example["values"] == "integer" and example["attributes"]["metric"] != 2:
            for output, other in zip(got, want, strict=True):
                np.testing.assert_array_equal(output.astype(np.float64), other.astype(output.dtype))
            return "compared"
        return "ran"
    largest = np.abs(want).max()
    error = np.abs(_difficulty(operator, example, inputs) - want).max()
    bound = max(8 * error, largest * (2e-6 if inputs[0].dtype == np.float32 else 2**-10))
    if bound > 0.1 * largest:  # float32 has no say: an ill-conditioned pseudoinverse
        return "ran"
    check(got[0], want, bound)
    return "compared"


def try_many(operator: str, count: int, log: Path) -> None:
    """Try ``count`` examples of an operator, the same ones each time."""
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        print_blob=False,
    )
    @given(example=examples(operator))
    def fuzz(example: dict[str, Any]) -> None:
        log.write_text(repr(example))
        outcomes[try_one(operator, example)] += 1

    fuzz()
    least = count // 20
    assert outcomes["refused"] >= least, (operator, outcomes)
    assert outcomes["compared"] >= least, (operator, outcomes)
    print(operator, dict(outcomes), flush=True)  # noqa: T201


if __name__ == "__main__":
    for name in NODES:
        try_many(name, int(sys.argv[1]), Path(sys.argv[2]))
