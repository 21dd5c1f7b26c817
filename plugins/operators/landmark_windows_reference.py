"""The two Nystrom forms in windows: what they share, in float64 numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .schema import Attributes
from .windows_reference import (
    Array,
    Window,
    landmark_regions,
    landmarks,
    pseudoinverses,
    split_heads,
    windows,
)


class Factors(NamedTuple):
    """The Nystrom problem of one head in one window.

    Attributes:
        left: G_L (N, m), queries against landmark keys.
        core: A (m, m), landmark queries against landmark keys.
        upper: G_U (m, N), landmark queries against keys.
        values: V (N, e).
    """

    left: Array
    core: Array
    upper: Array
    values: Array


Kernel = Callable[[Array, npt.NDArray[np.bool_]], Array]
"""(logits, same region) -> matrix, both of one shape."""

Combine = Callable[[Factors, Array], Array]
"""(factors, Z (m, m)) -> attention (N, e)."""


def window_nystrom_reference(
    qkv: Array, attributes: Attributes, kernel: Kernel, combine: Combine
) -> Array:
    """Return a Nystrom form of window attention.

    Args:
        qkv: (B, H, W, h(2d+e)).
        attributes: the checked attributes.
        kernel: from logits to one of the three matrices.
        combine: from the three matrices, the values and the pseudoinverse to the output.

    Returns:
        (B, H, W, h e).
    """
    heads, e = int(attributes["heads"]), int(attributes["value_dim"])
    scale = float(attributes["scale"])
    places: list[tuple[int, Window, int]] = []
    problems: list[Factors] = []
    regions: list[npt.NDArray[np.int64]] = []
    for image, pixels in enumerate(qkv):
        for window in windows(pixels.shape[0], pixels.shape[1], attributes):
            tokens, cells = window.regions, landmark_regions(window.regions, attributes)
            for head, (q, k, v) in enumerate(
                split_heads(pixels[window.rows, window.cols], attributes)
            ):
                q_m, k_m = landmarks(q, attributes), landmarks(k, attributes)
                left = kernel(scale * (q @ k_m.T), tokens[:, None] == cells[None, :])
                core = kernel(scale * (q_m @ k_m.T), cells[:, None] == cells[None, :])
                upper = kernel(scale * (q_m @ k.T), cells[:, None] == tokens[None, :])
                places.append((image, window, head))
                problems.append(Factors(left, core, upper, v))
                regions.append(cells)
    inverses = pseudoinverses([problem.core for problem in problems], regions, attributes)
    out = np.empty((*qkv.shape[:3], heads * e))
    for (image, window, head), problem, z in zip(places, problems, inverses, strict=True):
        out[image, window.rows, window.cols, head * e : (head + 1) * e] = combine(problem, z)
    return out
