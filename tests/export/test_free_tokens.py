"""Attention between tokens of any number: registers before a map, cross attention, joint lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from conformance_models import session
from nystra.export import mechanism
from nystra.export.attention.implementation import implement
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import resolve
from nystra.export.rewrite.site_modules import FoundFreeTokens
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.trace import trace_piece
from nystra.models.geometry import TokenGeometry
from searched_graphs import noise, of_any_size

LINEAR = ("nystra", "nystromformer", "cluster")


class Registers(nn.Module):
    """Global attention of a map behind registers, with rotary positions of the map alone."""

    def __init__(self, count: int = 3, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.count, self.heads = count, heads
        self.registers = nn.Parameter(torch.randn(1, count, width))
        self.patches, self.back = nn.Conv2d(3, width, 4, 4), nn.Linear(width, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))

    def turned(self, tokens: Tensor, rows: int, columns: int) -> Tensor:
        size = tokens.shape[-1] // 4
        down, along = torch.arange(rows), torch.arange(columns)
        angles = (down[:, None] * 0.3 + along * 0.2).reshape(-1, 1) * torch.ones(2 * size)
        a, b = tokens[:, :, self.count :].chunk(2, -1)
        turned = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
        return torch.cat([tokens[:, :, : self.count], torch.cat(turned, -1)], 2)

    def forward(self, image: Tensor) -> Tensor:
        map_ = self.patches(image)
        rows, columns = map_.shape[2:]
        first = self.registers.expand(image.shape[0], -1, -1)
        y = torch.cat([first, map_.flatten(2).mT], 1)
        for layer in self.qkv:
            q, k, v = layer(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            q, k = self.turned(q, rows, columns), self.turned(k, rows, columns)
            y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.back(y)[:, self.count :].mT.unflatten(2, (rows, columns))


class Joint(Registers):
    """The same with the map first: what follows is no map, and the list is one line."""

    def turned(self, tokens: Tensor, rows: int, columns: int) -> Tensor:
        return tokens

    def forward(self, image: Tensor) -> Tensor:
        map_ = self.patches(image)
        first = self.registers.expand(image.shape[0], -1, -1)
        y = torch.cat([map_.flatten(2).mT, first], 1)
        for layer in self.qkv:
            q, k, v = layer(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.back(y)[:, : -self.count].mT.unflatten(2, map_.shape[2:])


class Placed(Registers):
    """The same with a table of places, resized to the map before each attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 16, 7, 7))

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[2:]
        sides = height // 4, width // 4
        y = self.patches(image).flatten(2).mT
        for at, layer in enumerate(self.qkv):
            antialias = at == 1
            table = F.interpolate(self.table, size=sides, mode="bicubic", antialias=antialias)
            first = self.registers.expand(image.shape[0], -1, -1)
            tokens = torch.cat([first, y + table.flatten(2).mT], 1)
            q, k, v = layer(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            tokens = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            y = y + tokens[:, self.count :]
        return self.back(y).mT.unflatten(2, sides)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "before"), [(Joint, (0, 0)), (Registers, (3, 3)), (Placed, (3, 3))]
)
def test_tokens_of_any_number_are_found(kind: type[Registers], before: tuple[int, int]) -> None:
    torch.manual_seed(0)
    network = kind().eval()
    found = of_any_size(network, (2, 3, 16, 24), (3, 3, 32, 40))
    assert [attention.level for attention in found.attentions] == ["tokens", "tokens"]
    assert found.agrees(noise(1, 3, 24, 36))
    sites: list[Any] = [
        module for module in found.network.modules() if isinstance(module, FoundFreeTokens)
    ]
    assert [site.geometry.before for site in sites] == [before] * 2
    for name in LINEAR:
        chosen = resolve(Plan(mechanism(name)), found.network)
        assert [item.name for item in chosen.values()] == [name] * 2


def _inputs(site: FoundFreeTokens, sizes: Sequence[int]) -> list[Tensor]:
    batch, rows, columns, others = sizes
    first = (site.geometry.before or (0, 0))[0]
    queries = first + rows * columns
    keys = others if site.geometry.separate else queries
    made = [torch.randn(batch, 2, count, 8) for count in (queries, keys, keys)]
    return [*made, torch.zeros(rows, columns)]


@pytest.mark.full
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", ["full", *LINEAR])
def test_one_graph_serves_any_number(name: str, apart: bool) -> None:
    torch.manual_seed(0)
    geometry = TokenGeometry((), (), 0.4, before=(0 if apart else 3,) * 2, separate=apart)
    site, plain = FoundFreeTokens(geometry), FoundFreeTokens(geometry)
    chosen = mechanism(name).at(geometry)
    operator: Any = implement(chosen, site, "operator")
    site.implementation = operator
    expected: Any = implement(chosen, plain, "plain")
    plain.implementation = expected
    names = ["q", "k", "v", "sides"]
    axes = tuple(dict.fromkeys(a, Dim.DYNAMIC) for a in ((0, 2), (0, 2), (0, 2), (0, 1)))
    example = tuple(_inputs(site, (2, 20, 18, 30)))
    model = trace_piece(site.eval(), example, axes, 20, names, "out")
    attach_bodies(model)
    run = session(model)
    for sizes in ((1, 9, 6, 70), (3, 4, 21, 5)):
        inputs = _inputs(site, sizes)
        feeds = {key: tensor.numpy() for key, tensor in zip(names, inputs, strict=True)}
        feeds = {key: feeds[key] for key in (value.name for value in run.get_inputs())}
        (got,) = run.run(None, feeds)
        np.testing.assert_allclose(got, plain(*inputs).numpy(), atol=1e-4)


@pytest.mark.parametrize("name", LINEAR)
def test_tokens_before_a_map_attend_exactly(name: str) -> None:
    torch.manual_seed(0)
    geometry = TokenGeometry((), (), 0.4, before=(3, 3))
    site, exact = FoundFreeTokens(geometry), FoundFreeTokens(geometry)
    chosen: Any = implement(mechanism(name).at(geometry), site, "plain")
    site.implementation = chosen
    inputs = _inputs(site, (2, 9, 6, 0))
    got, expected = site(*inputs), exact(*inputs)
    torch.testing.assert_close(got[:, :, :3], expected[:, :, :3])
    assert not torch.allclose(got[:, :, 3:], expected[:, :, 3:], atol=1e-4)
