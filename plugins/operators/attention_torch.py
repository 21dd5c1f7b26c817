"""The attentions on tokens in torch: plain, differentiable, for any leading dimensions.

Shapes: q (..., N, d), k (..., Nk, d), v (..., Nk, e), the leading dimensions being batch, heads,
windows. float32, float64 and meta tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .window_schema import cell_bounds


class Regions(NamedTuple):
    """Which tokens and landmarks attend to each other in a shifted window: those of equal number.

    Attributes:
        tokens: (..., N) integers, broadcast over the leading dimensions of q.
        landmarks: (..., m) integers.
    """

    tokens: Tensor
    landmarks: Tensor


def landmark_pool(
    n: int,
    parts: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the matrix (parts, n) of adaptive average pooling of ``n`` places.

    Cell i is the mean of the places floor(i n / parts) to ceil((i + 1) n / parts) - 1; cells
    overlap where ``parts`` does not divide ``n``.
    """
    bounds = torch.tensor(cell_bounds(n, parts), device=device).unsqueeze(1)  # (parts, 1, 2)
    place = torch.arange(n, device=device)
    inside = (place >= bounds[..., 0]) & (place < bounds[..., 1])
    return inside.to(dtype) / (bounds[..., 1] - bounds[..., 0]).to(dtype)


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None
) -> Tensor:
    """Return softmax(scale q k^T + bias) v, (..., N, e).

    Args:
        q: (..., N, d).
        k: (..., Nk, d).
        v: (..., Nk, e).
        scale: Factor of the logits.
        bias: Added to the logits, broadcast to (..., N, Nk); position bias and mask in one.
    """
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def pinv(
    a: Tensor, iterations: int, batch_init: bool | int = False, regions: Tensor | None = None
) -> Tensor:
    """Return the iterative pseudoinverse Z (..., m, m) of ``a`` (..., m, m).

    Z0 = a^T / (R C + 1e-15), R and C the largest row and column sums of abs a, then
    Z <- Z (13 I - aZ (15 I - aZ (7 I - aZ))) / 4 (Razavi et al., as in Nystromformer and
    PnP-Nystra).

    Args:
        a: (..., m, m).
        iterations: Number of steps.
        batch_init: Whether R and C are maxima over the whole tensor rather than per matrix.
        regions: (..., m) integers: without ``batch_init``, R and C of landmark i are maxima among
            the landmarks of its region.
    """
    row_sums, col_sums = a.abs().sum(-1), a.abs().sum(-2)  # (..., m)
    if batch_init:
        maxima = row_sums.max() * col_sums.max()
    elif regions is None:
        maxima = (row_sums.amax(-1) * col_sums.amax(-1))[..., None, None]
    else:
        same = regions.unsqueeze(-1) == regions.unsqueeze(-2)  # (..., m, m)
        zero = row_sums.new_zeros(())
        row_maxima = torch.where(same, row_sums.unsqueeze(-2), zero).amax(-1)
        col_maxima = torch.where(same, col_sums.unsqueeze(-2), zero).amax(-1)
        maxima = (row_maxima * col_maxima).unsqueeze(-1)
    z = a.transpose(-2, -1) / (maxima + 1e-15)
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
    return z


Inverse = Callable[[Tensor, int, "bool | int", "Tensor | None"], Tensor]
"""Takes the arguments of `pinv` and returns its result."""


def exp_linear(x: Tensor, threshold: float) -> Tensor:
    """Return exp(min(x, threshold)) + max(x - threshold, 0), the kernel of PnP-Nystra."""
    return x.clamp(max=threshold).exp() + (x - threshold).clamp(min=0)


def _same(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(-1) == b.unsqueeze(-2)


def nystrom_terms(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_landmarks: Tensor,
    k_landmarks: Tensor,
    *,
    scale: float,
    iterations: int = 6,
    batch_init: bool | int = False,
    threshold: float = 5.0,
    guard: float = 0.02,
    regions: Regions | None = None,
    inverse: Inverse = pinv,
) -> tuple[Tensor, Tensor]:
    """Return the kernel Nystrom attention (..., N, e) of PnP-Nystra (eq. 2-7), and t (..., N).

    G_L (Z (G_U V)) divided by G_L (Z (G_U 1)), with f(x) = exp(min(x, threshold)) + max(x -
    threshold, 0) of x = scale q.k for all three matrices, and a guard where that denominator is not
    safely positive. t is the share of the Nystrom form in a token's result: 1 if the guard did not
    change it (always with ``guard`` 0), 0 if the convex two-step form replaced it.

    Args:
        q: (..., N, d).
        k: (..., Nk, d).
        v: (..., Nk, e).
        q_landmarks: (..., m, d), pooled from q.
        k_landmarks: (..., m, d), pooled from k.
        scale: Factor of q.k.
        iterations: Steps of the pseudoinverse.
        batch_init: Whether its start value takes maxima over the whole batch, as in the reference;
            a result then depends on the batch.
        threshold: Where exp is continued linearly.
        guard: The safe share of the denominator; 0: the reference's form, unprotected.
        regions: For a shifted window (N = Nk): kernel entries between regions are 0.
        inverse: `pinv`, or another function of its arguments that computes the same.
    """

    def kernel(left: Tensor, right: Tensor, same: Tensor | None) -> Tensor:
        matrix = exp_linear(left @ right.transpose(-2, -1), threshold)
        return matrix if same is None else torch.where(same, matrix, matrix.new_zeros(()))

    tokens, cells = (None, None) if regions is None else regions
    masked = tokens is not None and cells is not None
    core_same = _same(cells, cells) if cells is not None else None
    left_same = _same(tokens, cells) if tokens is not None and cells is not None else None
    upper_same = left_same.transpose(-2, -1) if left_same is not None else None
    q_scaled, k_scaled = scale * q_landmarks, scale * k_landmarks
    left = kernel(q, k_scaled, left_same)  # G_L (..., N, m)
    core = kernel(q_landmarks, k_scaled, core_same)  # A (..., m, m)
    upper = kernel(q_scaled, k, upper_same)  # G_U (..., m, Nk)
    z = inverse(core, iterations, batch_init, cells if masked else None)
    sums = upper.sum(-1, keepdim=True)  # (..., m, 1)
    upper_values = upper @ v  # (..., m, e)
    if guard == 0:
        den = left @ (z @ sums)
        return left @ (z @ upper_values) / (den + 1e-12), torch.ones_like(den[..., 0])
    p = left @ z
    den = p @ sums
    mag = (p.abs() @ sums).clamp(min=1e-30)
    t = ((den / mag - guard) / guard).clamp(0, 1)
    t = torch.where(t > 0, t, t.new_zeros(()))  # NaN, since Z overflowed: guarded
    safe = torch.where(t > 0, torch.maximum(den, guard * mag), t.new_ones(()))
    num = left @ (z @ upper_values)
    soft = (left / left.sum(-1, keepdim=True).clamp(min=1e-30)) @ (
        upper_values / sums.clamp(min=1e-30)
    )
    return torch.where(t > 0, soft + t * (num / safe - soft), soft), t[..., 0]


def nystrom_attention(*problem: Tensor, scale: float, **options: Any) -> Tensor:
    """Return the attention alone of :func:`nystrom_terms`, which has the arguments."""
    return nystrom_terms(*problem, scale=scale, **options)[0]


def nystromformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_landmarks: Tensor,
    k_landmarks: Tensor,
    *,
    scale: float,
    iterations: int = 6,
    batch_init: bool | int = False,
    regions: Regions | None = None,
    inverse: Inverse = pinv,
) -> Tensor:
    """Return the row-normalized Nystrom attention (Xiong et al., 2021, eq. 14), (..., N, e).

    Arguments as in :func:`nystrom_terms`; between regions -100 is added to the logits.
    """

    def kernel(left: Tensor, right: Tensor, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        logits = left @ right.transpose(-2, -1)
        if rows is not None and cols is not None:
            logits = logits - 100.0 * (~_same(rows, cols)).to(logits.dtype)
        return logits.softmax(-1)

    tokens, cells = (None, None) if regions is None else regions
    q_scaled, k_scaled = scale * q_landmarks, scale * k_landmarks
    left = kernel(q, k_scaled, tokens, cells)
    core = kernel(q_landmarks, k_scaled, cells, cells)
    upper = kernel(q_scaled, k, cells, tokens)
    return left @ (inverse(core, iterations, batch_init, cells) @ (upper @ v))
