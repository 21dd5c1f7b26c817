"""ONNX files of other programs in ``nystra run``: sizes, ranges and types that are not stated."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import np_dtype_to_tensor_dtype

from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.ports.examples import example_array
from nystra.core.ports.port import ValueRanges
from nystra.runtime.images.image_data import ImageData, quantize
from nystra.runtime.images.images import read_image, write_image
from nystra.runtime.session import Session
from nystra.runtime.tasks.restoration.probing import is_batched
from nystra.runtime.tasks.restoration.restorer import restorer_for

IMAGE = "f (float[b,3,h,w] input) => (float[b,3,H,W] output)"
UNSHUFFLED = "{a = SpaceToDepth <blocksize = 8> (input) output = DepthToSpace <blocksize = 8> (a)}"
TO_BYTES = "<float k = {255}> {output = Mul (input, k)}"
OF_BYTES = "<float k = {255}> {output = Div (input, k)}"
HALVES = (
    "f (float16[b,3,h,w] input) => (float16[b,3,H,W] output) "
    '<float[4] s = {1, 1, 4, 4}> {output = Resize <mode = "nearest"> (input, , s)}'
)


def save(path: Path, graph: str) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>{graph}'), path)
    return path


def pixels(height: int, width: int) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3))
    return (values / 255).astype(np.float32)


def test_sides_are_padded_to_the_multiple_that_a_file_needs(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", IMAGE + UNSHUFFLED)
    with pytest.raises(NystraError):
        Session(path)(np.zeros((1, 3, 20, 33), np.float32))
    restorer = restorer_for(Session(path, threads=1))
    assert (restorer.size_multiple, restorer.scale, restorer.fixed_size) == (8, 1, None)
    for tile in (0, 16):
        output, _ = restorer(pixels(20, 33), tile, overlap=None)
        np.testing.assert_allclose(output, pixels(20, 33), atol=1e-6)


def test_each_channel_of_a_color_image_runs_as_a_gray_one(tmp_path: Path) -> None:
    """As networks of luma do, of one size."""
    pool = "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (input)"
    graph = f"f (float[1,1,8,8] input) => (float[1,1,8,8] output) {{output = {pool}}}"
    restorer = restorer_for(Session(save(tmp_path / "m.onnx", graph), threads=1))
    image = pixels(13, 9)
    grays = [restorer(image[:, :, [at]], 0, overlap=None)[0] for at in range(3)]
    output, _ = restorer(image, 0, overlap=None)
    np.testing.assert_array_equal(output, np.concatenate(grays, axis=2))


@pytest.mark.parametrize(
    ("graph", "taken", "given"),
    [
        (TO_BYTES, (0.0, 1.0), (0.0, 255.0)),
        (OF_BYTES, (0.0, 255.0), (0.0, 1.0)),
        ("{output = Identity (input)}", (0.0, 1.0), (0.0, 1.0)),
    ],
)
def test_ranges(tmp_path: Path, graph: str, taken: object, given: object) -> None:
    restorer = restorer_for(Session(save(tmp_path / "m.onnx", IMAGE + graph), threads=1))
    assert (restorer.range, restorer.output_range) == (taken, given)
    np.testing.assert_allclose(restorer(pixels(9, 11))[0], pixels(9, 11), atol=1e-5)


@pytest.mark.parametrize("side", [32, 48])
def test_a_file_of_one_size_that_it_does_not_state(tmp_path: Path, side: int) -> None:
    zeros = onnx.numpy_helper.from_array(np.zeros((1, 1, side, side), np.float32), "k")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>' + IMAGE + "{output = Add (input, k)}"
    )
    model.graph.initializer.append(zeros)
    onnx.save(model, tmp_path / "m.onnx")
    restorer = restorer_for(Session(tmp_path / "m.onnx", threads=1))
    assert restorer.fixed_size == (side, side)
    np.testing.assert_allclose(restorer(pixels(40, 20))[0], pixels(40, 20), atol=1e-6)


def test_a_file_that_returns_another_shape_for_other_sizes(tmp_path: Path) -> None:
    shape = onnx.numpy_helper.from_array(np.array([0, 3, -1, 32]), "k")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>' + IMAGE + "{output = Reshape (input, k)}"
    )
    model.graph.initializer.append(shape)
    onnx.save(model, tmp_path / "m.onnx")
    restorer = restorer_for(Session(tmp_path / "m.onnx", threads=1))
    assert restorer.fixed_size == (32, 32)


def test_half_precision_in_tiles(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", HALVES)
    write_image(tmp_path / "in.png", ImageData(pixels(40, 37)))
    arguments = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png", "-t", "32"]
    assert main(["run", str(path), *arguments, "--threads", "1", "-q"]) == 0
    expected = pixels(40, 37).repeat(4, axis=0).repeat(4, axis=1)
    got = read_image(tmp_path / "out.png").pixels
    np.testing.assert_array_equal(quantize(got, 8), quantize(expected, 8))


CLIPPED = "<float k = {255}, float z = {0}> {output = Clip (input, z, k)}"


@pytest.mark.parametrize(
    ("graph", "ranges"),
    [
        (CLIPPED, None),
        ("<float k = {10}> {output = Add (input, k)}", None),
        ("<float k = {255}, float z = {0}> {x = Clip (input, z, k) output = Div (x, k)}", None),
        ("<float k = {1}, float z = {0}> {output = Clip (input, z, k)}", None),
        (
            "<float k = {127.5}, float o = {1}> {x = Sub (input, k) output = Div (x, k)}",
            "255,-1..1",
        ),
    ],
)
def test_ranges_of_trained_networks(tmp_path: Path, graph: str, ranges: str | None) -> None:
    path = save(tmp_path / "m.onnx", IMAGE + graph)
    restored, _ = restorer_for(Session(path, threads=1, range=ranges))(pixels(40, 37))
    np.testing.assert_allclose(
        restored, pixels(40, 37), atol=10.01 / 255 if "10}" in graph else 1e-5
    )


UNIT = (0.0, 1.0)
INTEGERS = {"uint8": (0, 255), "uint16": (0, 65535), "int8": (-128, 127), "int32": (0, 255)}
FORMS = [("float32", text) for text in ("0..1", "-1..1", "255", "0..255,0..1", "0..1,0..1023")]
FORMS += [("float16", "0..1"), ("float16", "255"), *((kind, None) for kind in INTEGERS)]


@pytest.mark.full
@pytest.mark.parametrize(("kind", "value_range"), FORMS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "HWC", "bhwc"])
def test_every_range_type_and_layout(
    tmp_path: Path, kind: str, value_range: str | None, layout: str
) -> None:
    """Each file computes the same as the plain one of float32, NCHW and 0..1."""
    plain = save_in_form(tmp_path / "plain.onnx", "float32", "NCHW", (UNIT, UNIT))
    ranges = (INTEGERS.get(kind, UNIT),) * 2
    if value_range is not None:
        ranges = ValueRanges(None, "").read("range", value_range)
    path = save_in_form(tmp_path / "m.onnx", kind, layout, ranges)
    image = pixels(24, 19)
    expected, _ = restorer_for(Session(plain, threads=1))(image)
    restorer = restorer_for(Session(path, threads=1, range=value_range))
    assert (restorer.scale, restorer.input_channels, restorer.output_channels) == (2, 3, 3)
    step = 2e-3 if kind == "float16" else 1.01 / 255 if kind in INTEGERS else 1e-5
    for tile in (0, 16):
        got, _ = restorer(image, tile, None)
        np.testing.assert_allclose(got, expected, atol=step)


def save_in_form(path: Path, kind: str, layout: str, ranges: object) -> Path:
    """Write an upscaler that squares 0..1, in a type, a layout and ranges of input and output."""
    (low, high), (least, most) = ranges
    last, batched = layout != "NCHW", layout != "HWC"
    sides = {"NHWC": "b,{h},{w},3", "bhwc": "b,{h},{w},c", "HWC": "{h},{w},3"}
    shape = sides.get(layout, "b,3,{h},{w}")
    nodes = [
        "f0 = Cast <to = 1> (input)",
        "f1 = Identity (f0)" if batched else "f1 = Unsqueeze (f0, axis)",
        "f2 = Transpose <perm = [0, 3, 1, 2]> (f1)" if last else "f2 = Identity (f1)",
        "f3 = Sub (f2, low)",
        "f4 = Div (f3, span)",
        "f5 = Mul (f4, f4)",
        'f6 = Resize <mode = "nearest"> (f5, , scales)',
        "f7 = Mul (f6, range)",
        "f8 = Add (f7, least)",
        "f9 = Round (f8)" if kind in INTEGERS else "f9 = Identity (f8)",
        "f10 = Transpose <perm = [0, 2, 3, 1]> (f9)" if last else "f10 = Identity (f9)",
        "f11 = Identity (f10)" if batched else "f11 = Squeeze (f10, axis)",
        f"output = Cast <to = {np_dtype_to_tensor_dtype(np.dtype(kind))}> (f11)",
    ]
    constants = {"low": low, "span": high - low, "range": most - least, "least": least}
    floats = ", ".join(f"float {name} = {{{value}}}" for name, value in constants.items())
    name = "float" if kind == "float32" else kind
    graph = (
        f"f ({name}[{shape.format(h='h', w='w')}] input) => "
        f"({name}[{shape.format(h='H', w='W')}] output) "
        f"<{floats}, float[4] scales = {{1, 1, 2, 2}}, int64[1] axis = {{0}}>"
    )
    return save(path, f"{graph}{{{' '.join(nodes)}}}")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ("<float k = {255}> {output = Sub (k, input)}", "far outside 0..1"),
        ("<float k = {2}> {x = Sub (input, input) output = Add (x, k)}", "far outside 0..1"),
        ("<float k = {0.3}> {x = Sub (input, input) output = Add (x, k)}", "almost no contrast"),
        ("<float k = {0.2}> {output = Add (input, k)}", ""),
    ],
)
def test_an_output_of_another_range_is_refused(
    tmp_path: Path, graph: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "m.onnx", IMAGE + graph)
    write_image(tmp_path / "in.png", ImageData(pixels(40, 37)))
    out = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png"]
    assert main(["run", str(path), *out, "--threads", "1"]) == (1 if words else 0)
    printed = " ".join("".join(capsys.readouterr()).split())
    assert ("than 0..1 with which it was run. Try --range 0..255" in printed) == bool(words)
    assert words in printed
    assert (tmp_path / "out.png").exists() == (not words)
    if "almost" in words:
        assert main(["run", str(path), *out, "--range", "0..255"]) == 1
        printed = " ".join("".join(capsys.readouterr()).split())
        assert "than 0..255 with which it was run. Try --range -1..1 or 0..1,0..255" in printed


@pytest.mark.parametrize("level", [0.0, 0.02, 0.97, 1.0])
def test_honest_images_without_contrast_pass(tmp_path: Path, level: float) -> None:
    path = save(tmp_path / "m.onnx", IMAGE + "<float k = {1.02}> {output = Mul (input, k)}")
    page = np.full((40, 37, 3), level, np.float32)
    page[3:5, 4:9] = 1 - level
    for image in (page, np.full_like(page, level)):
        write_image(tmp_path / "in.png", ImageData(image), overwrite=True)
        out = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png", "--overwrite", "-q"]
        assert main(["run", str(path), *out, "--threads", "1"]) == 0


MASK = (
    "f (float[b,3,h,w] input) => (float[b,1,h,w] output) <float t = {1.5}, int64[1] axes = {1}> "
    "{m = ReduceMean (input, axes) found = Greater (m, t) output = Cast <to = 1> (found)}"
)
BINARY = IMAGE + "<float t = {0.5}> {light = Greater (input, t) output = Cast <to = 1> (light)}"
CLIPPED = IMAGE + "<float a = {0}, float b = {1}> {output = Clip (input, a, b)}"


@pytest.mark.parametrize(
    ("graph", "more", "code"),
    [(BINARY, (), 0), (MASK, (), 0), (CLIPPED, (), 0), (CLIPPED, ("--range", "255"), 1)],
)
def test_an_answer_without_contrast_is_no_other_range(
    tmp_path: Path,
    graph: str,
    more: tuple[str, ...],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dark page in black and white, and a mask of nothing, ended with a wrong range."""
    path = save(tmp_path / "m.onnx", graph)
    write_image(tmp_path / "in.png", ImageData(pixels(40, 37) * np.float32(0.45)))
    files = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png"]
    assert main(["run", str(path), *files, "--threads", "1", *more]) == code
    printed = "".join(capsys.readouterr())
    assert ("all 1480 values" in printed or "values are 0" in printed) == (graph in (BINARY, MASK))
    assert ("--range" in printed) == bool(code)


def test_a_stated_range_through_the_command(tmp_path: Path) -> None:
    ranges = ((0, 1023), (0, 65535))
    path = save_in_form(tmp_path / "m.onnx", "uint16", "NHWC", ranges)
    write_image(tmp_path / "in.png", ImageData(pixels(20, 20)))
    out = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png", "-q"]
    assert main(["run", str(path), *out, "--range", "0..1023,65535", "--threads", "1"]) == 0
    expected = restorer_for(Session(path, threads=1, range=ranges))(pixels(20, 20))[0]
    np.testing.assert_allclose(read_image(tmp_path / "out.png").pixels, expected, atol=0.6 / 255)


@pytest.mark.parametrize("text", ["", "a", "1..0", "0..1..2", "0..1,0..1,0..1", "0..inf", "5e9"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(NystraError, match="expected LOW"):
        ValueRanges(None, "").read("range", text)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_an_example_for_the_clock_is_noise_in_the_range(tmp_path: Path, kind: str) -> None:
    ranges = (INTEGERS.get(kind, UNIT),) * 2
    path = save_in_form(tmp_path / "m.onnx", kind, "NHWC", ranges)
    (port,) = Session(path, threads=1).facts.inputs
    example = example_array(port, {"height": 20, "width": 30})
    assert (example.shape, example.dtype) == ((1, 20, 30, 3), np.dtype(kind))
    assert ranges[0][1] * 0.9 < example.max() <= ranges[0][1]


@pytest.mark.parametrize("least", [0.3, 0.7, 0.9, 1.5])
def test_a_model_that_asks_for_the_mean_of_a_batch_is_not_batched(least: float) -> None:
    def brighter(images: np.ndarray) -> np.ndarray:
        return images + np.float32(images.mean() > least)

    assert not is_batched(brighter, (2, 3, 8, 8))
    assert is_batched(lambda images: images + images.mean((1, 2, 3), keepdims=True), (2, 3, 8, 8))


def test_a_model_without_numbers_beyond_its_range_is_batched() -> None:
    with np.errstate(invalid="ignore"):
        assert is_batched(lambda images: np.sqrt(1 - images), (2, 3, 8, 8))
