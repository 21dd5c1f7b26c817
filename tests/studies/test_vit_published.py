"""The counts of the study's network, by hand."""

import pytest

from studies.vit.published import BATCH, PAPER, counted

WIDTH, HIDDEN, DEPTH, HEADS = 192, 768, 8, 3


@pytest.mark.full
@pytest.mark.parametrize("patch", PAPER)
def test_exact_attention(patch: int) -> None:
    """Products alone; biases, norms and the head are small."""
    places = (160 // patch) ** 2
    tokens = places + 1
    block = 4 * WIDTH**2 + 2 * WIDTH * HIDDEN
    patches = 3 * patch**2 * WIDTH
    parameters, products, kept = counted("full", patch)
    assert parameters * 1e6 == pytest.approx(DEPTH * block + patches + tokens * WIDTH, rel=0.01)
    work = tokens * DEPTH * block + 2 * DEPTH * tokens**2 * WIDTH + places * patches
    assert products * 1e9 == pytest.approx(work, rel=0.01)
    scores = 4 * DEPTH * HEADS * tokens**2
    assert kept * 1e6 > BATCH * (scores + 4 * DEPTH * tokens * (4 * WIDTH + HIDDEN))


@pytest.mark.full
def test_linear_attention_keeps_less() -> None:
    full, linformer = (counted(name, 8) for name in ("full", "linformer 32"))
    assert linformer[2] < full[2]
    assert linformer[1] < full[1]
    assert linformer[0] > full[0]
