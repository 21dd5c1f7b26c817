"""The parts of the search for attention: positions, biases, layouts, modules at paths."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from nystra.export.search.agreement import agreement
from nystra.export.search.biases import read_bias_table, read_biases
from nystra.export.search.layout import Layout, rectangle
from nystra.export.search.paths import unique_paths
from nystra.export.search.places import (
    MIXED,
    NONE,
    compact,
    decode,
    encode,
    extend,
    find_agreed,
    is_constant,
    make_places,
    reshape_shared,
)
from nystra.export.search.values import Attention
from nystra.plugins.operators.window_softmax.torch_op import relative_position_bias


def test_a_place_is_batch_time_row_column() -> None:
    parts = [torch.tensor(numbers) for numbers in ([0, 7], [0, 3], [-2, 900], [-1, 4000])]
    assert all(map(torch.equal, decode(encode(*parts)), parts))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 6, 4, 5), (2, 3, 5), (2, 5)])
def test_a_new_map_has_a_place_for_each_pixel(shape: tuple[int, ...]) -> None:
    places = make_places(shape)
    assert places.shape == shape
    pixels = places.numel() // (3 if len(shape) > 2 else 1)
    assert len(places.unique()) == pixels


def test_padding_continues_an_even_map_and_no_other() -> None:
    places = make_places((1, 1, 1, 4))
    wide = extend(places, 3, 1, 2)
    assert decode(wide)[3].flatten().tolist() == [-1, 0, 1, 2, 3, 4, 5]
    uneven = places[..., torch.tensor([0, 1, 3])]
    assert extend(uneven, 3, 0, 1).flatten()[-1] == NONE
    assert torch.equal(extend(wide, 3, -1, -2), places)


def test_places_that_are_the_same_along_channels_take_less_memory() -> None:
    places = make_places((1, 64, 32, 32))
    tokens = places.flatten(2).transpose(1, 2).reshape(1, 32 * 32, 64).contiguous()
    small = compact(tokens)
    assert torch.equal(small, tokens)
    assert small.untyped_storage().nbytes() == tokens.untyped_storage().nbytes() // 64
    assert compact(tokens[..., 0]).stride() == tokens[..., 0].stride()


def test_two_axes_of_the_same_places_take_less_memory() -> None:
    places = make_places((1, 64, 32, 32)).movedim(1, 3).contiguous()[..., None]
    small = compact(places.movedim(3, 1).expand(1, 64, 32, 32, 8))
    assert small.untyped_storage().nbytes() == 32 * 32 * 8


@pytest.mark.parametrize(
    ("shape", "shared", "wanted", "strides"),
    [
        ((4, 6, 5, 7), (2, 3), (24, 5, 7), (1, 0, 0)),  # of heads, not of tokens
        ((24, 5, 7), (1,), (2, 2, 6, 35), None),  # an axis that varies is merged with one that not
        ((4, 6, 5), (0, 1, 2), (24, 5, 1), (0, 0, 0)),
        ((1, 6, 1), (), (2, 3), (3, 1)),
    ],
)
def test_a_reshape_keeps_what_shares_memory(
    shape: tuple[int, ...],
    shared: tuple[int, ...],
    wanted: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> None:
    sizes = [1 if axis in shared else size for axis, size in enumerate(shape)]
    numbers = torch.arange(torch.tensor(sizes).prod()).reshape(sizes).expand(shape)
    result = reshape_shared(numbers, wanted)
    assert torch.equal(result, numbers.reshape(wanted))
    if strides is not None:
        used = [stride if size > 1 else 0 for size, stride in zip(wanted, strides, strict=True)]
        kept = zip(result.shape, result.stride(), strict=True)
        assert [stride if size > 1 else 0 for size, stride in kept] == used


def test_several_places_have_a_first_one_where_images_keep_several() -> None:
    places = make_places((1, 1, 4, 4))
    merged = places.unflatten(3, (2, 2)).unflatten(2, (2, 2))
    first, exact = find_agreed(merged, [3, 5])
    assert torch.equal(first.flatten(), places[..., ::2, ::2].flatten())
    assert not bool(exact.any())
    whole, _ = find_agreed(places, [2, 3])
    assert whole.flatten().tolist() == [MIXED]


@pytest.mark.parametrize("columns_first", [False, True])
def test_a_table_of_positions_is_read_back(columns_first: bool) -> None:
    table = torch.randn(5 * 3, 2, dtype=torch.float64)
    bias = relative_position_bias(table, 3, 2)
    if columns_first:
        order = torch.arange(6).reshape(3, 2).T.flatten()
        bias = bias[:, order][:, :, order]
    read = read_bias_table(bias, (3, 2), (3, 2), columns_first)
    assert read is not None
    torch.testing.assert_close(read, table, rtol=0, atol=0)


def test_biases_of_pairs_are_no_table() -> None:
    bias = relative_position_bias(torch.randn(15, 2, dtype=torch.float64), 3, 2)
    bias[0, 1, 2] += 1e-3
    assert read_bias_table(bias, (3, 2), (3, 2)) is None


def shifted(masked: float, rows: int = 8) -> tuple[Tensor, Layout]:
    """Return float32 biases and the layout of windows of 2x2, shifted by 1, two heads.

    Args:
        masked: Added to pairs that wrap around.
        rows: Rows of the map, which has 4 columns.
    """
    codes = torch.arange(rows * 4).reshape(rows, 4).roll((-1, -1), (0, 1))
    places = codes.reshape(rows // 2, 2, 2, 2).transpose(1, 2).reshape(-1, 4)
    beyond = torch.stack((places // 4 < 1, places % 4 < 1), 1)
    wrapped = (beyond[..., None] != beyond[..., None, :]).any(1)
    table = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    bias = relative_position_bias(table, 2, 2) + torch.zeros(()).where(~wrapped, masked)[:, None]
    group = torch.arange(2 * len(places)).reshape(-1, 2)
    layout = Layout("windows", len(group) * 2, 2, tokens=4, keys=4, group=group, places=places)
    layout.map, layout.window, layout.key_window, layout.shift = (
        (1, rows, 4),
        (2, 2),
        (2, 2),
        (1, 1),
    )
    return bias.flatten(0, 1), layout


def read(beta: Tensor, layout: Layout) -> Layout:
    read_biases(
        cast(Attention, SimpleNamespace(emptied=False, alpha=1.0, beta=beta, by_data=False)), layout
    )
    return layout


@pytest.mark.parametrize("masked", [-100.0, -1e6, -1e9, torch.finfo().min, -math.inf])
def test_a_mask_of_regions_is_told_from_biases(masked: float) -> None:
    layout = read(*shifted(masked))
    kind = "hidden" if masked <= -1e8 else "regions"
    assert (layout.masked, layout.bias, layout.reason) == (kind, "table", "")


def test_one_window_with_another_mask_is_no_region() -> None:
    beta, layout = shifted(-100.0)
    beta[layout.group[5], 0, 1] -= 100.0
    assert read(beta, layout).masked == "other"


def test_two_masks_of_different_values_are_no_region() -> None:
    beta, layout = shifted(-1e9)
    beta[beta < -1e8] = torch.tensor([-1e9, -2e9]).repeat(int((beta < -1e8).sum()) // 2)
    assert read(beta, layout).masked == "other"


def test_windows_that_all_have_other_biases() -> None:
    beta, layout = shifted(0.0, rows=40)
    beta[:, 0, 1] -= torch.arange(len(beta)) % 37 * 1e-2
    assert read(beta, layout).masked == "other"


def test_tokens_of_a_rectangle() -> None:
    y, x = torch.arange(3).repeat_interleave(2), torch.arange(2).repeat(3)
    assert rectangle(y[None], x[None]) == (3, 2, False)
    by_columns = torch.arange(6).reshape(3, 2).T.flatten()
    assert rectangle(y[None, by_columns], x[None, by_columns]) == (3, 2, True)
    assert rectangle(y[None, [0, 1, 2, 3, 5, 4]], x[None, [0, 1, 2, 3, 5, 4]]) is None


WINDOWS = Layout("windows", 8, 2, 4, 4, 16, 16, map=(1, 8, 16), window=(4, 4), key_window=(4, 4))


def test_windows_agree_but_for_the_map() -> None:
    other = replace(WINDOWS, map=(1, 16, 12))
    found = agreement(WINDOWS, other)
    assert (found.reason, found.is_global, found.same_tokens) == ("", False, True)
    assert not found.changing


def test_maps_that_are_padded_to_the_same_sides_settle_nothing() -> None:
    found = agreement(WINDOWS, replace(WINDOWS, map=(1, 16, 16)))
    assert (found.reason, found.changing) == ("", True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shift": (2, 2)}, "its windows change with the image size"),
        ({"window": (4, 8), "tokens": 32, "keys": 32}, "its windows change with the image size"),
        ({"masked": "regions"}, "arranged differently at another image size"),
        ({"scale": 0.5}, "arranged differently at another image size"),
        ({"kind": "grid"}, "arranged differently at another image size"),
    ],
)
def test_what_differs_between_sizes_is_no_window(change: dict[str, object], reason: str) -> None:
    other = replace(WINDOWS, map=(1, 16, 12), **change)  # type: ignore[arg-type]
    assert reason in agreement(WINDOWS, other).reason


def test_tables_that_differ_between_sizes() -> None:
    one, other = (
        replace(WINDOWS, bias="table", table=torch.full((49, 2), value)) for value in (0.0, 1.0)
    )
    assert "biases change" in agreement(one, other).reason
    assert "does not exist" in agreement(one, None).reason


def test_a_window_as_large_as_every_map_is_the_whole_map() -> None:
    first = replace(WINDOWS, kind="global", window=(8, 16), key_window=(8, 16))
    second = replace(first, map=(1, 4, 4), window=(4, 4), key_window=(4, 4))
    assert agreement(first, second).is_global


def test_paths_that_are_there_twice_are_numbered() -> None:
    assert unique_paths(["a", "b.c", "a", ""]) == [
        "a.attention_0",
        "b.c",
        "a.attention_1",
        "attention.attention_0",
    ]


@pytest.mark.parametrize("dims", [1, -1, [1, 3], [2]])
def test_places_that_share_memory_agree_as_others_do(dims: int | list[int]) -> None:
    shared = make_places((2, 3, 4, 5))
    assert shared.stride(1) == 0
    for got, expected in zip(
        find_agreed(shared, dims), find_agreed(shared.contiguous(), dims), strict=True
    ):
        assert torch.equal(got, expected)


def test_only_constant_axes_are_compacted() -> None:
    places = make_places((1, 64, 16, 32)).contiguous()
    assert is_constant(places, 1)
    assert not is_constant(places, 3)
    assert compact(places).stride(1) == 0
    assert torch.equal(compact(places), places)
    places[0, 5, 3, 3] = MIXED
    assert not is_constant(places, 1)
    assert compact(places) is places
