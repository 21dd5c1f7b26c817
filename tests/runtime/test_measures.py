"""The comparison of outputs by their role: figures computed by hand on small arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.core.ports.port import ROLES, Port
from nystra.export.transforms import TRANSFORMS
from nystra.runtime.metrics.measures import (
    MEASURES,
    clipped_psnr,
    decibels,
    image_figures,
    logits_figures,
    measure_for,
)


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
    assert clipped_psnr(np.full(4, 7.0), np.full(4, 1.0)) == math.inf
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
    assert MEASURES.keys() == set(ROLES) - {"mask", "reference"}
    for measure in MEASURES.values():
        assert measure.tolerances.keys() >= {row.name for row in TRANSFORMS.values()}
        for tolerance in measure.tolerances.values():
            assert (tolerance.least, tolerance.factor) == (1e-4, 2.0)
    with pytest.raises(NystraError, match="the output 'm' has the role 'mask', expected one of"):
        measure_for(Port("m", "mask"))
    with pytest.raises(NystraError, match=r"shape \(1, 2\), expected \(1, 3\)"):
        logits_figures(np.zeros((1, 2)), np.zeros((1, 3)))
