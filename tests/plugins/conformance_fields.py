"""Comparison of the fields (index, score) of ``NystraPatchMatch``.

On integer-valued inputs, for l2 and dot, every backend gives the same field: each sum is below
2**24 and exact in any order. On others the sums differ in their last bits, two near keys change
places and the searches part; there a field is judged by itself (only allowed keys, none twice in a
row, sorted, every score that of its index) and by its mean score, within 1 % of the reference's.
"""

from __future__ import annotations

import numpy as np

from operators.patch_match import PatchMatchCase
from reference.patch_match import Maps, pair_scores

Field = tuple[np.ndarray, np.ndarray]

SPREAD = 0.01
"""The largest relative difference of mean scores."""


def compare(
    case: PatchMatchCase, got: Field, want: Field, dtype: str, arithmetic: str = "float32"
) -> None:
    """Compare the field of a row, computed in ``arithmetic``, with the reference's."""
    index, score = got
    assert (index.dtype, score.dtype) == (np.int32, dtype)
    assert index.shape == score.shape == want[0].shape, f"shapes {index.shape} and {score.shape}"
    assert not np.isnan(score).any(), "a score is no number"
    if case.exact:
        _equal("index", index, want[0])
        _equal("score", score, want[1].astype(dtype))
        return
    _equal("empty entries at", index < 0, want[0] < 0)
    check_rows(case, index, score, dtype)
    finite = np.isfinite(want[1])
    _equal("finite scores at", np.isfinite(score), finite)
    true, error = true_scores(case, index, dtype, arithmetic)
    off = np.abs(score.astype(np.float64)[finite] - true[finite]) / error[finite]
    assert not (off > 1).any(), (
        f"max error {off.max():.3g} times what rounding allows: a score is not that of its index"
    )
    means = true[finite].mean(), want[1][finite].mean()
    assert abs(means[0] - means[1]) <= SPREAD * abs(means[1]), (
        f"mean score {means[0]:.6g}; expected {means[1]:.6g} within {SPREAD:.0%}"
    )


def _equal(what: str, got: np.ndarray, want: np.ndarray) -> None:
    wrong = np.argwhere(got != want)
    if len(wrong):
        place = tuple(map(int, wrong[0]))
        raise AssertionError(
            f"{what}: {len(wrong)} of {got.size} differ, the first at {place}: "
            f"got {got[place]}, expected {want[place]}"
        )


def check_rows(case: PatchMatchCase, index: np.ndarray, score: np.ndarray, dtype: str) -> None:
    """Only allowed keys, none twice in a row, the empty last, sorted by score."""
    _, key, *masks, _ = case.inputs(dtype)
    query_mask, key_mask = (mask.astype(np.float64) for mask in masks)
    batch, _, height, width = index.shape
    allowed = np.broadcast_to(key_mask > 0, (batch, 1, *key.shape[2:])).reshape(batch, -1)
    searching = np.broadcast_to(query_mask > 0, (batch, 1, height, width))
    assert (index >= -1).all()
    assert (index < allowed.shape[1]).all()
    empty = index < 0
    assert (empty | searching).all(), "a masked pixel has an entry"
    at = (np.arange(batch)[:, None, None, None], np.maximum(index, 0))
    assert (empty | allowed[at]).all(), "a masked key is matched"
    assert np.isneginf(score[empty]).all(), "an empty entry has a score"
    assert (empty[:, :-1] <= empty[:, 1:]).all(), "an empty entry stands before a key"
    ordered = np.sort(index, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    assert not twice.any(), "a key stands twice in a row"
    assert (score[:, :-1] >= score[:, 1:]).all(), "a row is not sorted"
    if dtype != "float16":  # whose rounding makes scores equal that were not
        ties = (score[:, :-1] == score[:, 1:]) & ~empty[:, 1:]
        assert (~ties | (index[:, :-1] < index[:, 1:])).all(), "equal scores, larger index first"


def true_scores(
    case: PatchMatchCase, index: np.ndarray, dtype: str, arithmetic: str
) -> tuple[np.ndarray, np.ndarray]:
    """The float64 score of every entry, and its largest rounding error.

    Half a unit of the last place a rounding in ``arithmetic``; n of them, mostly up as often as
    down, of sums as large as the largest patches' (running sums along rows subtract what they
    added): 4 sqrt(n) units. And one unit of ``dtype`` of the score.
    """
    query, key = (array.astype(np.float64) for array in case.inputs(dtype)[:2])
    attributes = {name: int(value) for name, value in case.all_attributes().items()}
    patch_size, metric = attributes["patch_size"], attributes["metric"]
    true, sizes = np.empty(index.shape), np.ones(index.shape)
    for b, field in enumerate(index):
        images = [array[b].transpose(1, 2, 0) for array in (query, key)]
        pixels = np.arange(field.size) % field[0].size
        keys = np.maximum(field.reshape(-1), 0)
        scores = pair_scores(_maps(*images), pixels, keys, patch_size, metric)
        true[b] = np.where(field < 0, -np.inf, scores.reshape(field.shape))
        if metric != 2:
            sizes[b] = sum(_largest_patch(image, patch_size) for image in images)
    numbers = case.shape[1] * patch_size**2
    unit = float(np.finfo(arithmetic).eps)
    kept = np.where(np.isfinite(true), np.abs(true), 0.0)
    return true, 4 * np.sqrt(numbers) * unit * sizes + float(np.finfo(dtype).eps) * kept


def _maps(query: np.ndarray, key: np.ndarray) -> Maps:
    return Maps(query, key, *(np.ones(1, dtype=bool) for _ in range(2)))


def _largest_patch(image: np.ndarray, patch_size: int) -> float:
    """The largest sum of squares of a patch."""
    pixels = np.arange(image.shape[0] * image.shape[1])
    squares = pair_scores(_maps(image, image), pixels, pixels, patch_size, 1)
    return float(squares.max())
