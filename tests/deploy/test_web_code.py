"""The code of the page in Node.js: the tiles of `nystra run`, and the files that it reads."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.core.arrays import Array
from nystra.runtime.images.image_data import quantize
from nystra.runtime.model.references import ReferenceCase, write_references
from nystra.runtime.tasks.restoration.restorer import Restorer
from runtime_models import nystra_metadata, save_upscaler
from shared import ROOT

PAGE = ROOT / "deploy" / "web" / "page"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's code in a folder where Node.js loads it as modules."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    folder = tmp_path_factory.mktemp("page")
    for file in PAGE.glob("*.js"):
        shutil.copy(file, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def lines_of(script: str, *arguments: Path, text: str = "") -> list[Any]:
    command = ["node", str(ROOT / "web" / "test" / script), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def places(image: Array, scale: int) -> Array:
    """The network of ``web/test/tiles.mjs``."""
    large = image.repeat(scale, axis=2).repeat(scale, axis=3)
    rows, columns = (np.arange(side, dtype=np.float32) / side for side in large.shape[2:])
    added: Array = large + rows[:, None] + columns / 2
    return added.astype(np.float32)


def case(
    height: int,
    width: int,
    tile: tuple[int, int],
    *,
    overlap: int | None = None,
    scale: int = 1,
    pixels: int = 3,
    channels: int = 3,
) -> dict[str, Any]:
    return {
        "size": (height, width),
        "tile": tile,
        "overlap": overlap,
        "scale": scale,
        "pixels": pixels,
        "channels": channels,
    }


CASES = {
    "smaller than a tile": case(5, 3, (8, 8), scale=2),
    "one pixel": case(1, 1, (8, 8)),
    "exactly a tile": case(8, 8, (8, 8), scale=2),
    "one more than a tile": case(9, 8, (8, 8), scale=3),
    "several tiles": case(29, 41, (16, 16), scale=2),
    "tiles that are not square": case(29, 41, (8, 24), scale=2),
    "no overlap": case(20, 20, (8, 8), overlap=0),
    "the largest overlap": case(12, 9, (8, 8), overlap=7),
    "the usual overlap of large tiles": case(140, 20, (136, 136)),
    "gray pixels, a network of three channels": case(20, 20, (16, 16), pixels=1),
    "color, a network of one channel": case(20, 20, (16, 16), channels=1),
    "gray pixels, a network of one": case(20, 20, (16, 16), pixels=1, channels=1),
}


def test_images_are_those_of_nystra_run(page: Path) -> None:
    random = np.random.default_rng(0)
    images = {
        name: random.random((*each["size"], each["pixels"]), np.float32)
        for name, each in CASES.items()
    }
    asked = [
        json.dumps(
            {
                **each,
                "image": {
                    "channels": each["pixels"],
                    "height": each["size"][0],
                    "width": each["size"][1],
                    "data": np.moveaxis(images[name], 2, 0).ravel().tolist(),
                },
            }
        )
        for name, each in CASES.items()
    ]
    for (name, each), got in zip(
        CASES.items(), lines_of("tiles.mjs", page, text="\n".join(asked)), strict=True
    ):
        restorer = Restorer(
            partial(places, scale=each["scale"]),
            each["scale"],
            each["channels"],
            each["channels"],
            range=(-1.0, 1.0),
            output_range=(-1.0, 1.0),
            fixed_size=each["tile"],
        )
        expected, tiles = restorer(images[name], overlap=each["overlap"])
        shape = (got["channels"], got["height"], got["width"])
        result = np.moveaxis(np.array(got["data"], np.float32).reshape(shape), 0, 2)
        np.testing.assert_allclose(result, expected, atol=2e-6, err_msg=name)
        assert got["steps"] == [[done + 1, tiles] for done in range(tiles)], name


def pixels_made(page: Path, pixels: Array, colors: Array, scale: int) -> Any:
    height, width, channels = colors.shape
    planes = np.moveaxis(colors, 2, 0).ravel().tolist()
    asked = {
        "pixels": {
            "width": pixels.shape[1],
            "height": pixels.shape[0],
            "data": pixels.ravel().tolist(),
        },
        "scale": scale,
        "colors": {"channels": channels, "height": height, "width": width, "data": planes},
    }
    (made,) = lines_of("pixels.mjs", page, text=json.dumps(asked))
    return made


def test_pixels_become_planes_and_planes_pixels(page: Path) -> None:
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (5, 4, 4), np.uint8)
    colors = random.uniform(-0.2, 1.2, (10, 8, 3)).astype(np.float32)
    colors[0, 0] = (0.5 / 255, 1.5 / 255, 254.5 / 255)
    made = pixels_made(page, pixels, colors, 2)
    planes = np.array(made["colors"], np.float32).reshape(3, 5, 4)
    np.testing.assert_allclose(planes, np.moveaxis(pixels[:, :, :3], 2, 0) / 255, atol=1e-7)
    got = np.array(made["pixels"], np.uint8).reshape(10, 8, 4)
    assert np.abs(got[:, :, :3].astype(int) - quantize(colors, 8)).max() <= 1
    assert np.count_nonzero(got[:, :, :3] != quantize(colors, 8)) <= 3, "but for exact halves"
    rows, columns = (np.clip((np.arange(2 * side) + 0.5) / 2 - 0.5, 0, side - 1) for side in (5, 4))
    alpha = pixels[:, :, 3] / 255
    across = np.stack([np.interp(columns, np.arange(4), row) for row in alpha])
    expected = np.stack([np.interp(rows, np.arange(5), column) for column in across.T], axis=1)
    np.testing.assert_allclose(made["alpha"], expected.ravel(), atol=1e-6)
    assert np.abs(got[:, :, 3].astype(int) - quantize(expected, 8)).max() <= 1


def test_opaque_gray_pixels(page: Path) -> None:
    pixels = np.full((2, 2, 4), 255, np.uint8)
    made = pixels_made(page, pixels, np.full((2, 2, 1), 0.5, np.float32), 1)
    assert made["alpha"] is None
    assert made["pixels"] == [128, 128, 128, 255] * 4


def references(path: Path, **meta: Any) -> Path:
    image = np.arange(48, dtype=np.uint8).reshape(1, 3, 4, 4)
    restored = np.linspace(-1, 2, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    cases = [ReferenceCase({"input": image}, {"output": restored})] * 2
    write_references(path, cases, {"tolerances": [1e-4, 2e-4], **meta})
    return path


def test_facts_and_references_are_read(page: Path, tmp_path: Path) -> None:
    model = save_upscaler(
        tmp_path / "double.onnx", metadata=nystra_metadata(**{"nystra.range": "[-1.0, 1.0]"})
    )
    facts, recorded = lines_of("read.mjs", page, model, references(tmp_path / "double.npz"))
    assert facts == {
        "scale": 2,
        "inputRange": [-1, 1],
        "outputRange": [-1, 1],
        "architecture": "nearest",
    }
    assert [each["tolerance"] for each in recorded] == [1e-4, 2e-4]
    assert {each["meanTolerance"] for each in recorded} == {None}
    assert recorded[1]["input"]["shape"] == [1, 3, 4, 4]
    np.testing.assert_allclose(recorded[1]["input"]["data"], np.arange(48) / 255, atol=1e-7)
    np.testing.assert_allclose(recorded[1]["output"]["data"], np.linspace(-1, 2, 192), atol=1e-6)


def test_means_are_read(page: Path, tmp_path: Path) -> None:
    (recorded,) = lines_of("read.mjs", page, references(tmp_path / "a.npz", mean_tolerances=1e-5))
    assert {each["meanTolerance"] for each in recorded} == {1e-5}


MODELS = {
    "scale": ({"scale": "1e9"}, 'the scale "1e9"'),
    "no scale": ({"scale": ""}, "expected 1 to 16"),
    "range": ({"nystra.range": "[1, 0]"}, "expected [lowest, highest]"),
    "huge range": ({"nystra.range": "[0, 1e300]"}, "expected [lowest, highest]"),
    "task": ({"nystra.task": "video"}, "expected restoration"),
    "whole": ({"nystra.tiling": "internal"}, "needs the whole image"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_metadata_that_are_no_good(page: Path, tmp_path: Path, name: str) -> None:
    changed, message = MODELS[name]
    model = save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata() | changed)
    (got,) = lines_of("read.mjs", page, model)
    assert got["error"] == "FileError"
    assert message in got["message"]


def packed(entries: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


def npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=(1, 0))
    return stream.getvalue()


def stating(data: bytes, size: int) -> bytes:
    """An archive with one entry whose directory states another size."""
    place = data.index(b"PK\x01\x02") + 24
    return data[:place] + size.to_bytes(4, "little") + data[place + 4 :]


def test_damaged_files_are_refused(page: Path, tmp_path: Path) -> None:
    good = references(tmp_path / "good.npz").read_bytes()
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()).read_bytes()
    one = packed({"size0.input.input.npy": npy(np.zeros((1, 3, 4, 4), np.float32))})
    short = npy(np.zeros(4, np.float32))[:-1]
    files = {
        "cut.npz": (good[:-30], "it has no directory"),
        "empty.npz": (b"", "it has no directory"),
        "smaller.npz": (stating(one, 100), "an array is larger than its directory says"),
        "larger.npz": (
            stating(one, 1000),
            "the size of an array differs from that in its directory",
        ),
        "huge.npz": (stating(one, 1 << 30), "it unpacks to more than 256 MiB"),
        "whole.npz": (packed({"meta.npy": npy(np.zeros(2, "<i8"))}), "an array is of"),
        "short.npz": (packed({"size0.input.input.npy": short}), "do not fit its shape"),
        "other.npz": (packed({"../else.npy": short}), 'the references hold "../else.npy"'),
        "half.npz": (one, "the references are incomplete"),
        "loose.npz": (
            references(tmp_path / "l.npz", tolerances=[1, 1]).read_bytes(),
            "a tolerance is missing, or so large",
        ),
        "few.npz": (references(tmp_path / "f.npz", tolerances=[1e-4]).read_bytes(), "is missing"),
        "cut.onnx": (model[:-20], "it is truncated"),
        "text.onnx": (b"hello, this is no model", "this is no ONNX file"),
        "bytes.onnx": (b"\xff" * 64, "this is no ONNX file"),
    }
    for name, (content, _) in files.items():
        (tmp_path / name).write_bytes(content)
    got = lines_of("read.mjs", page, *(tmp_path / name for name in files))
    for (name, (_, message)), each in zip(files.items(), got, strict=True):
        assert each.get("error") == "FileError", (name, each)
        assert message in each["message"], name


def test_the_snippet_of_the_manual_has_the_types_of_the_package(tmp_path: Path) -> None:
    compiler = ROOT / "web/node_modules/.bin/tsc"
    if not compiler.exists():
        pytest.skip("`npm ci` was not run in web/")
    text = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"^```ts\n(.*?)^```", text, re.M | re.S)
    names = {
        "modelBytes": "Uint8Array",
        "referenceBytes": "Uint8Array",
        "imageData": "ImageData",
        "controller": "AbortController",
        "context": "CanvasRenderingContext2D",
    }
    given = "".join(f"declare const {name}: {kind};\n" for name, kind in names.items())
    (tmp_path / "snippet.mts").write_text(given + snippet, encoding="utf-8")
    settings = {
        "extends": str(ROOT / "web/tsconfig.json"),
        "compilerOptions": {
            "paths": {
                "nystra-web": [str(PAGE / "index.js")],
                "onnxruntime-web": [str(ROOT / "web/node_modules/onnxruntime-web/types.d.ts")],
            },
        },
        "include": ["snippet.mts"],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings), encoding="utf-8")

    def compiled() -> subprocess.CompletedProcess[str]:
        command = [str(compiler), "-p", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert not (done := compiled()).returncode, done.stdout
    (tmp_path / "snippet.mts").write_text(given + snippet.replace("colorsOf(", "colorOf("))
    assert "colorOf" in compiled().stdout
