"""Attention in networks of other code styles: found and equal, or reported with the reason."""

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

import found_toys as toys
from nystra.export.attention.site import find_sites
from nystra.export.found.checks import outputs_differ
from nystra.export.found.graph import Traced, exported_graph, recorded_graph
from nystra.export.found.sites import FoundGraph, find_in_graph
from nystra.export.rewrite.site_modules import FoundMap, FoundWindows, blind

FIRST, SECOND = (2, 3, 16, 24), (2, 3, 32, 16)


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def recorded(network: nn.Module, *shape: int) -> tuple[FoundGraph, torch.Tensor]:
    """Return what is found in one run of a network, and its image."""
    image = noise(*shape)
    return find_in_graph(Traced(recorded_graph(network, (image,)), (image,), None)), image


def agree(found: FoundGraph, network: nn.Module, image: torch.Tensor) -> bool:
    return outputs_differ(found.network(image), network(image)) < 1e-5


SERVED = {
    "EinsumKeysFirst": ("map", "windows 4x4 of a map 16x24, 4 heads of 4, table"),
    "RearrangedByHand": ("map", "windows 8x8 of a map 16x24, 2 heads of 8, table"),
    "ShiftedWithBooleanMask": ("map", "windows 8x8 of a map 16x24, shift 4x4, 2 heads of 8, regio"),
    "RolledByCat": ("map", "windows 4x4 of a map 16x24, shift 2x2, 2 heads of 8"),
    "Grid": ("map", "grid 4x4 of a map 16x24, step 4x6, 2 heads of 8"),
    "MultiheadWindows": ("map", "windows 4x4 of a map 16x24, 2 heads of 8"),
    "Whole": ("map", "global 16x24 of a map 16x24, 2 heads of 8"),
    "OverlappingKeys": ("map", "windows 4x4 of a map 16x24, keys 8x8, 2 heads of 8"),
    "ClassTokenBesideWindows": ("tokens", "windows 4x4 of a map 16x24, 1 without a place"),
    "BiasOfPairs": ("tokens", "windows 4x4 of a map 16x24, 2 heads of 8, biases"),
    "PairsBesideRegions": ("tokens", "windows 4x4 of a map 16x24, shift 2x2, 2 heads of 8"),
    "OverlappingPatches": ("tokens", "windows 4x4 of a map 16x24"),
}
"""Toy -> level and the beginning of its layout."""

QUICKER = {"ShiftedWithBooleanMask", "MultiheadWindows", "OverlappingKeys"}
"""Those that are searched under free sides with every change."""


@pytest.mark.parametrize("name", SERVED)
def test_an_idiom_is_served(name: str) -> None:
    network = toys.lively(getattr(toys, name)())
    found, image = recorded(network, *FIRST)
    (attention,) = found.attentions
    level, layout = SERVED[name]
    assert (attention.level, attention.layout[: len(layout)]) == (level, layout)
    assert bool(attention.reason) == (level == "tokens")
    assert agree(found, network, image)
    assert len(find_sites(found.network)) == 1


NAMED = {
    "Neighbourhood": "each query has its own keys",
    "Channels": "its tokens are channels",
    "Elementwise": "its scores are sums of element-wise products, not a matrix product",
    "ConstantKeys": "its keys do not depend on the input",
    "ConstantQueries": "its queries do not depend on the input",
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_served_is_named(name: str) -> None:
    network = toys.lively(getattr(toys, name)())
    found, image = recorded(network, *FIRST)
    (attention,) = found.attentions
    assert (attention.level, attention.reason) == ("as trained", NAMED[name])
    assert agree(found, network, image)
    assert find_sites(found.network) == []


@pytest.mark.parametrize("name", ["LinearAttention", "Router"])
def test_softmaxes_that_are_no_attention_are_not_named(name: str) -> None:
    network = toys.lively(getattr(toys, name)())
    found, image = recorded(network, *FIRST)
    assert found.attentions == ()
    assert agree(found, network, image)


def test_windows_of_strided_slices_are_found_one_by_one() -> None:
    network = toys.lively(toys.StridedSlices())
    found, image = recorded(network, 1, 3, 8, 8)
    assert [attention.level for attention in found.attentions] == ["map"] * 4
    assert agree(found, network, image)


def test_weights_that_run_twice_are_two_sites() -> None:
    network = toys.lively(toys.SharedWeights())
    found, image = recorded(network, *FIRST)
    assert [attention.level for attention in found.attentions] == ["map", "map"]
    assert len({attention.path for attention in found.attentions}) == 2
    assert agree(found, network, image)


def test_a_class_token_stands_before_the_grid() -> None:
    network = toys.lively(toys.ClassToken())
    found, image = recorded(network, 2, 3, 24, 32)
    (site,) = find_sites(found.network)
    assert site.path == "attention"
    assert site.module.geometry.query_grid == (6, 8)
    assert agree(found, network, image)


def test_half_precision_is_found_after_its_conversion() -> None:
    network = toys.lively(toys.RearrangedByHand()).half()
    found, image = recorded(copy.deepcopy(network).float(), *FIRST)
    assert [attention.level for attention in found.attentions] == ["map"]
    assert outputs_differ(found.network(image), network(image.half()).float()) < 1e-2


def free(of: str | nn.Module) -> tuple[FoundGraph, nn.Module, Traced]:
    network = toys.lively(getattr(toys, of)()) if isinstance(of, str) else of
    axes = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    graph = exported_graph(network, (noise(3, 3, 32, 48),), (axes,))
    traced = Traced(graph, (noise(*FIRST),), (noise(*SECOND),))
    return find_in_graph(traced), network, traced


@pytest.mark.full
def test_layers_are_modules_at_their_paths() -> None:
    found, _, _ = free("RearrangedByHand")
    assert isinstance(found.network.get_submodule("stem"), nn.Conv2d)
    assert isinstance(found.network.get_submodule("proj"), nn.Conv2d)


@pytest.mark.full
def test_a_site_of_free_sides_runs_at_every_size() -> None:
    found, network, _ = free("RolledByCat")
    assert [attention.level for attention in found.attentions] == ["map"]
    for shape in (FIRST, SECOND, (1, 3, 8, 40)):
        assert agree(found, network, noise(*shape))


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICKER else pytest.mark.release)
        for name in sorted(SERVED.keys() - {"ClassTokenBesideWindows"})
    ],
)
def test_idioms_of_free_sides(name: str) -> None:
    found, network, _ = free(name)
    assert [attention.level for attention in found.attentions] == [SERVED[name][0]]
    for shape in (FIRST, SECOND, (1, 3, 24, 40)):
        assert agree(found, network, noise(*shape))


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "value", "by_layer"),
    [("constant", None, True), ("constant", 1.0, False), ("replicate", None, False)],
)
def test_a_map_padded_with_zeros_is_read_before_its_padding(
    mode: str, value: float | None, by_layer: bool
) -> None:
    network = toys.lively(toys.Padded(mode, value))
    found, _, _ = free(network)
    (region,) = found.regions
    assert ("linear" in region.inputs) == by_layer
    assert [attention.level for attention in found.attentions] == ["map"]
    for shape in (FIRST, SECOND, (1, 3, 21, 35), (2, 3, 9, 24)):
        assert agree(found, network, noise(*shape))


@pytest.mark.full
def test_a_map_of_any_size_is_a_site_of_its_own() -> None:
    found, network, _ = free("Whole")
    (site,) = find_sites(found.network)
    assert isinstance(site.module, FoundMap)
    assert agree(found, network, noise(1, 3, 12, 20))


@pytest.mark.full
def test_windows_that_grow_with_the_image_stay_as_trained() -> None:
    class Halves(toys.RearrangedByHand):
        """Windows as high as half of the map, whatever its size."""

        def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            rows, columns = q.shape[2] // 2, q.shape[3] // 2
            cut = [
                t.unflatten(3, (2, columns)).unflatten(2, (2, rows)).permute(0, 2, 4, 3, 5, 1)
                for t in (q, k, v)
            ]
            q, k, v = (t.flatten(3, 4) for t in cut)
            out = (q @ k.mT).softmax(-1) @ v
            whole = out.unflatten(3, (rows, columns)).permute(0, 5, 1, 3, 2, 4)
            return whole.flatten(4, 5).flatten(2, 3)

    network = toys.lively(Halves())
    axes = {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    graph = exported_graph(network, (noise(2, 3, 32, 48),), (axes,))
    found = find_in_graph(Traced(graph, (noise(*FIRST),), (noise(*SECOND),)))
    (attention,) = found.attentions
    assert attention.level == "as trained"
    assert attention.reason == "its windows change with the image size"
    assert found.changing
    assert agree(found, network, noise(*SECOND))


def test_attention_that_ignores_its_scores_is_told_apart() -> None:
    network = toys.lively(toys.RearrangedByHand())
    found, image = recorded(network, *FIRST)
    (site,) = find_sites(found.network)
    assert isinstance(site.module, FoundWindows)
    blind(site.module)
    assert outputs_differ(found.network(image), network(image)) > 1e-2


def test_a_site_that_differs_stays_as_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: FoundWindows, packed: torch.Tensor) -> torch.Tensor:
        return self.attend(packed) * 1.001

    monkeypatch.setattr(FoundWindows, "forward", wrong)
    network = toys.lively(toys.SharedWeights())
    found, image = recorded(network, *FIRST)
    assert [attention.level for attention in found.attentions] == ["as trained"] * 2
    assert "differs by 1e-03 of its result" in found.attentions[0].reason
    assert agree(found, network, image)
    assert find_sites(found.network) == []


def test_a_result_without_scores_tells_nothing() -> None:
    network = toys.lively(toys.RearrangedByHand())
    with torch.no_grad():
        network.qkv.weight[:32] = 0  # type: ignore[union-attr, operator]
        network.qkv.bias[:32] = 0  # type: ignore[union-attr, operator]
        network.table.zero_()  # type: ignore[union-attr, operator]
    found, _ = recorded(network, *FIRST)
    (attention,) = found.attentions
    assert attention.reason == ("its result does not differ from attention that ignores its scores")


@pytest.mark.full
def test_regions_compute_what_they_stand_for_from_the_values_of_the_graph() -> None:
    found, _, traced = free("RearrangedByHand")
    (region,) = found.regions
    kept: dict[str, torch.Tensor] = {}

    class Keeping(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> object:
            kept[n.name] = super().run_node(n)
            return kept[n.name]

    image = noise(1, 3, 24, 40)
    Keeping(traced.graph).run(image)
    got = region.module(*(kept[name] for name in region.inputs))
    torch.testing.assert_close(got, kept[region.output], rtol=0, atol=1e-5)
    assert region.paths == tuple(attention.path for attention in found.attentions)
