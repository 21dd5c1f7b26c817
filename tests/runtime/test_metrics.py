"""PSNR, SSIM, the checks of an output, and the figures of each role."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nystra.core.errors import NystraError
from nystra.core.json_text import json_number, stable_json
from nystra.core.ports.port import ROLES, Port
from nystra.export.transforms import TRANSFORMS
from nystra.runtime.metrics.image_quality import luma, psnr, ssim
from nystra.runtime.metrics.measures import (
    MEASURES,
    clip_and_measure_psnr,
    decibels,
    image_figures,
    logits_figures,
    measure_for,
)
from nystra.runtime.metrics.sanity import find_problems, max_abs
from shared import shared_path


def pair(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(len(shape))
    first = random.random(shape)
    return first, np.clip(first + random.normal(0, 0.05, shape), 0, 1)


@pytest.mark.parametrize("shape", [(30, 41), (30, 41, 1), (30, 41, 3), (11, 11, 3)])
def test_agrees_with_scikit_image(shape: tuple[int, ...]) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    a, b = pair(*shape)
    assert psnr(a, b) == pytest.approx(
        metrics.peak_signal_noise_ratio(b, a, data_range=1.0), abs=1e-6
    )
    expected = metrics.structural_similarity(
        a,
        b,
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        channel_axis=2 if len(shape) == 3 else None,
    )
    assert ssim(a, b) == pytest.approx(expected, abs=1e-6)
    assert ssim(255 * a, 255 * b, peak=255.0) == pytest.approx(expected, abs=1e-6)


def test_photographs_agree_on_luma(tmp_path: Path) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    color = pytest.importorskip("skimage.color")
    folder = shared_path("data", "set5")
    with Image.open(folder / "HR" / "head.png") as image:
        truth = np.asarray(image.convert("RGB")) / 255
        small = image.convert("RGB").resize((70, 70), Image.Resampling.BICUBIC)
    with_loss = small.resize((truth.shape[1], truth.shape[0]), Image.Resampling.BICUBIC)
    got = np.asarray(with_loss) / 255
    np.testing.assert_allclose(luma(truth), color.rgb2ycbcr(truth)[:, :, 0] / 255, atol=1e-9)
    inner = (slice(2, -2), slice(2, -2))
    a, b = (color.rgb2ycbcr(p)[inner][:, :, 0] / 255 for p in (got, truth))
    assert psnr(got, truth, crop_border=2, channel="y") == pytest.approx(
        metrics.peak_signal_noise_ratio(b, a, data_range=1.0), abs=1e-6
    )
    assert ssim(got, truth, crop_border=2, channel="y") == pytest.approx(
        metrics.structural_similarity(
            a, b, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        ),
        abs=1e-6,
    )


def test_equal_and_bad_images() -> None:
    a, b = pair(20, 20, 3)
    assert psnr(a, a) == math.inf
    assert ssim(a, a) == pytest.approx(1.0)
    b[0, 0, 0] = np.nan
    assert math.isnan(psnr(a, b))
    with pytest.raises(NystraError, match="shape"):
        psnr(a, a[:10])
    with pytest.raises(NystraError, match="'rgb' or 'y'"):
        psnr(a, a, channel="Y")
    with pytest.raises(NystraError, match="leaves no pixels"):
        psnr(a, a, crop_border=10)
    with pytest.raises(NystraError, match="SSIM needs 11"):
        ssim(a, a, crop_border=5)


def test_white_and_black_luma() -> None:
    np.testing.assert_allclose(luma(np.zeros((1, 1, 3))), 16 / 255)
    np.testing.assert_allclose(luma(np.ones((1, 1, 3))), 235 / 255)
    np.testing.assert_allclose(luma(np.full((1, 1, 3), 255.0), 255.0), 235)


def test_numbers_for_json() -> None:
    assert json_number(math.inf) == 200.0
    assert json_number(-math.inf) == -200.0
    assert json_number(math.nan) is None
    assert json_number(np.float32(0.5)) == 0.5
    text = stable_json({"b": (np.float64(math.inf), np.int64(3)), "a": {1: math.nan}})
    assert json.loads(text) == {"a": {"1": None}, "b": [200.0, 3]}
    assert text.index(b'"a"') < text.index(b'"b"')


def test_findings() -> None:
    good = np.random.default_rng(0).random((1, 3, 8, 8))
    assert find_problems(good) == []
    bad = good.copy()
    bad[0, 0, 0, :2] = np.nan
    bad[0, 1, 0, 0] = -np.inf
    kinds = {finding.kind: finding.message for finding in find_problems(bad, "sr")}
    assert kinds == {
        "nan": "sr: 2 of 192 values are NaN",
        "inf": "sr: 1 of 192 values are infinite",
    }
    flat = np.full((1, 3, 8, 8), 0.25)
    assert [finding.kind for finding in find_problems(flat, expected=good)] == ["flat"]
    assert find_problems(flat, expected=flat) == []
    assert find_problems(np.zeros((1, 3, 1, 1))) == []


def test_largest_difference() -> None:
    a = np.zeros((2, 2), np.float16)
    assert max_abs(a, a + np.float16(0.5)) == 0.5
    assert math.isnan(max_abs(a, np.full((2, 2), np.nan)))
    with pytest.raises(NystraError, match="shape"):
        max_abs(a, a[0])


def test_logits_by_hand() -> None:
    expected = np.array([[4.0, 3.0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 2.0]])
    got = np.array([[3.0, 4.0, 0, 0, 0, 0, 0], [5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.0]])
    figures = logits_figures(got, expected)
    # The first row changes its first class, which stays second; the second row's becomes the last.
    assert figures["top1"] == 0.0
    assert figures["top5"] == 0.5
    squares = 1 + 1 + (25 + 16 + 9 + 4 + 1 + 0.25 + 4)
    assert figures["relative_error"] == pytest.approx(math.sqrt(squares / (16 + 9 + 4)))
    assert logits_figures(expected, expected) == {"relative_error": 0, "top1": 1, "top5": 1}


def test_equal_logits_rank_by_class_and_zeros_are_no_division() -> None:
    zeros = np.zeros((1, 8))
    assert logits_figures(zeros, zeros) == {"relative_error": 0, "top1": 1, "top5": 1}
    late = zeros.copy()
    late[0, 6] = 1e-3
    assert logits_figures(late, zeros)["relative_error"] == math.inf
    assert logits_figures(zeros, late) == {"relative_error": 1, "top1": 0, "top5": 0}


def test_images_are_clipped_to_the_range_of_their_port() -> None:
    expected = np.full((1, 3, 16, 16), 0.5, np.float32)
    got = expected + np.float32(0.1)
    assert image_figures(got, expected)["psnr"] == pytest.approx(20.0, abs=1e-3)
    assert clip_and_measure_psnr(np.full(4, 7.0), np.full(4, 1.0)) == math.inf
    wide = measure_for(Port("output", "picture", range=(-1.0, 1.0)))
    assert wide.value(got, expected) == pytest.approx(26.02, abs=1e-2)  # twice the peak
    assert wide.peak(expected) == 2.0
    assert image_figures(expected, expected) == {"psnr": math.inf, "ssim": pytest.approx(1.0)}
    assert "ssim" not in image_figures(got[:, :, :5], expected[:, :, :5])


def test_frames_count_every_plane() -> None:
    expected = np.zeros((1, 2, 3, 16, 16), np.float32)
    got = expected.copy()
    got[0, 1] = 0.1  # one of two frames
    figures = image_figures(got, expected)
    assert figures["psnr"] == pytest.approx(20.0 + 10 * math.log10(2), abs=1e-3)
    assert figures["ssim"] < 1.0


def test_what_is_worse() -> None:
    image, logits = MEASURES["picture"], MEASURES["logits"]
    assert (image.misses(34.9, 35.0), image.misses(35.0, 35.0)) == (True, False)
    assert (logits.misses(0.2, 0.1), logits.misses(0.1, 0.1)) == (True, False)
    assert image.misses(math.nan, 35.0)
    assert logits.misses(math.nan, 0.1)
    assert (image.text(35.04), logits.text(0.0123)) == ("35.0 dB", "0.012 relative error")
    assert decibels(0.01) == pytest.approx(20.0)
    assert decibels(0.01, 10.0) == pytest.approx(40.0)
    assert math.isnan(decibels(math.nan))
    assert decibels(math.inf) == -math.inf


def test_every_output_role_and_every_transform_has_a_tolerance() -> None:
    assert MEASURES.keys() == set(ROLES) - {"mask", "reference", "condition"}
    for measure in MEASURES.values():
        assert measure.tolerances.keys() >= {row.name for row in TRANSFORMS.values()}
        for tolerance in measure.tolerances.values():
            assert (tolerance.minimum, tolerance.factor) == (1e-4, 2.0)
    with pytest.raises(NystraError, match="the output 'm' has the role 'mask', expected one of"):
        measure_for(Port("m", "mask"))
    with pytest.raises(NystraError, match=r"shape \(1, 2\), expected \(1, 3\)"):
        logits_figures(np.zeros((1, 2)), np.zeros((1, 3)))
