"""Steps, vectors and tokens beside an image: ``nystra run``, its Python form and services."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from auxiliary_models import make_image
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, RunOptions, Session, read_image, run_images, write_image
from nystra.runtime.images.images import encode_image
from nystra.runtime.tasks.restoration.quality import validate_quality
from nystra.runtime.tasks.restoration.restorer import restorer_for
from runtime_models import nystra_metadata

GRAPH = """
f (float[b,3,h,w] input, float[b] step, float[b,l,3] text, bool[b,l] kept, int64[b] kind)
  => (float[b,3,h,w] output)
<int64[3] all = {0, 1, 1}, int64[4] one = {-1, 1, 1, 1}, int64[4] three = {-1, 3, 1, 1},
 int64[1] axis = {1}, int64[1] last = {-1}, float eight = {8.0}> {
  ones = Cast <to = 1> (kept)
  column = Unsqueeze (ones, last)
  read = Mul (text, column)
  sums = ReduceSum <keepdims = 0> (read, axis)
  number_kept = ReduceSum <keepdims = 1> (ones, axis)
  mean = Div (sums, number_kept)
  color = Reshape (mean, three)
  factor = Reshape (step, one)
  number = Cast <to = 1> (kind)
  eighth = Div (number, eight)
  more = Reshape (eighth, one)
  dark = Mul (input, factor)
  tinted = Add (dark, color)
  output = Add (tinted, more)
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]>' + GRAPH)
    image = {"layout": "NCHW", "range": [0, 1]}
    value = {"role": "condition"}
    io: list[dict[str, Any]] = [
        {"name": "input", "role": "image"} | image,
        {"name": "step", "layout": "N", "range": [0, 1]} | value,
        {"name": "text", "layout": "NLK"} | value,
        {"name": "kept", "layout": "NL", "dtype": "bool"} | value,
        {"name": "kind", "layout": "N", "dtype": "int64"} | value,
        {"name": "output", "role": "picture"} | image,
    ]
    onnx.helper.set_model_props(made, nystra_metadata(1, **{"nystra.io": json.dumps(io)}))
    path = tmp_path_factory.mktemp("model") / "conditional.onnx"
    onnx.save(made, path)
    return path


TEXT = np.float32([[0.1, 0.2, 0.0], [0.3, 0.0, 0.1], [0.9, 0.9, 0.9]])
KEPT = np.array([True, True, False])
EXPECTED = make_image(16, 20) * 0.5 + TEXT[:2].mean(0) + 0.125 * 2


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", ImageData(make_image(16, 20)))
    np.save(tmp_path / "text.npy", TEXT)
    return tmp_path


def given(folder: Path, **changed: object) -> list[str]:
    values = {"step": 0.5, "text": folder / "text.npy", "kept": "1,1,0", "kind": 2} | changed
    return [word for key, value in values.items() for word in ("--inputs", f"{key}={value}")]


def test_a_run(model: Path, files: Path) -> None:
    command = ["run", str(model), "-i", str(files / "a.png"), "-o", str(files / "o.png"), "-q"]
    assert main([*command, *given(files)]) == 0
    np.testing.assert_allclose(read_image(files / "o.png").pixels, EXPECTED, atol=2 / 255)


def test_a_folder_of_values_named_like_the_images(model: Path, files: Path) -> None:
    (files / "texts").mkdir()
    np.save(files / "texts/a.npy", TEXT[None])
    options = RunOptions(
        inputs={"step": 0.5, "text": files / "texts", "kept": [1, 1, 0], "kind": 2}
    )
    run_images(model, files / "a.png", files / "o.png", options, threads=1)
    np.testing.assert_allclose(read_image(files / "o.png").pixels, EXPECTED, atol=2 / 255)
    assert RunOptions(**options.as_dict()).as_dict() == options.as_dict()


def test_tiles_get_the_same_values(model: Path) -> None:
    restorer = restorer_for(Session(model, threads=1))
    values = {"step": np.float64(0.5), "text": TEXT, "kept": KEPT, "kind": np.int64(2)}
    got, tiles = restorer(make_image(16, 20), 8, 0, auxiliary=values)
    assert tiles > 1
    np.testing.assert_allclose(got, EXPECTED, atol=1e-6)


def test_quality_with_values(model: Path, files: Path) -> None:
    for name in ("in", "truth"):
        (files / name).mkdir()
    write_image(files / "in/a.png", ImageData(make_image(16, 20)))
    write_image(files / "truth/a.png", ImageData(EXPECTED))
    values = {"step": 0.5, "text": files / "text.npy", "kept": [1, 1, 0], "kind": 2}
    session = Session(model, threads=1)
    report = validate_quality(session, files / "in", files / "truth", inputs=values)
    assert report.psnr > 50


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"step": "0.5,1"}, r"step is float64 \(2,\), expected a number from 0 to 1"),
        ({"step": 7}, "step holds values from 7 to 7, expected a number from 0 to 1"),
        ({"step": "nan"}, "step holds NaN or infinity"),
        ({"kind": 0.5}, r"kind holds fractions, expected a number \(int64\)"),
        ({"text": "1,2,3"}, "expected a list of tokens of 3 numbers, an array"),
        ({"kept": "1,1"}, "text is of 3 tokens, kept of 2: expected the same number"),
        ({"kept": "1,0.5,0"}, r"kept holds fractions, expected one number per token \(bool\)"),
        ({"kept": 1}, r"kept is float64 \(\), expected one number per token \(bool\)"),
        ({"text": "missing.npy"}, "no text or folder at missing.npy"),
        ({"other": 1}, "the model has no other input: omit --inputs other"),
    ],
)
def test_wrong_values(
    changed: dict[str, object],
    message: str,
    model: Path,
    files: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["run", str(model), "-i", str(files / "a.png"), "-o", str(files / "o.png")]
    assert main([*command, *given(files, **changed)]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error


def test_a_missing_value_is_named(
    model: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", str(model), "-i", str(files / "a.png"), "-o", str(files / "o.png")]
    assert main(command) == 2
    assert "give --inputs step=VALUE, a number from 0 to 1" in capsys.readouterr().err


def test_pickles_are_refused(model: Path, files: Path) -> None:
    np.save(files / "text.npy", np.array([{}], object), allow_pickle=True)
    values = {"step": 0.5, "text": files / "text.npy", "kept": [1, 1, 0], "kind": 2}
    options = RunOptions(inputs=values)
    with pytest.raises(NystraError, match="no array of numpy, or damaged"):
        run_images(model, files / "a.png", files / "o.png", options, threads=1)


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Any]:
    pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")
    from serving_tools import Service

    made = Service(model)
    yield made
    made.close()


def test_a_request(service: Any, files: Path) -> None:
    image = ("image", encode_image(ImageData(make_image(16, 20), bits=16), "PNG"))
    text = (files / "text.npy").read_bytes()
    parts = [image, ("step", b"0.5"), ("text", text), ("kept", b"1,1,0"), ("kind", b"2")]
    reply = service.ask("/v1/restore", parts=parts)
    assert reply.status == 200, reply.message
    (files / "r.png").write_bytes(reply.body)
    np.testing.assert_allclose(read_image(files / "r.png").pixels, EXPECTED, atol=2 / 255)
    missing = service.ask("/v1/restore", parts=parts[:2])
    assert (missing.status, missing.code) == (422, "invalid")
    assert "needs a value of its input text" in missing.message
    wrong = service.ask("/v1/restore", parts=[*parts[:4], ("kind", b"cat")])
    assert (wrong.status, wrong.code) == (400, "bad_request")
