"""An operator outside of attention is left alone, whichever it is: the cases of ONNX's own suite.

Each is put in front of a small window attention, whose input depends on its result.
"""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from later import full, release
from nystra.core.errors import UnsupportedModelError
from nystra.export.execute.sized import infer_sizes
from nystra.export.load.onnx_reading import NEWEST, OLDEST_SEARCHED
from nystra.export.rewrite.attention_search import find_attention
from onnx_files import window_attention

LACKING = {
    *("Bernoulli", "FlexAttention", "ImageDecoder", "Loop"),
    *("RoiAlign", "Scan", "Scatter", "Upsample"),
}
"""Operators whose case onnxruntime does not compute in this place."""

NOT_TRIED = {
    *("Cast", "CastLike"),  # the first cases are of types that numpy lacks; exporters write them
    "RandomUniformLike",
    *("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    *("SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence"),
}
"""Operators of ONNX without a case of numbers in one node."""

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def all_cases() -> list[Any]:
    """Return the cases of ONNX's own suite."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the casts in some cases
        return list(collect_testcases(None))


def is_of_onnx(operator: str) -> bool:
    """Return whether an opset that is read has an operator."""
    try:
        onnx.defs.get_schema(operator, NEWEST, "")
    except onnx.defs.SchemaError:
        return False
    return True


def cases() -> dict[str, onnx.ModelProto]:
    """One case of each operator, with its inputs as initializers."""
    found: dict[str, onnx.ModelProto] = {}
    for case in all_cases():
        model = onnx.ModelProto.FromString(case.model.SerializeToString())  # ONNX keeps its own
        operator = model.graph.node[0].op_type
        if len(model.graph.node) != 1 or operator in found or not _is_read(model):
            continue
        inputs, outputs = case.data_sets[0]
        if not all(map(_is_numbers, [*inputs, *outputs[:1]])):
            continue
        if not outputs[0].size or not np.isfinite(outputs[0].astype(np.float64)).all():
            continue
        for value, array in zip(model.graph.input, inputs, strict=True):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        found[operator] = model
    return found


def _is_read(model: onnx.ModelProto) -> bool:
    """Return whether a case has an opset that is read, or gets it, in place."""
    entry = next((entry for entry in model.opset_import if entry.domain == ""), None)
    if entry is None:
        return False
    if entry.version > NEWEST:
        entry.version = NEWEST
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError:  # an operator or a form of it that came later
            return False
    return True


def _is_numbers(value: object) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf"


def in_front_of_attention(case: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Return a window attention of a map to which a result of the case is added."""
    first = case.graph.node[0]
    names = {value.name: f"case_{value.name}" for value in [*case.graph.input, *case.graph.output]}

    def change(model: onnx.ModelProto) -> None:
        graph, nodes = model.graph, []
        for tensor in case.graph.initializer:
            held = graph.initializer.add()
            held.CopyFrom(tensor)
            held.name = names[tensor.name]
        nodes.append(helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0))
        inputs = []
        for value in case.graph.input:
            name, kind = names[value.name], value.type.tensor_type.elem_type
            if kind in FLOATS and not inputs:  # it depends on the image
                nodes.append(helper.make_node("Cast", ["most"], ["most_cast"], to=kind))
                nodes.append(helper.make_node("Mul", ["most_cast", "most_cast"], ["squared"]))
                nodes.append(helper.make_node("Sub", ["squared", "squared"], ["nothing"]))
                nodes.append(helper.make_node("Add", [name, "nothing"], [f"{name}_of_image"]))
                names[value.name] = f"{name}_of_image"
            inputs.append(value.name)
        node = onnx.NodeProto()
        node.CopyFrom(first)
        del node.input[:], node.output[:]
        node.input.extend(names.get(name, "") for name in first.input)
        node.output.extend(names.get(name, f"case_{name}") if name else "" for name in first.output)
        node.name = "case"
        nodes.append(node)
        result = names[case.graph.output[0].name]
        nodes.append(helper.make_node("Cast", [result], ["numbers"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("ReduceMean", ["numbers"], ["mean"], keepdims=0))
        nodes.append(helper.make_node("Tanh", ["mean"], ["small"]))
        nodes.append(helper.make_node("Add", ["x", "small"], ["x_and_case"]))
        graph.node[0].input[0] = "x_and_case"
        own = [*nodes, *graph.node]
        del graph.node[:]
        graph.node.extend(own)
        others = [entry for entry in case.opset_import if entry.domain]
        model.opset_import.extend(others)
        model.ir_version = max(model.ir_version, case.ir_version)

    opset = max((e.version for e in case.opset_import if e.domain == ""), default=18)
    return onnx.load(window_attention(path, max(opset, 13), shape=(1, 3, 8, 12), change=change))


def search_case(case: onnx.ModelProto, path: Path) -> list[tuple[str, str]] | None:
    """Return level and reason of the attention behind a case; None if onnxruntime lacks it."""
    model = in_front_of_attention(case, path)
    opset = next((e.version for e in model.opset_import if e.domain == ""), 0)
    if opset < OLDEST_SEARCHED:
        model = onnx.version_converter.convert_version(model, OLDEST_SEARCHED)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return None
    searched = ir.from_proto(model)
    image = np.random.default_rng(0).random((1, 3, 8, 12)).astype(np.float32)
    try:
        found = find_attention(searched, infer_sizes(searched, {"x": image}), None)
    except UnsupportedModelError:
        return None
    return [(a.level, a.reason) for a in found.attentions if a.path == "body.attn"]


@pytest.mark.parametrize("step", [*full(4), *release(1)])
def test_every_operator_outside_of_attention_is_left_alone(tmp_path: Path, step: int) -> None:
    operators = {case.model.graph.node[0].op_type for case in all_cases()}
    assert {name for name in operators if is_of_onnx(name)} - cases().keys() == NOT_TRIED
    searched = dict(itertools.islice(cases().items(), 0, None, step))
    found = {name: search_case(case, tmp_path / "c.onnx") for name, case in searched.items()}
    lacking = {name for name, levels in found.items() if levels is None}
    assert lacking <= LACKING, "onnxruntime computed these before"
    assert {name for name in found if found[name] != [("map", "")]} == lacking
