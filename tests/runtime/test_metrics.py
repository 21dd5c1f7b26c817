"""PSNR, SSIM and the checks of an output."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nystra.core.errors import NystraError
from nystra.core.json_text import json_number, stable_json
from nystra.runtime.metrics.image_quality import luma, psnr, ssim
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
