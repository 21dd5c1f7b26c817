"""Attention in networks of other code styles: found and equal, or reported with the reason."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import found_toys as toys
from later import full
from nystra.core.ports.port import Port
from nystra.export.attention.site import find_sites
from nystra.export.load.searching import at_shapes
from nystra.export.load.searching import search_attention as in_graph
from nystra.export.rewrite.attention_search import find_attention
from nystra.export.rewrite.replacement import insert_replacements
from nystra.export.rewrite.site_modules import FoundMap, FoundWindows, ignore_scores
from nystra.export.search.places import decode
from nystra.export.search.provenance import Provenance
from nystra.export.tracing import examples
from nystra.export.tracing.programs import export_program, record_program
from nystra.models.facts import Facts
from searched_graphs import AXES, Searched, graph_of, noise, of_any_size, of_one_size

FIRST, SECOND = (2, 3, 16, 24), (3, 3, 32, 16)


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

QUICKER = ("OverlappingKeys", "MultiheadWindows", "ShiftedWithBooleanMask")
"""Those that are searched under free sides too; the first of them by default."""


@pytest.mark.parametrize(
    "name",
    [*QUICKER[:1], *full(*(name for name in SERVED if name not in QUICKER[:1]))],
)
def test_an_idiom_is_served(name: str) -> None:
    network = toys.lively(getattr(toys, name)())
    found = of_one_size(network, *FIRST)
    (attention,) = found.attentions
    level, layout = SERVED[name]
    assert (attention.level, attention.layout[: len(layout)]) == (level, layout)
    assert bool(attention.reason) == (level == "tokens")
    assert found.agrees(noise(*FIRST))
    assert len(find_sites(found.network)) == 1


class Rectangles(toys.Toy):
    """Windows of 5x3."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        cut = (t.unflatten(3, (-1, 3)).unflatten(2, (-1, 5)) for t in (q, k, v))
        tokens = (t.permute(0, 2, 4, 3, 5, 1).flatten(3, 4) for t in cut)
        q, k, v = (toys.heads_of(t, self.heads) for t in tokens)
        out = (q @ k.mT).softmax(-1) @ v
        out = out.transpose(-2, -3).flatten(-2).unflatten(3, (5, 3)).permute(0, 5, 1, 3, 2, 4)
        return out.flatten(4, 5).flatten(2, 3)


@pytest.mark.full
@pytest.mark.parametrize(("dim", "heads"), [(14, 2), (3, 3), (8, 1)])
def test_heads_of_any_width_and_number(dim: int, heads: int) -> None:
    found = of_one_size(toys.lively(Rectangles(dim, heads)), 2, 3, 10, 12)
    (attention,) = found.attentions
    layout = f"windows 5x3 of a map 10x12, {heads} heads of {dim // heads}"
    assert (attention.level, attention.layout) == ("map", layout)
    assert found.agrees(noise(2, 3, 10, 12))


class ShiftedInPadding(toys.ShiftedWithBooleanMask):
    """Shifted windows of 16, to whose multiples the network pads images of any size."""

    side = 16

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, columns = q.shape[2:]
        padding = (0, -columns % self.side, 0, -rows % self.side)
        out = super().attend(*(F.pad(t, padding) for t in (q, k, v)))
        return out[:, :, :rows, :columns]


@pytest.mark.full
def test_windows_that_padding_makes_of_small_maps_are_several_in_larger_ones() -> None:
    """A site of the one window of both small maps would fail on larger images."""
    network = toys.lively(toys.Padded())
    model = graph_of(network, *export_program(network, (noise(3, 3, 32, 48),), (AXES,)))
    shapes = (2, 3, 5, 6), (3, 3, 6, 7), (1, 3, 12, 20)
    one, other, larger = (at_shapes(model, {"image": shape}) for shape in shapes)
    found = [
        find_attention(model, one, other, *more).attentions[0] for more in ((), (lambda: larger,))
    ]
    assert [attention.level for attention in found] == ["map", "as trained"]
    assert found[1].reason == "a site in its place cannot be computed at another image size"


@pytest.mark.release
def test_shifted_windows_as_long_as_small_maps_are_searched_in_larger_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examples, "_LEAST_UNIT", 4)  # images are half as large, windows too
    network = toys.lively(ShiftedInPadding())
    model = graph_of(network, *export_program(network, (noise(3, 3, 32, 48),), (AXES,)))
    facts = Facts(
        architecture="toy",
        task="restoration",
        inputs=(Port("image", "image", lengths={"channels": 3}),),
        outputs=(Port("output", "image", lengths={"channels": 16}),),
        tiling="supported",
        license="unknown",
    )
    (attention,) = in_graph(model, facts).attentions
    assert attention.layout.startswith("windows 16x16 of a map 32x48, shift 8x8, 2 heads of 8, r")
    assert (attention.level, attention.reason) == ("map", "")


NAMED = {
    "Neighbourhood": "each query has its own keys",
    "Channels": "its tokens are channels",
    "Elementwise": "its scores are sums of element-wise products, not a matrix product",
    "ConstantKeys": "its keys do not depend on the input",
    "ConstantQueries": "its queries do not depend on the input",
}


@pytest.mark.full
@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_served_is_named(name: str) -> None:
    network = toys.lively(getattr(toys, name)())
    found = of_one_size(network, *FIRST)
    (attention,) = found.attentions
    assert (attention.level, attention.reason) == ("as trained", NAMED[name])
    assert found.agrees(noise(*FIRST))
    assert find_sites(found.network) == []


@pytest.mark.full
@pytest.mark.parametrize("name", ["LinearAttention", "Router"])
def test_softmaxes_that_are_no_attention_are_not_named(name: str) -> None:
    network = toys.lively(getattr(toys, name)())
    found = of_one_size(network, *FIRST)
    assert found.attentions == ()
    assert found.agrees(noise(*FIRST))


@pytest.mark.full
def test_windows_of_strided_slices_are_found_one_by_one() -> None:
    network = toys.lively(toys.StridedSlices())
    found = of_one_size(network, 1, 3, 8, 8)
    assert [attention.level for attention in found.attentions] == ["map"] * 4
    assert found.agrees(noise(1, 3, 8, 8))


@pytest.mark.full
def test_weights_that_run_twice_are_two_sites() -> None:
    network = toys.lively(toys.SharedWeights())
    found = of_one_size(network, *FIRST)
    assert [attention.level for attention in found.attentions] == ["map", "map"]
    assert len({attention.path for attention in found.attentions}) == 2
    assert found.agrees(noise(*FIRST))


@pytest.mark.full
def test_a_class_token_stands_before_the_grid() -> None:
    network = toys.lively(toys.ClassToken())
    found = of_one_size(network, 2, 3, 24, 32)
    (site,) = find_sites(found.network)
    assert site.path == "attention"
    assert site.module.geometry.query_grid == (6, 8)
    assert found.agrees(noise(2, 3, 24, 32))


class Cosines(toys.RearrangedByHand):
    """The attention of Swin V2, by norms along an axis of (..., heads, N, d)."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis, self.scale = axis, nn.Parameter(torch.ones(2, 1, 1))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (toys.heads_of(toys.windows_of(t, 8), 2) for t in (q, k, v))
        q, k = (F.normalize(t, dim=self.axis) for t in (q, k))
        scores = q @ k.mT * self.scale.exp() + toys.position_bias(self.table, 8)
        return toys.map_of((scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2), 8)


@pytest.mark.full
@pytest.mark.parametrize("axis", [-1, pytest.param(-3, marks=pytest.mark.full)])
def test_norms_of_heads_are_inside_the_site_and_others_before_it(axis: int) -> None:
    network = toys.lively(Cosines(axis))
    found = of_one_size(network, *FIRST)
    assert [attention.level for attention in found.attentions] == ["map"]
    (site,) = find_sites(found.network)
    scale = site.module.logit_scale
    assert (scale is not None) == (axis == -1)
    if scale is not None:
        assert torch.allclose(scale, network.scale.exp().flatten())
    (item,) = found.found.replacements
    assert any(node.op_type == "ReduceL2" for node in item.nodes) == (axis == -3)
    assert found.agrees(noise(*FIRST))


class Pooled(nn.Module):
    """Means of neighbors on a map that was shifted before."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(torch.roll(x, 2, 3), 3, self.stride, padding=1)


@pytest.mark.full
@pytest.mark.parametrize("stride", [1, 2])
def test_a_pooling_that_keeps_the_map_keeps_its_places(stride: int) -> None:
    model = graph_of(Pooled(stride), record_program(Pooled(stride), (noise(1, 3, 6, 8),)))
    run = Provenance(at_shapes(model, {"image": (1, 3, 6, 8)})).run(model.graph)
    pooled = run.value(model.graph.outputs[0])
    assert pooled is not None
    assert pooled.place is not None
    columns = decode(pooled.place)[3][0, 0, 0].tolist()
    assert columns == ([6, 7, 0, 1, 2, 3, 4, 5] if stride == 1 else [0, 1, 2, 3])


def free(of: str | nn.Module) -> Searched:
    network = toys.lively(getattr(toys, of)()) if isinstance(of, str) else of
    return of_any_size(network, FIRST, SECOND)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICKER else pytest.mark.release)
        for name in sorted(SERVED.keys() - {"ClassTokenBesideWindows"})
    ],
)
def test_idioms_of_free_sides(name: str) -> None:
    found = free(name)
    assert [attention.level for attention in found.attentions] == [SERVED[name][0]]
    for shape in (FIRST, SECOND, (1, 3, 24, 40)):
        assert found.agrees(noise(*shape))


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "value", "by_layer"),
    [("constant", None, True), ("constant", 1.0, False), ("replicate", None, False)],
)
def test_a_map_padded_with_zeros_is_read_before_its_padding(
    mode: str, value: float | None, by_layer: bool
) -> None:
    network = toys.lively(toys.Padded(mode, value))
    found = free(network)
    (item,) = found.found.replacements
    assert ("linear" in {value.name for value in item.inputs}) == by_layer
    graph = found.model.graph
    kept = insert_replacements(list(graph), [item], [str(value.name) for value in graph.outputs])
    read = {value for node in kept if node.op_type != "Shape" for value in node.inputs}
    assert all(node.inputs[0] in read for node in item.nodes if node.op_type == "Shape")
    assert [attention.level for attention in found.attentions] == ["map"]
    for shape in (FIRST, SECOND, (1, 3, 21, 35), (2, 3, 9, 24)):
        assert found.agrees(noise(*shape))


@pytest.mark.full
def test_a_map_of_any_size_is_a_site_of_its_own() -> None:
    found = free("Whole")
    (site,) = find_sites(found.network)
    assert isinstance(site.module, FoundMap)
    assert found.agrees(noise(1, 3, 12, 20))


@pytest.mark.full
def test_windows_that_grow_with_the_image_are_lists_of_tokens() -> None:
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
    found = of_any_size(network, FIRST, SECOND)
    (attention,) = found.attentions
    assert attention.level == "tokens"
    assert found.agrees(noise(*SECOND))


@pytest.mark.full
def test_attention_that_ignores_its_scores_is_told_apart() -> None:
    network = toys.lively(toys.RearrangedByHand())
    found = of_one_size(network, *FIRST)
    (site,) = find_sites(found.network)
    assert isinstance(site.module, FoundWindows)
    ignore_scores(site.module)
    assert not found.agrees(noise(*FIRST))


@pytest.mark.full
def test_a_site_that_differs_stays_as_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: FoundWindows, packed: torch.Tensor) -> torch.Tensor:
        return self.attend(packed) * 1.001

    monkeypatch.setattr(FoundWindows, "forward", wrong)
    network = toys.lively(toys.SharedWeights())
    found = of_one_size(network, *FIRST)
    assert [attention.level for attention in found.attentions] == ["as trained"] * 2
    assert "differs by 1e-03 of its result" in found.attentions[0].reason
    assert found.agrees(noise(*FIRST))
    assert find_sites(found.network) == []
