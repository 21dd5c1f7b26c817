"""ONNX files of other programs in ``nystra run``: sizes, ranges and types that are not stated."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime.images.image_data import ImageData, quantize
from nystra.runtime.images.images import read_image, write_image
from nystra.runtime.session import Session
from nystra.runtime.tasks.restoration.session_restorer import restorer_for

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


def test_a_file_of_one_size_that_it_does_not_state(tmp_path: Path) -> None:
    zeros = onnx.numpy_helper.from_array(np.zeros((1, 1, 32, 32), np.float32), "k")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]>' + IMAGE + "{output = Add (input, k)}"
    )
    model.graph.initializer.append(zeros)
    onnx.save(model, tmp_path / "m.onnx")
    restorer = restorer_for(Session(tmp_path / "m.onnx", threads=1))
    assert restorer.fixed_size == (32, 32)
    np.testing.assert_allclose(restorer(pixels(40, 20))[0], pixels(40, 20), atol=1e-6)


def test_half_precision_in_tiles(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", HALVES)
    write_image(tmp_path / "in.png", ImageData(pixels(40, 37)))
    arguments = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png", "-t", "32"]
    assert main(["run", str(path), *arguments, "--threads", "1", "-q"]) == 0
    expected = pixels(40, 37).repeat(4, axis=0).repeat(4, axis=1)
    got = read_image(tmp_path / "out.png").pixels
    np.testing.assert_array_equal(quantize(got, 8), quantize(expected, 8))


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (
            "<float k = {255}> {output = Sub (k, input)}",
            "almost no contrast, with a mean of 1 in 0..1",
        ),
        ("<float k = {10}> {output = Add (input, k)}", "almost no contrast, with a mean of 0.04"),
        ("<float k = {2}> {output = Add (input, k)}", "100% of the output is far outside 0..1"),
        ("<float k = {0.2}> {output = Add (input, k)}", ""),
    ],
)
def test_a_range_that_nothing_states_is_doubted(
    tmp_path: Path, graph: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "m.onnx", IMAGE + graph)
    write_image(tmp_path / "in.png", ImageData(pixels(40, 37)))
    out = ["-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png"]
    assert main(["run", str(path), *out, "--threads", "1"]) == 0
    printed = " ".join("".join(capsys.readouterr()).split())
    assert ("has to be wrapped" in printed) == bool(words)
    assert words in printed
