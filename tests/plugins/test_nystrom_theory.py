"""What the papers prove of the Nystrom form, and what six iterations of the pseudoinverse leave."""

import pytest
import torch
from torch import Tensor

from nystra.plugins.operators.attention_torch import nystrom_attention, softmax_attention

LANDMARKS, TOKENS, HEAD = 16, 256, 8


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


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
        q, k, v, *landmarks, scale=scale, iterations=iterations, guard=0.0, threshold=30.0
    )
    error = float((got - exact).norm() / exact.norm())
    assert least <= error < most


def test_the_error_of_the_nystrom_form_is_the_schur_complement() -> None:
    """The note on Nystromformer: with sampled rows and columns only the last block is not exact."""
    matrix = normal(TOKENS, TOKENS, seed=3).softmax(-1)
    a, b = matrix[:LANDMARKS, :LANDMARKS], matrix[:LANDMARKS, LANDMARKS:]
    f, c = matrix[LANDMARKS:, :LANDMARKS], matrix[LANDMARKS:, LANDMARKS:]
    inverse = torch.linalg.pinv(a)
    columns, rows = torch.cat([a, f]), torch.cat([a, b], 1)
    error = matrix - columns @ inverse @ rows
    expected = torch.zeros_like(matrix)
    expected[LANDMARKS:, LANDMARKS:] = c - f @ inverse @ b
    torch.testing.assert_close(error, expected, atol=1e-10, rtol=0)
    assert expected.abs().max() > 1e-3
