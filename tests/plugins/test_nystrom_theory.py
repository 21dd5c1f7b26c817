"""What the papers prove of the Nystrom form, and what six iterations of the pseudoinverse leave."""

import pytest
import torch
from torch import Tensor

from nystra.plugins.operators.attention_torch import (
    exp_linear,
    nystrom_attention,
    softmax_attention,
)

LANDMARKS, TOKENS, HEAD = 16, 256, 8
THRESHOLD = 30.0


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def kernel(q: Tensor, k: Tensor) -> Tensor:
    return exp_linear(q @ k.T * HEAD**-0.5, THRESHOLD)


def approximate_kernel(q: Tensor, k: Tensor, q_landmarks: Tensor, k_landmarks: Tensor) -> Tensor:
    """Return the kernel matrix of `nystrom_attention`, which divides its rows by their sums."""
    values = torch.eye(len(k), dtype=torch.float64)
    rows = nystrom_attention(
        *(q, k, values, q_landmarks, k_landmarks),
        scale=HEAD**-0.5,
        iterations=30,
        guard=0.0,
        threshold=THRESHOLD,
    )
    sums = kernel(q, k_landmarks) @ torch.linalg.solve(
        kernel(q_landmarks, k_landmarks), kernel(q_landmarks, k).sum(1)
    )
    return rows * sums.unsqueeze(1)


@pytest.mark.parametrize(("iterations", "least", "most"), [(6, 1e-3, 0.1), (30, 0.0, 1e-10)])
def test_a_kernel_of_rank_m_is_recovered(iterations: int, least: float, most: float) -> None:
    """Corollary 2.2 of PnP-Nystra holds for the pseudoinverse; six iterations are some percent off.

    Every token equals one of 16 landmarks, so that the extended kernel matrix has rank 16.
    """
    landmarks = normal(LANDMARKS, HEAD, seed=0), normal(LANDMARKS, HEAD, seed=1)
    q, k = (each.repeat_interleave(TOKENS // LANDMARKS, 0) for each in landmarks)
    v, scale = normal(TOKENS, 5, seed=2), HEAD**-0.5
    exact = softmax_attention(q, k, v, scale)
    got = nystrom_attention(
        q, k, v, *landmarks, scale=scale, iterations=iterations, guard=0.0, threshold=THRESHOLD
    )
    error = float((got - exact).norm() / exact.norm())
    assert least <= error < most


@pytest.mark.parametrize("seed", range(4))
def test_the_error_is_bounded_by_the_next_singular_value(seed: int) -> None:
    """Lemma 2.1: the error is at most C s_(m+1)(E) / s_m(A), C a constant times s_1(E)^2.

    E is the kernel matrix extended by the landmarks, A that of the landmarks. Tokens move away
    from 16 places step by step, by which s_(m+1) grows from zero.
    """
    landmarks = normal(LANDMARKS, HEAD, seed=seed), normal(LANDMARKS, HEAD, seed=10 + seed)
    places = [each.repeat_interleave(TOKENS // LANDMARKS, 0) for each in landmarks]
    errors, bounds = [], []
    for distance in (0.0, 1e-4, 1e-3, 1e-2, 0.1):
        q, k = (
            place + distance * normal(TOKENS, HEAD, seed=20 + number)
            for number, place in enumerate(places)
        )
        extended = kernel(torch.cat([landmarks[0], q]), torch.cat([landmarks[1], k]))
        values = torch.linalg.svdvals(extended)
        smallest = torch.linalg.svdvals(kernel(*landmarks))[-1]
        difference = kernel(q, k) - approximate_kernel(q, k, *landmarks)
        errors.append(float(torch.linalg.matrix_norm(difference, 2)))
        bounds.append(float(values[0] ** 2 * values[LANDMARKS] / smallest))
    assert errors[0] < 1e-6
    for error, bound in zip(errors[1:], bounds[1:], strict=True):
        assert error <= bound
    assert errors == sorted(errors)
    assert errors[-1] > 1e2 * errors[1], "the bound is not met by zeros"


def test_the_error_of_the_nystrom_form_is_the_schur_complement() -> None:
    """The note on Nystromformer: with sampled rows and columns only the last block is not exact."""
    q, k = normal(TOKENS, HEAD, seed=3), normal(TOKENS, HEAD, seed=4)
    matrix = kernel(q, k)
    a, b = matrix[:LANDMARKS, :LANDMARKS], matrix[:LANDMARKS, LANDMARKS:]
    f, c = matrix[LANDMARKS:, :LANDMARKS], matrix[LANDMARKS:, LANDMARKS:]
    error = matrix - approximate_kernel(q, k, q[:LANDMARKS], k[:LANDMARKS])
    expected = torch.zeros_like(matrix)
    expected[LANDMARKS:, LANDMARKS:] = c - f @ torch.linalg.solve(a, b)
    scale = float(expected.abs().max())
    torch.testing.assert_close(error, expected, atol=1e-8 * scale, rtol=0)
    assert scale > 1e-3
