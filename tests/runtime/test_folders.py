"""Folders, streams and names of ``nystra run``: what is done, skipped and failed."""

import io
import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from image_files import make_image
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import RunOptions, read_image, run_images, write_image
from nystra.runtime.images.images import decode_image, encode_image
from nystra.runtime.tasks.restoration import restorer as restored
from runtime_models import nystra_metadata, save_operator, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two images, a damaged one, a text file, and a subfolder with an image."""
    place = tmp_path / "in"
    (place / "sub").mkdir(parents=True)
    for name in ("a.png", "c.jpg", "sub/d.png"):
        write_image(place / name, make_image())
    (place / "b.png").write_bytes(b"not an image")
    (place / "notes.txt").write_text("no image")
    return place


def statuses(results: list[dict[str, Any]]) -> dict[str, str]:
    return {Path(result.input).name: result.status for result in results}


def command(model: Path, *arguments: object) -> list[str]:
    return ["run", str(model), "--threads", "1", *(str(argument) for argument in arguments)]


def test_a_second_run_goes_on_where_the_first_stopped(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(model, "-i", folder, "-o", tmp_path / "out")
    assert main(given) == 2
    printed = capsys.readouterr()
    assert "2 done, 1 failed, 1 skipped (1 not images: notes.txt) in " in printed.out
    assert printed.err.count("failed") == 1
    before = (tmp_path / "out" / "a.png").stat().st_mtime_ns
    assert main(given) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1  # not a line for each finished image
    assert "2 of 3 outputs exist" in printed.err
    write_image(folder / "b.png", make_image(), overwrite=True)
    assert main([*given, "--skip-existing"]) == 0
    expected = "1 done, 0 failed, 3 skipped (2 with existing outputs; 1 not images: notes.txt)"
    assert expected in capsys.readouterr().out
    assert (tmp_path / "out" / "a.png").stat().st_mtime_ns == before
    assert main([*given, "--skip-existing"]) == 0
    assert "0 done, 0 failed, 4 skipped" in capsys.readouterr().out
    assert main([*given, "--skip-existing", "--overwrite"]) == 2
    assert "contradict each other" in capsys.readouterr().err


def test_subfolders(model: Path, folder: Path, tmp_path: Path) -> None:
    results = run_images(model, folder, folder / "out", RunOptions(recursive=True), threads=1)
    assert statuses(results)["d.png"] == "done"
    assert read_image(folder / "out" / "sub" / "d.png").size == (16, 18)
    again = run_images(
        model, folder, folder / "out", RunOptions(recursive=True, skip_existing=True), threads=1
    )
    assert sorted(statuses(again).values()) == ["failed", *["skipped"] * 4]
    (tmp_path / "outer" / "deep").mkdir(parents=True)
    write_image(tmp_path / "outer" / "deep" / "p.png", make_image())
    with pytest.raises(NystraError, match=r"holds no images: .* \(`recursive` looks"):
        run_images(model, tmp_path / "outer", tmp_path / "out", threads=1)


def test_what_is_read_only_becomes_png_and_what_has_no_suffix_is_looked_at(
    model: Path, tmp_path: Path
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    image = Image.new("RGB", (6, 5), (200, 30, 60))
    image.save(place / "a.bmp")
    image.save(place / "b.gif")
    image.save(place / "plain", format="PNG")
    (place / "README").write_text("no image")
    results = run_images(model, place, tmp_path / "out", threads=1)
    expected = {"a.bmp": "done", "b.gif": "done", "plain": "done", "README": "skipped"}
    assert statuses(results) == expected
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["a.png", "b.png", "plain.png"]


def test_names_and_formats(model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = run_images(
        model, folder, out, RunOptions(format="jpg", suffix="_x2", quality=30), threads=1
    )
    assert sorted(path.name for path in out.iterdir()) == ["a_x2.jpg", "c_x2.jpg"]
    assert statuses(results)["c.jpg"] == "done"
    run_images(model, folder / "a.png", f"{out}{os.sep}", RunOptions(suffix="_large"), threads=1)
    assert (out / "a_large.png").exists()
    pair = (folder / "a.png", tmp_path / "o.png")
    for options, message in (
        (RunOptions(format="gif"), "`format` is 'gif', expected one of png, jpg"),
        (RunOptions(format="tif"), r"o\.png and `format` tif contradict"),
        (RunOptions(suffix="_x2"), "`suffix` is for outputs in a folder"),
        (RunOptions(suffix="/x"), "expected a part of a file name"),
    ):
        with pytest.raises(NystraError, match=message):
            run_images(model, *pair, options, threads=1)
    assert not pair[1].exists()


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
def test_names_that_shells_and_programs_read_otherwise(
    model: Path, folder: Path, tmp_path: Path
) -> None:
    names = {"-o.png", "new\nline.png", "a'b\"c.png", "x%03d[1]*.png", "קליניקה 😀.png"}
    given = tmp_path / "given"
    given.mkdir()
    for name in names:
        shutil.copy(folder / "a.png", given / name)
    results = run_images(model, given, tmp_path / "out", threads=1)
    assert set(statuses(results)) == {path.name for path in (tmp_path / "out").iterdir()} == names


def test_two_images_of_one_output(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "a.png"):
        write_image(tmp_path / "in" / name, make_image())
    results = run_images(
        model,
        tmp_path / "in",
        tmp_path / "out",
        RunOptions(format="png", overwrite=True),
        threads=1,
    )
    assert statuses(results) == {"a.jpg": "done", "a.png": "failed"}
    assert "is also the output of another image" in results[1].error


def test_streams(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    data = encode_image(make_image(), "PNG")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert main(command(model, "-i", "-", "-o", "-", "--format", "tif")) == 0
    made = capsysbinary.readouterr().out
    assert made[:4] == b"II*\0"
    expected = np.repeat(np.repeat(make_image().pixels, 2, 0), 2, 1)
    np.testing.assert_allclose(decode_image(made).pixels, expected, atol=1e-6)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"nothing")))
    assert main(command(model, "-i", "-", "-o", f"{tmp_path}/out/")) == 2
    assert b"the standard input is not an image" in capsysbinary.readouterr().err
    assert main(command(model, "-i", "-", "-o", "-", "--json")) == 2
    assert b"--json and an output on stdout" in capsysbinary.readouterr().err


@pytest.mark.parametrize("error", [ValueError("odd\nthings"), MemoryError(), OSError(13, "denied")])
def test_whatever_one_image_raises_the_others_are_made(
    model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Also after the model ran, while it is checked or written."""
    real = restored.find_problems

    def fail(output: Any, name: str, expected: Any) -> Any:
        if output.shape[0] == 20:
            raise error
        return real(output, name, expected)

    monkeypatch.setattr(restored, "find_problems", fail)
    write_image(folder / "b.png", make_image(10, 9), overwrite=True)
    results = run_images(model, folder, tmp_path / "out", threads=1)
    assert statuses(results)["b.png"] == "failed"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.png", "c.jpg"]
    (text,) = [result.error for result in results if result.error]
    assert "b.png" in text
    assert "\n" not in text
    with pytest.raises(NystraError, match=r"b\.png"):
        run_images(model, folder / "b.png", tmp_path / "o.png", threads=1)


@pytest.mark.full
def test_a_line_an_image_and_a_line_every_so_many(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    for index in range(25):
        write_image(tmp_path / "in" / f"{index:02}.png", make_image(2, 2))
    given = command(model, "-i", tmp_path / "in", "-o", tmp_path / "out")
    assert main(given) == 0
    lines = re.sub(r"\d+ s left", "some s left", capsys.readouterr().err).splitlines()
    assert lines == ["10 of 25 images, some s left", "20 of 25 images, some s left"]
    assert main([*given, "--overwrite", "-v"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count(" -> ") == 25
    assert "25 done, 0 failed, 0 skipped" in printed.out
    assert main([*given, "--overwrite", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["images"][0]
    assert first["seconds"] > first["model_seconds"] > 0
    assert main([*given, "--overwrite", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_what_slows_a_run_is_said(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_image(tmp_path / "in.png", make_image())
    given = ["-i", str(tmp_path / "in.png"), "-o", str(tmp_path / "o.png"), "--overwrite"]
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert main(["run", str(model), *given, "--threads", "2"]) == 0
    assert "--threads 2 on 1 cores" in capsys.readouterr().err

    def absent(name: str) -> Path:
        raise FileNotFoundError(f"no lib{name}.so")

    monkeypatch.setattr("nystra.plugins.library.library_path", absent)
    operator = save_operator(tmp_path / "operator.onnx", body=True)
    for path, said in ((operator, True), (model, False)):
        assert main(["run", str(path), *given, "--threads", "1"]) == 0
        assert ("note: built without the operator library" in capsys.readouterr().err) == said
    assert main(["inspect", str(operator)]) == 0, "what the note sends one to"
    out = capsys.readouterr().out
    assert "the operator library is not built (no libnystra_onnxruntime.so)" in out
    assert "body, standard operators in its place" in out
    assert main(["run", str(operator), *given, "--threads", "1", "--library", "none"]) == 0
    assert "note:" not in capsys.readouterr().err


def test_options_are_refused_out_of_range() -> None:
    with pytest.raises(
        NystraError, match="`quality` is 200, expected a whole number from 1 to 100"
    ):
        RunOptions(quality=200)


def test_negative_overlap_is_refused_for_small_images_too(model: Path, tmp_path: Path) -> None:
    write_image(tmp_path / "in.png", make_image())
    with pytest.raises(NystraError, match="`overlap` is -3, expected a whole number of 0 or more"):
        run_images(
            model, tmp_path / "in.png", tmp_path / "o.png", RunOptions(overlap=-3), threads=1
        )


def test_max_memory(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_image(tmp_path / "in.png", make_image())
    given = command(model, "-i", tmp_path / "in.png", "-o", tmp_path / "o.png", "--overwrite")
    assert main([*given, "--max-memory", "64GiB"]) == 0
    assert main([*given, "--max-memory", "much"]) == 2
    assert (
        "--max-memory is 'much', expected a size of 1 or more bytes, such as 4G"
        in capsys.readouterr().err
    )
    if Path("/proc/self/status").exists():
        assert main([*given, "--max-memory", "1.5M"]) == 2
        assert "the limit is 1 MiB: raise --max-memory" in capsys.readouterr().err
