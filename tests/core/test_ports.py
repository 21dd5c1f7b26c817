"""Ports: what is created from them, and their form in a file's metadata."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from nystra.core.errors import NystraError
from nystra.core.ports.examples import example_array, example_arrays, own_sizes, trace_size
from nystra.core.ports.listing import write_ports
from nystra.core.ports.port import FRAMES_AXES, LOGITS_AXES, Port, image_size
from nystra.runtime.compiled.model import EngineShapes, make_profile
from nystra.runtime.model.model_facts import ModelFacts, TensorInfo, parse_facts
from nystra.runtime.model.onnx_graph import read_facts, read_inputs
from nystra.runtime.session import Session
from runtime_models import nystra_metadata, save_upscaler

IMAGE = Port("input", "image", lengths={"channels": 3}, range=(-1.0, 3.0), multiple=8)
MASK = Port("mask", "mask", lengths={"channels": 1})
REFERENCE = Port("reference", "reference", lengths={"channels": 3}, own_size=True)
FRAMES = Port("frames", "frames", FRAMES_AXES, {"channels": 3})
CROP = Port("input", "image", lengths={"channels": 3, "height": 8, "width": 8})
LOGITS = Port("logits", "logits", LOGITS_AXES, {"classes": 5}, range=None)


def test_shapes_by_named_axes() -> None:
    size = image_size(6, 9)
    assert IMAGE.shape(size) == (1, 3, 6, 9)
    assert FRAMES.shape(size | {"frames": 2, "batch": 4}) == (4, 2, 3, 6, 9)
    assert FRAMES.shape(size) == (1, 5, 3, 6, 9)
    assert REFERENCE.shape(size) == (1, 3, 6, 9)
    assert REFERENCE.shape(size | {"reference_height": 4}) == (1, 3, 4, 9)
    assert LOGITS.shape({}) == (1, 5)
    assert CROP.shape({"batch": 2}) == (2, 3, 8, 8)
    with pytest.raises(NystraError, match="'input' has the fixed size 8x8, got 6x9"):
        CROP.shape(size)
    with pytest.raises(NystraError, match="the width of 'input' has no fixed length"):
        IMAGE.shape({"height": 4})
    assert IMAGE.fix_lengths(size).sides == size
    assert IMAGE.fix_lengths(size).free_axes() == {}


def test_free_axes_are_named_for_the_whole_network() -> None:
    assert IMAGE.free_axes() == {0: "batch", 2: "height", 3: "width"}
    assert REFERENCE.free_axes() == {0: "batch", 2: "reference_height", 3: "reference_width"}
    assert FRAMES.free_axes() == {0: "batch", 1: "frames", 3: "height", 4: "width"}
    assert LOGITS.free_axes() == {0: "batch"}


def test_a_tracer_meets_no_two_equal_free_axes() -> None:
    ports = (FRAMES, REFERENCE)
    size = trace_size(ports, image_size(15, 19))
    lengths = {
        name: port.shape(size)[place] for port in ports for place, name in port.free_axes().items()
    }
    assert len(set(lengths.values())) == len(lengths) == 6
    assert min(lengths.values()) > 1
    assert trace_size([IMAGE.fix_lengths(image_size(8, 9))], {}) == {}
    assert own_sizes([CROP], image_size(8, 8)) == image_size(8, 8)


def test_examples_are_noise_in_range_a_hole_or_zeros() -> None:
    arrays = example_arrays([IMAGE, MASK], image_size(6, 9))
    assert list(arrays) == ["input", "mask"]
    assert arrays["input"].dtype == np.float32
    assert -1.0 <= arrays["input"].min() < 0.0 < 2.0 < arrays["input"].max() <= 3.0
    hole = np.zeros((6, 9))
    hole[2:4, 3:6] = 1.0
    np.testing.assert_array_equal(arrays["mask"], hole[None, None])
    text = Port("text", "condition", ("batch", "steps", "classes"), {"classes": 2})
    kept = Port("kept", "condition", ("batch", "steps"), range=None, dtype="bool")
    arrays = example_arrays([text, kept], {"batch": 2})
    assert arrays["text"].shape == (2, 8, 2)
    assert arrays["kept"].tolist() == [[True] * 6 + [False] * 2] * 2
    half = example_array(
        Port("x", "frames", FRAMES_AXES, {"channels": 1}, dtype="float16"),
        {"height": 2, "width": 3, "frames": 7},
    )
    assert (half.shape, half.dtype) == ((1, 7, 1, 2, 3), np.float16)
    assert example_array(Port("x", "unknown", ("batch",), dtype="int64"), {}).tolist() == [0]


def test_a_profile_of_frames_and_of_a_fixed_crop() -> None:
    profile = make_profile([FRAMES, MASK], EngineShapes(), 16)
    assert profile["frames"][1] == (1, 5, 3, 16, 16)
    assert profile["mask"][1] == (1, 1, 16, 16)
    assert make_profile([CROP], EngineShapes())["input"][2] == (1, 3, 8, 8)


@pytest.mark.parametrize("ports", [(IMAGE, MASK), (FRAMES, REFERENCE), (CROP, LOGITS)])
def test_the_listing_comes_back(ports: tuple[Port, ...]) -> None:
    tensors = [
        TensorInfo(
            port.name,
            tuple(
                port.free_axes().get(place, port.lengths.get(axis))
                for place, axis in enumerate(port.axes)
            ),
            port.dtype,
        )
        for port in ports
    ]
    assert parse_facts({"nystra.io": write_ports(ports)}, tensors, []).inputs == ports


def test_the_listing_of_an_image_is_what_files_always_said() -> None:
    assert write_ports([Port("output", "picture", lengths={"channels": 3}, multiple=2)]) == (
        '[{"dtype": "float32", "layout": "NCHW", "multiple": 2, "name": "output", '
        '"range": [0.0, 1.0], "role": "picture"}]'
    )


def entry(**changes: Any) -> str:
    return json.dumps([{"name": "input", "role": "image"} | changes])


HOSTILE = [
    ("{", "is not valid JSON"),
    ("[" * 60000, "is not valid JSON"),
    (f'[{{"name": "input", "role": "image", "multiple": {"9" * 5000}}}]', "is not valid JSON"),
    (" " * 70000, "70000 characters"),
    ('{"name": "input"}', "expected a list of objects"),
    (entry(name=["input"]), r"has the name \['input'\], expected 1 to 512"),
    (entry(name=""), "has the name ''"),
    (entry(role={"a": 1}), "has the role {'a': 1}, expected 1 to 512"),
    (entry(role="x" * 600), "has the role 'xxx"),
    (entry(dtype=3), "has the dtype 3"),
    (entry(range=[0, 1e400]), "is not valid JSON"),
    (entry(range=[0, 10**17]), "expected two numbers"),
    (entry(range=[float("nan"), 1]), "is not valid JSON"),
    (entry(range=[True, 2]), "expected two numbers"),
    (entry(range=[1, 0]), "expected two numbers"),
    (entry(multiple=0), "from 1 to 16384"),
    (entry(multiple=10**17), "from 1 to 16384"),
    (entry(multiple=2.0), "from 1 to 16384"),
    (entry(layout="NCXW"), "expected letters of NTCHWKGL such as NCHW"),
    (entry(layout="NCHH"), "each once"),
    (entry(layout=""), "expected letters"),
    (entry(layout=["N"]), "expected letters"),
    (entry(layout="NK"), "the layout NK, its shape is"),
    (json.dumps([{"name": "a", "role": "b"}] * 2), "different ones"),
    (json.dumps([{"name": f"a{i}", "role": "b"} for i in range(100)]), "at most 64"),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE)
def test_a_hostile_listing_is_one_clear_error(text: str, message: str) -> None:
    tensor = TensorInfo("input", ("b", 3, "h", "w"), "float32")
    with pytest.raises(NystraError, match=message) as caught:
        parse_facts({"nystra.io": text}, [tensor], [])
    assert "nystra.io" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scale", "0"),
        ("scale", "9" * 5000),
        ("scale", "³"),
        ("nystra.range", "[0, Infinity]"),
        ("nystra.range", f"[0, 1{'0' * 400}]"),
        ("nystra.range", "[0.0, 2.0]"),
        ("nystra.quadratic_bytes", "Infinity"),
        ("nystra.quadratic_bytes", f"1{'0' * 400}"),
        ("nystra.quadratic_bytes", "NaN"),
        ("nystra.size_minimum", f"1{'0' * 30}"),
        ("nystra.size_multiple", "99999"),
        ("nystra.window", "[8, 8, 8, 8]"),
        ("nystra.window", "[8, -8]"),
        ("nystra.window", f"{'[' * 60000}"),
        ("input_channels", "4"),
    ],
)
def test_a_hostile_number_is_one_clear_error(key: str, value: str) -> None:
    tensors = [TensorInfo(name, ("b", 3, "h", "w"), "float32") for name in ("input", "output")]
    parse_facts(nystra_metadata(), tensors[:1], tensors[1:])
    with pytest.raises(NystraError, match=key) as caught:
        parse_facts(nystra_metadata(**{key: value}), tensors[:1], tensors[1:])
    assert len(str(caught.value)) < 500


def test_a_window_may_have_three_sides() -> None:
    assert parse_facts({"nystra.window": "[2, 8, 8]"}, [], []).window == (2, 8, 8)
    assert parse_facts({"nystra.window": "7"}, [], []).window == (7, 7)


def test_a_size_of_its_own_is_seen_in_the_graph() -> None:
    listed = {"nystra.io": write_ports([IMAGE, REFERENCE, MASK])}
    tensors = [
        TensorInfo("input", ("b", 3, "h", "w"), "float32"),
        TensorInfo("reference", ("b", 3, "rh", "rw"), "float32"),
        TensorInfo("mask", ("b", 1, "h", "w"), "float32"),
    ]
    facts = parse_facts(listed, tensors, [])
    assert [port.own_size for port in facts.inputs] == [False, True, False]


def test_the_file_tells_its_inputs_without_a_backend(tmp_path: Path) -> None:
    for path in (
        save_upscaler(tmp_path / "open.onnx", metadata=nystra_metadata()),
        save_upscaler(tmp_path / "half.onnx", size=(5, 7), dtype=onnx.TensorProto.FLOAT16),
    ):
        session = Session(path, threads=1)
        assert read_inputs(path) == list(session.inputs)
        assert read_facts(path).inputs == session.facts.inputs
    assert read_facts(tmp_path / "half.onnx").sides == image_size(5, 7)
    model = onnx.load(tmp_path / "open.onnx")
    model.graph.input.append(helper.make_tensor_value_info("gain", 1, [4, 3, 8, 8]))
    onnx.save(model, tmp_path / "old.onnx")
    assert [tensor.name for tensor in read_inputs(tmp_path / "old.onnx")] == ["input"]


def test_no_image_no_frames_no_error() -> None:
    facts = parse_facts({}, [TensorInfo("tokens", ("n", 7), "int64")], [])
    assert facts.inputs == (
        Port("tokens", "unknown", LOGITS_AXES, {"classes": 7}, None, 1, "int64"),
    )
    assert facts.image is None
    assert ModelFacts().output_image is None
