"""Windows, regions, landmarks and the pseudoinverse in plain float64 numpy: slow and obvious."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nystra.core.errors import NystraError
from nystra.plugins.operators.schema import Attributes
from nystra.plugins.operators.window_schema import cell_bounds

Array = npt.NDArray[np.float64]
Regions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Head:
    """One head in one window, with its tokens in row-major order.

    Attributes:
        number: Number of the head.
        q: Queries (N, d).
        k: Keys (N, d).
        v: Values (N, e).
        regions: Swin region of each token, (N,); all 0 without a mask.
        place: Index of its attention (N, e) in the output (B, H, W, h e).
    """

    number: int
    q: Array
    k: Array
    v: Array
    regions: Regions
    place: tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64], slice]


def heads_in_windows(qkv: Array, attributes: Attributes) -> Iterator[Head]:
    """Yield every head of every window of packed maps (B, H, W, h(2d+e)).

    Raises:
        NystraError: The map is not a multiple of the window, or has other channels.
    """
    check_map(qkv, attributes)
    heads, d, e = (int(attributes[name]) for name in ("heads", "head_dim", "value_dim"))
    for image, pixels in enumerate(qkv):
        for rows, cols, regions in _windows(pixels.shape[0], pixels.shape[1], attributes):
            q, k, v = np.split(pixels[rows, cols], [heads * d, 2 * heads * d], axis=1)
            for head in range(heads):
                keys, values = slice(head * d, (head + 1) * d), slice(head * e, (head + 1) * e)
                place = (image, rows, cols, values)
                yield Head(head, q[:, keys], k[:, keys], v[:, values], regions, place)


def check_map(qkv: Array, attributes: Attributes) -> None:
    """Check the packed maps (B, H, W, h(2d+e)).

    Raises:
        NystraError: The map is not a multiple of the window, or has other channels.
    """
    heads, d, e = (int(attributes[name]) for name in ("heads", "head_dim", "value_dim"))
    if qkv.shape[-1] != heads * (2 * d + e):
        raise NystraError(
            f"qkv has {qkv.shape[-1]} channels; expected {heads * (2 * d + e)} = "
            f"heads (2 head_dim + value_dim) = {heads} (2 * {d} + {e})"
        )
    height, width = qkv.shape[1:3]
    window_h, window_w = int(attributes["window_h"]), int(attributes["window_w"])
    if height % window_h or width % window_w:
        raise NystraError(
            f"a map of {height} x {width}; expected a multiple of {window_h} x {window_w}: pad it"
        )


def empty_output(qkv: Array, attributes: Attributes) -> Array:
    """Return an array (B, H, W, h e) for the attention of every head in its place."""
    return np.empty((*qkv.shape[:3], int(attributes["heads"]) * int(attributes["value_dim"])))


def _windows(
    height: int, width: int, attributes: Attributes
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Regions]]:
    """Yield row and column in the map, and the region, of the tokens of each window.

    The map is rolled by minus the shift, then cut. The rolled map of a shifted block is labeled
    as SwinIR does: cut at H - wh and H - shift_h, and the same for columns.
    """
    window_h, window_w = int(attributes["window_h"]), int(attributes["window_w"])
    shift_h, shift_w = int(attributes["shift_h"]), int(attributes["shift_w"])
    row_label = np.searchsorted([height - window_h, height - shift_h], np.arange(height), "right")
    col_label = np.searchsorted([width - window_w, width - shift_w], np.arange(width), "right")
    for top in range(0, height, window_h):
        for left in range(0, width, window_w):
            rows = np.repeat(np.arange(top, top + window_h), window_w)
            cols = np.tile(np.arange(left, left + window_w), window_h)
            labels = 3 * row_label[rows] + col_label[cols]
            regions = labels if attributes["mask"] else np.zeros_like(labels)
            yield (rows + shift_h) % height, (cols + shift_w) % width, regions


def position_bias(table: Array, head: int, window_h: int, window_w: int) -> Array:
    """Return the bias (N, N) of a head: the table's entry for each offset of query and key."""
    row, col = np.divmod(np.arange(window_h * window_w), window_w)
    rows = row[:, None] - row + window_h - 1
    cols = col[:, None] - col + window_w - 1
    return np.asarray(table[rows * (2 * window_w - 1) + cols, head])


def softmax(
    logits: Array, query_regions: Regions, key_regions: Regions, between: float = -100.0
) -> Array:
    """Return the softmax of each row, with ``between`` added to logits between two regions."""
    masked = logits + np.where(query_regions[:, None] != key_regions, between, 0.0)
    weights = np.exp(masked - masked.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def landmarks(tokens: Array, attributes: Attributes) -> Array:
    """Return the landmarks (m, d) of the tokens (N, d) of a window: the means of its cells."""
    window_h, window_w = int(attributes["window_h"]), int(attributes["window_w"])
    grid = tokens.reshape(window_h, window_w, -1)
    means = [
        grid[top:bottom, left:right].mean(axis=(0, 1))
        for top, bottom in cell_bounds(window_h, int(attributes["landmark_rows"]))
        for left, right in cell_bounds(window_w, int(attributes["landmark_cols"]))
    ]
    return np.stack(means)


def landmark_regions(regions: Regions, attributes: Attributes) -> Regions:
    """Return the region (m,) of each landmark: that of its cell, which no border cuts."""
    window_h, window_w = int(attributes["window_h"]), int(attributes["window_w"])
    grid = regions.reshape(window_h, window_w)
    return np.array(
        [
            grid[top, left]
            for top, _ in cell_bounds(window_h, int(attributes["landmark_rows"]))
            for left, _ in cell_bounds(window_w, int(attributes["landmark_cols"]))
        ]
    )


def start_maxima(a: Array, regions: Regions) -> tuple[Array, Array]:
    """Return R (m,) and C (m,): the largest row and column sums of |a| in each landmark's region.

    Args:
        a: One matrix (m, m).
        regions: The region of each landmark, (m,).
    """
    rows, cols = np.abs(a).sum(axis=1), np.abs(a).sum(axis=0)
    same = [regions == region for region in regions]
    return (
        np.array([rows[members].max() for members in same]),
        np.array([cols[members].max() for members in same]),
    )


def iterate(a: Array, row_maxima: Array, col_maxima: Array, iterations: int) -> Array:
    """Return the approximate pseudoinverse (m, m) of ``a`` (Razavi et al., as in Nystromformer).

    Args:
        a: One matrix (m, m).
        row_maxima: R, a scalar or (m,).
        col_maxima: C, a scalar or (m,).
        iterations: Number of steps Z <- Z (13 I - aZ (15 I - aZ (7 I - aZ))) / 4.
    """
    eye = np.eye(len(a))
    z = a.T / (np.asarray(row_maxima * col_maxima).reshape(-1, 1) + 1e-15)
    for _ in range(iterations):
        az = a @ z
        z = z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az))) / 4
    return np.asarray(z)


def pseudoinverses(
    matrices: list[Array], regions: list[Regions], attributes: Attributes
) -> list[Array]:
    """Return the approximate pseudoinverse of each matrix (m, m) of a batch.

    Args:
        matrices: All matrices of the batch.
        regions: For each matrix the region of each landmark, (m,).
        attributes: ``iterations`` and ``batch_init`` (1: the maxima run over the whole batch).
    """
    iterations = int(attributes["iterations"])
    if attributes["batch_init"] and matrices:
        row_maximum = np.max([np.abs(a).sum(axis=1).max() for a in matrices])
        col_maximum = np.max([np.abs(a).sum(axis=0).max() for a in matrices])
        return [iterate(a, row_maximum, col_maximum, iterations) for a in matrices]
    return [
        iterate(a, *start_maxima(a, r), iterations) for a, r in zip(matrices, regions, strict=True)
    ]
