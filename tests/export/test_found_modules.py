"""Found modules are traced with every combination of inputs that they may be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conformance_models import session
from later import full, release
from nystra.core.errors import NystraError
from nystra.export import mechanism
from nystra.export.attention.implementation import implement
from nystra.export.rewrite.mechanisms import _find_free_axes, _trace_mechanism
from nystra.export.rewrite.site_modules import (
    FoundFreeTokens,
    FoundMap,
    FoundTokens,
    FoundWindows,
)
from nystra.export.tracing.bodies import attach_bodies
from nystra.models.geometry import TokenGeometry, WindowGeometry

HEADS, DIM = 2, 8

NAMES = ["full", *full("nystra", "nystromformer", "cluster")]

Given = list[Tensor | None]


def check(site: Any, name: str, given: list[Given]) -> None:
    """Compare the nodes of a mechanism, traced for sites of all sizes, with plain PyTorch."""
    shapes = [tuple(None if t is None else tuple(t.shape) for t in inputs) for inputs in given]
    free = [_find_free_axes(sides) for sides in zip(*shapes, strict=True)]
    chosen = mechanism(name).at(site.geometry) if hasattr(site, "geometry") else mechanism(name)
    try:
        plain: Any = implement(chosen, site, "plain")
    except NystraError:
        assert name != "full"  # a linear mechanism may refuse biases
        return
    model = _trace_mechanism(site.eval(), chosen, shapes[0], free, 20, 1, of_one_site=False)
    attach_bodies(model)
    run = session(model)
    held = [tensor.detach() for _, tensor in site.named_parameters()]
    site.implementation = plain
    for inputs in given:
        with torch.no_grad():
            expected = site(*inputs)
        tensors = [tensor for tensor in inputs if tensor is not None] + held
        names = [f"in_{at}" for at in range(len(tensors))]
        feeds = {key: tensor.numpy() for key, tensor in zip(names, tensors, strict=True)}
        read = {value.name for value in run.get_inputs()}
        (output,) = run.run(None, {key: feeds[key] for key in feeds.keys() & read})
        np.testing.assert_allclose(output, expected, atol=1e-4)


def tokens(batch: int, queries: int, keys: int, *, biased: bool) -> list[Tensor]:
    """Return queries, keys, values, and perhaps biases of all pairs."""
    made = [torch.randn(batch, HEADS, count, DIM) for count in (queries, keys, keys)]
    return [*made, torch.randn(1, HEADS, queries, keys)] if biased else made


@pytest.mark.parametrize("biased", [False, *full(True)])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(("before", "apart"), [(0, False), (3, False), *full((0, True))])
@pytest.mark.parametrize("name", ["full", *full("cluster"), *release("nystra", "nystromformer")])
def test_tokens_of_any_number(
    name: str, before: int, apart: bool, mapped: bool, biased: bool
) -> None:
    torch.manual_seed(0)
    geometry = TokenGeometry((), (), 0.4, before=(before,) * 2, separate=apart, biased=biased)
    given: list[Given] = []
    for batch, rows, columns, others in ((2, 20, 18, 300), (1, 9, 16, 170), (3, 14, 11, 95)):
        queries = before + rows * columns
        keys = others if apart else queries
        q, k, v, *bias = tokens(batch, queries, keys, biased=biased)
        sides = torch.zeros(rows, columns) if mapped else None
        given.append([q, k, v, sides, bias[0] if biased else None])
    check(FoundFreeTokens(geometry), name, given)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_tokens_of_one_number(name: str, biased: bool) -> None:
    torch.manual_seed(0)
    site = FoundTokens(TokenGeometry((6, 8), (6, 8), 0.4))
    given: list[Given] = [[*tokens(batch, 48, 48, biased=biased)] for batch in (2, 3)]
    if not biased:
        given = [[*inputs, None] for inputs in given]
    check(site, name, given)


@pytest.mark.parametrize(
    ("table", "scaled"), [(True, True), *full((False, False), (False, True), (True, False))]
)
@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_windows(name: str, grid: bool, table: bool, scaled: bool) -> None:
    torch.manual_seed(0)
    site = FoundWindows(
        WindowGeometry(HEADS, DIM, DIM, (8, 8), (0, 0), False, 0.4, ()),
        torch.randn(225, HEADS) if table else None,
        grid=grid,
        logit_scale=torch.rand(HEADS) + 1 if scaled else None,
        epsilon=1e-6 if scaled else 0.0,
    )
    given: list[Given] = [
        [torch.randn(batch, *sides, 3 * HEADS * DIM)]
        for batch, sides in ((2, (16, 24)), (1, (32, 16)), (3, (8, 40)))
    ]
    check(site, name, given)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_maps(name: str) -> None:
    torch.manual_seed(0)
    site: nn.Module = FoundMap(HEADS, DIM, DIM, 0.4)
    given: list[Given] = [
        [torch.randn(batch, *sides, 3 * HEADS * DIM)]
        for batch, sides in ((2, (16, 24)), (1, (32, 16)))
    ]
    check(site, name, given)
