"""References, manifests, validation, sheets and their helpers."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nystra.core.errors import NystraError
from nystra.core.files.reading import file_sha256
from nystra.core.files.writing import atomic_path, atomic_write_bytes
from nystra.runtime import (
    ImageData,
    Manifest,
    Session,
    read_references,
    time_interleaved,
    validate_against_references,
    validate_quality,
    write_image,
    write_references,
)
from nystra.runtime.images.image_data import quantize
from nystra.runtime.images.pairs import pair_images
from nystra.runtime.images.sheet import comparison_sheet, magnify_difference, readable_factor
from nystra.runtime.model.references import ReferenceCase, References
from nystra.runtime.progress import progress_bar, wants_bar
from nystra.runtime.tasks.restoration.restorer import Restorer
from runtime_models import nystra_metadata, save_upscaler
from shared import shared_path


def double(image: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(image, 2, axis=2), 2, axis=3)


def cases() -> list[ReferenceCase]:
    random = np.random.default_rng(0)
    kept = []
    for height, width in ((16, 16), (5, 9), (8, 24)):
        stored = random.integers(0, 256, (1, 3, height, width), dtype=np.uint8)
        output = double(stored.astype(np.float32) / np.float32(255))
        kept.append(ReferenceCase({"input": stored}, {"output": output}))
    return kept


def test_references_round_trip_and_reproduce(tmp_path: Path) -> None:
    write_references(tmp_path / "a.npz", cases(), {"b": 1, "tolerances": [1e-4] * 3})
    write_references(tmp_path / "b.npz", cases(), {"tolerances": [1e-4] * 3, "b": 1})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    back = read_references(tmp_path / "a.npz")
    assert back.meta == {"b": 1, "tolerances": [1e-4] * 3}
    for got, expected in zip(back.cases, cases(), strict=True):
        np.testing.assert_array_equal(got.inputs["input"], expected.inputs["input"])
        np.testing.assert_array_equal(got.outputs["output"], expected.outputs["output"])
        assert got.inputs["input"].dtype == np.uint8
        assert got.feeds()["input"].dtype == np.float32


def test_damaged_references(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    write_references(path, cases(), {})
    good = path.read_bytes()
    for content in (b"", b"junk" * 50, good[: len(good) // 2], good[:200] + b"x" + good[201:]):
        path.write_bytes(content)
        with pytest.raises(NystraError, match="damaged or not written by nystra"):
            read_references(path)
    with pytest.raises(NystraError, match="no recorded references"):
        read_references(tmp_path / "absent.npz")
    np.savez(path, other=np.zeros(3), meta=np.frombuffer(b"{}", np.uint8))
    with pytest.raises(NystraError, match="'other'"):
        read_references(path)
    with pytest.raises(NystraError, match="no cases"):
        write_references(path, [], {})


class Alarm:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("references were unpickled",))


def test_references_are_never_unpickled(tmp_path: Path) -> None:
    evil = np.empty(1, object)
    evil[0] = Alarm()
    meta = np.frombuffer(b"{}", np.uint8)
    np.savez(tmp_path / "r.npz", **{"size0.input.input": evil, "meta": meta})
    with pytest.raises(NystraError, match="damaged"):
        read_references(tmp_path / "r.npz")
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Alarm()))
    with pytest.raises(NystraError, match="damaged"):
        read_references(tmp_path / "p.npz")


def test_a_right_model_passes(tmp_path: Path) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx"), threads=1)
    references = References(tuple(cases()))
    for runner in (session, double):
        report = validate_against_references(runner, references)
        assert report.passed
        assert report.max_abs < 1e-6
        json.dumps(report.as_dict(), allow_nan=False)
    assert report.as_dict()["sizes"][1]["shapes"] == {"input": [1, 3, 5, 9]}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda image: double(image) + np.float32(0.01), "largest difference is 0.01"),
        (lambda image: double(image) * np.float32(np.nan), "are NaN"),
        (lambda image: double(image) + np.float32(np.inf), "are infinite"),
        (lambda image: double(image) * np.float32(0), "values are 0"),
    ],
)
def test_a_wrong_model_fails(change, finding: str) -> None:  # type: ignore[no-untyped-def]
    report = validate_against_references(change, References(tuple(cases())))
    assert not report.passed
    assert all(any(finding in text for text in size.findings) for size in report.sizes)
    json.dumps(report.as_dict(), allow_nan=False)


def test_tolerances_come_from_the_record(tmp_path: Path) -> None:
    def off(image: np.ndarray) -> np.ndarray:
        return double(image) + np.float32(0.001)

    loose = References(tuple(cases()), {"tolerances": [0.01, 0.01, 1e-4]})
    report = validate_against_references(off, loose)
    assert [size.passed for size in report.sizes] == [True, True, False]
    assert validate_against_references(off, loose, 0.1).passed
    with pytest.raises(NystraError, match="2 tolerances"):
        validate_against_references(off, loose, [1.0, 1.0])
    with pytest.raises(NystraError, match="shape"):
        validate_against_references(lambda image: image, loose)


def test_pairs_of_the_usual_sets() -> None:
    set5 = shared_path("data", "set5")
    pairs = pair_images(set5 / "LR_bicubic" / "X2", set5 / "HR")
    assert (pairs[0][0].name, pairs[0][1].name) == ("babyx2.png", "baby.png")
    assert len(pairs) == 5
    set14 = shared_path("data", "set14", "image_SRF_2")
    pairs = pair_images(set14, set14)
    assert len(pairs) == 14
    assert all(a.name.replace("_LR", "_HR") == b.name for a, b in pairs)


def test_pairs_that_do_not_fit(tmp_path: Path) -> None:
    for name in ("low", "high"):
        (tmp_path / name).mkdir()
    with pytest.raises(NystraError, match="holds no images"):
        pair_images(tmp_path / "low", tmp_path / "high")
    with pytest.raises(NystraError, match="no folder at"):
        pair_images(tmp_path / "absent", tmp_path / "high")
    tiny = ImageData(np.zeros((1, 1, 3), np.float32))
    for name in ("low/a.png", "low/x2.png", "high/a_HR.png", "high/a_GT.png", "high/x2.png"):
        write_image(tmp_path / name, tiny)
    with pytest.raises(NystraError, match=r"for a\.png, found a_GT\.png, a_HR\.png"):
        pair_images(tmp_path / "low", tmp_path / "high")
    (tmp_path / "high" / "a_GT.png").unlink()
    names = [(a.name, b.name) for a, b in pair_images(tmp_path / "low", tmp_path / "high")]
    assert names == [("a.png", "a_HR.png"), ("x2.png", "x2.png")]
    (tmp_path / "low/b.bmp").touch()  # of old data sets; also two formats of one name
    write_image(tmp_path / "high/b.png", tiny)
    write_image(tmp_path / "high/x2.tif", tiny)
    names = [(a.name, b.name) for a, b in pair_images(tmp_path / "low", tmp_path / "high")]
    assert names == [("a.png", "a_HR.png"), ("b.bmp", "b.png"), ("x2.png", "x2.png")]
    write_image(tmp_path / "high/b.tif", tiny)
    with pytest.raises(NystraError, match=r"for b\.bmp, found b\.png, b\.tif"):
        pair_images(tmp_path / "low", tmp_path / "high")


def bicubic(image: np.ndarray) -> np.ndarray:
    planes = [
        np.asarray(
            Image.fromarray(plane).resize(
                (2 * plane.shape[1], 2 * plane.shape[0]), Image.Resampling.BICUBIC
            )
        )
        for plane in image[0]
    ]
    return np.stack(planes)[None]


def test_quality_of_bicubic_on_set5() -> None:
    """Bicubic x2 on Set5 is published with 33.66 dB and 0.9299."""
    set5 = shared_path("data", "set5")
    calls: list[tuple[int, int]] = []
    report = validate_quality(
        Restorer(bicubic, scale=2),
        set5 / "LR_bicubic" / "X2",
        set5 / "HR",
        progress=lambda *pair: calls.append(pair),
    )
    assert report.psnr == pytest.approx(33.66, abs=0.1)
    assert report.ssim == pytest.approx(0.9299, abs=0.002)
    assert (report.crop_border, report.channel, calls[-1]) == (2, "y", (5, 5))
    json.dumps(report.as_dict(), allow_nan=False)


def test_quality_modcrop_padding_and_colors(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    for folder in ("low", "high"):
        (tmp_path / folder).mkdir()
    small = np.round(random.random((14, 17, 3)) * 255) / np.float32(255)
    large = np.zeros((29, 35, 3), np.float32)
    large[:28, :34] = np.repeat(np.repeat(small, 2, axis=0), 2, axis=1)
    write_image(tmp_path / "low" / "ax2.png", ImageData(small.astype(np.float32)))
    write_image(tmp_path / "high" / "a.png", ImageData(large))
    session = Session(path, threads=1)
    for pad in ("none", "official"):
        report = validate_quality(
            session, tmp_path / "low", tmp_path / "high", channel="rgb", pad=pad
        )
        assert report.psnr == np.inf
        assert report.as_dict()["psnr"] == 200.0
        assert report.ssim == pytest.approx(1.0)
    with pytest.raises(NystraError, match="expected 'none' or 'official'"):
        validate_quality(session, tmp_path / "low", tmp_path / "high", pad="mirror")
    with pytest.raises(NystraError, match="`window_size`"):
        validate_quality(Restorer(double, 2), tmp_path / "low", tmp_path / "high", pad="official")
    write_image(tmp_path / "high" / "a.png", ImageData(large[:24]), overwrite=True)
    with pytest.raises(NystraError, match="its ground truth"):
        validate_quality(session, tmp_path / "low", tmp_path / "high")


def test_manifest(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    manifest = Manifest("m.onnx", source={"name": "s.pth", "sha256": "00"}, command=["x", "-y"])
    manifest.validation = {"psnr": float("inf")}
    manifest.add_file(model.name, model.read_bytes())
    path = Manifest.path_for(model)
    manifest.write(path)
    first = path.read_bytes()
    manifest.write(path)
    assert path.read_bytes() == first
    back = Manifest.read(path)
    assert back.files == {"m.onnx": file_sha256(model)}
    assert back.validation == {"psnr": 200.0}
    assert back.problems(tmp_path) == []
    model.write_bytes(b"other")
    assert "was changed" in back.problems(tmp_path)[0]
    model.unlink()
    assert back.problems(tmp_path) == [], "a device may need a part of the files only"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", r"is \[\], expected an object of schema_version 1"),
        ("{}", "schema_version None"),
        ('{"schema_version": 2, "model": "m"}', "schema_version 2"),
        ('{"schema_version": 1}', r"missing keys \['model'\]"),
        ('{"schema_version": 1, "model": "m", "extra": 1}', "unknown keys"),
        ('{"schema_version": 1, "model": "m", "files": []}', "wrong type"),
        ('{"schema_version": 1, "model": "m", "files": {"../x": "0"}}', "outside"),
    ],
)
def test_bad_manifests(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(NystraError, match=message):
        Manifest.read(tmp_path / "m.json")


def test_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    atomic_write_bytes(path, b"before")

    def fail() -> None:
        with atomic_path(path) as temporary:
            assert temporary.suffix == ".bin"
            temporary.write_bytes(b"half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert path.read_bytes() == b"before"
    assert [item.name for item in tmp_path.iterdir()] == ["a.bin"]
    with pytest.raises(NystraError, match="cannot create the folder"):
        atomic_write_bytes(path / "a", b"")
    atomic_write_bytes(tmp_path / "absent" / "a", b"new")
    assert (tmp_path / "absent" / "a").read_bytes() == b"new"


def test_sheet(tmp_path: Path) -> None:
    large = np.random.default_rng(0).random((20, 30, 3))
    difference = magnify_difference(large + 0.0005, large, 1000.0)
    assert difference.max() == pytest.approx(0.5, abs=1e-3)
    columns = [("input", large[::2, ::2, :1]), ("a caption wider than it", large)]
    comparison_sheet([columns, columns], tmp_path / "s.png", ["a line above\nall of it"])
    with Image.open(tmp_path / "s.png") as sheet:
        shown = np.asarray(sheet.convert("RGB"))
    top, left = 24 + 24, 8
    expected = quantize(large[::2, ::2, :1].repeat(2, 0).repeat(2, 1).repeat(3, 2), 8)
    for start in (top, top + 24 + 20 + 8):
        np.testing.assert_array_equal(shown[start : start + 20, left : left + 30], expected)
    assert shown[:24].min() < 128, "the heading is there"
    for nothing in ([], [[]]):
        with pytest.raises(NystraError, match="no images"):
            comparison_sheet(nothing, tmp_path / "t.png")
    with pytest.raises(NystraError, match="shape"):
        magnify_difference(large, large[1:], 1.0)


@pytest.mark.parametrize(
    ("largest", "factor"), [(0.0, 1), (0.9, 1), (0.3, 2), (0.0005, 1000), (1e-9, 5e5)]
)
def test_factors_that_can_be_read(largest: float, factor: float) -> None:
    values = np.linspace(0, largest, 50)
    assert readable_factor([values, values[::-1]]) == factor
    outlier = np.zeros(200)
    outlier[0] = largest
    assert readable_factor([outlier]) == factor, "where nearly all is 0, the largest counts"


def test_no_bar_where_nobody_sees_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("work") as move:
        move(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv("CI", raising=False)
    assert wants_bar()
    assert not wants_bar(quiet=True)
    with progress_bar("work") as move:
        move(1, 2)
    assert "work" in capsys.readouterr().err
    monkeypatch.setenv("CI", "true")
    assert not wants_bar()


def test_interleaved_runs_take_turns() -> None:
    order: list[str] = []
    times = time_interleaved(
        {name: lambda name=name: order.append(name) for name in "ab"},  # type: ignore[misc]
        seconds=5,
        warmup=1,
        maximum=3,
    )
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert {name: len(each) for name, each in times.items()} == {"a": 3, "b": 3}
    assert time_interleaved({"a": lambda: None}, seconds=0, warmup=0)["a"]
    with pytest.raises(NystraError, match="no functions"):
        time_interleaved({})
