"""Masks, factors and what is done to weights: replaced only where that is true for every input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import found_toys as toys
import mask_toys
from later import full, one_in, release
from mask_toys import Scored
from searched_graphs import Searched, noise, of_any_size, of_one_size

FIRST, SECOND = (2, 3, 16, 24), (3, 3, 32, 16)


def name_of(toy: type[Scored]) -> str:
    return toy.__name__


def lively(toy: type[Scored]) -> Scored:
    made = toys.lively(toy())
    assert isinstance(made, Scored)
    return made


def assert_right(found: Searched, image: Tensor, allowed: float = 1e-4) -> None:
    """Compare the graph with the module: NaN where that has none, numbers elsewhere."""
    with torch.no_grad():
        expected = found.module(image)
        (given,) = found.network.with_sites([image])
    there = expected.isfinite()
    np.testing.assert_array_equal(given.isfinite(), there)
    largest = float(expected[there].abs().max()) if there.any() else 1.0
    np.testing.assert_allclose(given[there], expected[there], rtol=0, atol=allowed * largest)


@pytest.mark.parametrize("toy", one_in(8, mask_toys.REFUSED), ids=name_of)
def test_scores_that_are_no_product_and_mask_stay_as_trained(toy: type[Scored]) -> None:
    found = of_one_size(lively(toy), *FIRST)
    assert [attention.level for attention in found.attentions] in ([], ["as trained"])
    assert found.found.replacements == ()


@pytest.mark.parametrize("toy", one_in(4, mask_toys.SERVED), ids=name_of)
def test_masks_that_hide_keys_are_replaced_for_every_image(toy: type[Scored]) -> None:
    found = of_one_size(lively(toy), *FIRST)
    assert [attention.level for attention in found.attentions] in (["map"], ["tokens"])
    for name, image in mask_toys.images().items():
        assert_right(found, image, 1e-2 if name == "1000 times" else 1e-4)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize(
    "toy", [*full(mask_toys.BY_SIZE[0]), *release(*mask_toys.BY_SIZE[1:])], ids=name_of
)
def test_what_depends_on_the_size_is_right_at_every_size(toy: type[Scored]) -> None:
    found = of_any_size(lively(toy), FIRST, SECOND)
    for shape in (FIRST, SECOND, (1, 3, 64, 16), (1, 3, 128, 24), (1, 3, 16, 128)):
        assert_right(found, noise(*shape))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_a_mask_of_padding_that_both_sizes_of_a_search_need_not_is_kept() -> None:
    found = of_any_size(lively(mask_toys.HiddenPadding), FIRST, SECOND)
    assert [attention.level for attention in found.attentions] == ["tokens"]
    for shape in (FIRST, (1, 3, 13, 10), (3, 3, 7, 32)):
        assert_right(found, noise(*shape))
