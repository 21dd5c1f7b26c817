"""What a network does by itself: its padding, its batches, and what a call leaves for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from later import one_in
from nystra.core.errors import UnsupportedModelError
from nystra.core.ports.port import Port
from nystra.models import load
from nystra.models.sizes.own_padding import own_sides
from nystra.models.sizes.padded_network import call_plainly

IMAGE = Port("input", "image", lengths={"channels": 3})


class Plain(nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(F.gelu(self.first(x)))
        return result


class Padded(Plain):
    """Pads at the bottom and right, and crops; subclasses use the image elsewhere too."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        padded = F.pad(x, (0, -width % 8, 0, -height % 8), "reflect")
        whole = super().forward(self.masked(padded, height, width))
        return self.joined(whole[:, :, :height, :width], x)

    def masked(self, padded: Tensor, _height: int, _width: int) -> Tensor:
        return padded

    def joined(self, result: Tensor, _: Tensor) -> Tensor:
        return result


class Skip(Padded):
    """Adds the image: pixel by pixel, so that padding may be in front of it."""

    def joined(self, result: Tensor, x: Tensor) -> Tensor:
        return result + 0.5 * x


class Blurred(Padded):
    """Adds the blurred image, whose border is not that of the padded one."""

    def joined(self, result: Tensor, x: Tensor) -> Tensor:
        return result + F.avg_pool2d(x, 3, 1, 1)


class Gated(Padded):
    """Is scaled by the mean of the image."""

    def joined(self, result: Tensor, x: Tensor) -> Tensor:
        return result * x.mean((2, 3), keepdim=True)


class Masked(Padded):
    """Knows which pixels are padded."""

    def masked(self, padded: Tensor, height: int, width: int) -> Tensor:
        inside = torch.zeros_like(padded)
        inside[:, :, :height, :width] = 1
        return padded * inside


class Placed(Padded):
    """Knows the position in the image."""

    def joined(self, result: Tensor, x: Tensor) -> Tensor:
        return result * torch.linspace(0, 1, x.shape[3])


class Conditional(Padded):
    """Pads only where that is needed, as most networks do."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        down, right = (8 - height % 8) % 8, (8 - width % 8) % 8
        if down == right == 0:
            return Plain.forward(self, x)
        padded = F.pad(x, (0, right, 0, down), "reflect")
        return Plain.forward(self, padded)[:, :, :height, :width]


@pytest.mark.parametrize("kind", [Padded, Skip, Conditional])
def test_padding_moves_in_front_where_nothing_else_uses_the_image(kind: type[nn.Module]) -> None:
    assert own_sides(kind().eval(), call_plainly, [IMAGE]).multiple == 8


@pytest.mark.parametrize("kind", [Blurred, Gated, Masked, Placed])
def test_padding_stays_where_the_image_or_its_size_is_used(kind: type[nn.Module]) -> None:
    assert own_sides(kind().eval(), call_plainly, [IMAGE]).multiple == 1


class Guided(Plain):
    """Pads a second image in a way of its own."""

    def __init__(self, border: str) -> None:
        super().__init__()
        self.border = border

    def forward(self, x: Tensor, guide: Tensor) -> Tensor:
        height, width = x.shape[2:]
        pads = (0, -width % 8, 0, -height % 8)
        padded, guide = F.pad(x, pads, "reflect"), F.pad(guide, pads, self.border)
        return self.last(F.gelu(self.first(padded) + self.first(guide)))[:, :, :height, :width]


@pytest.mark.parametrize(("border", "multiple"), [("reflect", 8), ("replicate", 1)])
def test_padding_of_two_images_moves_if_it_is_the_same(border: str, multiple: int) -> None:
    ports = [IMAGE, Port("guide", "reference", lengths={"channels": 3})]
    assert own_sides(Guided(border).eval(), call_plainly, ports).multiple == multiple


BY_SIDES: dict[str, Callable[[int, int], float]] = {
    "at least": lambda height, _: max(height, 200) / 200,
    "at most": lambda height, _: min(height, 6) / 6,
    "steps": lambda _, width: 1 + width // 140,
    "a fraction": lambda height, _: 1 + int(height / 150),
    "one side": lambda height, _: 1 + (height == 141),
    "between": lambda height, _: 0.5 if 193 <= height <= 199 else 1,
    "a rest": lambda _, width: 1 + (width % 8 == 5),
    "two sides": lambda height, width: 1 + (height == 61 and width == 53),
    "an area": lambda height, width: 1 + (height * width > 5000),
    "a table": lambda height, _: {61: 2.0}.get(height, 1.0),
}
"""Factors that differ from those of the padded sides at few sizes."""


class Scaled(Padded):
    def __init__(self, rule: Callable[[int, int], float]) -> None:
        super().__init__()
        self.rule = rule

    def joined(self, result: Tensor, x: Tensor) -> Tensor:
        return result * self.rule(*x.shape[2:])


@pytest.mark.parametrize("name", one_in(3, BY_SIDES))
def test_padding_stays_where_few_sizes_show_the_use_of_a_side(name: str) -> None:
    assert own_sides(Scaled(BY_SIDES[name]).eval(), call_plainly, [IMAGE]).multiple == 1


@pytest.mark.parametrize("rule", [lambda h, _: 1 + -(-h // 8), lambda h, _: 1 + (h > 0)])
def test_padding_moves_where_sides_decide_as_padded_ones(rule: Callable[..., float]) -> None:
    assert own_sides(Scaled(rule).eval(), call_plainly, [IMAGE]).multiple == 8


class Normed(Plain):
    """Has statistics of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.norm(super().forward(x))
        return result


class OfFirst(Plain):
    """Adds the first image of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + y[:1]


class OfBrightest(Plain):
    """Adds what the brightest image has beyond the usual range."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x.amax(0) - 2.0).relu()


@pytest.mark.parametrize("kind", [Normed, OfFirst, OfBrightest])
def test_a_network_that_mixes_images_takes_one(kind: type[nn.Module]) -> None:
    loaded = load(kind())
    assert loaded.facts.inputs[0].lengths["batch"] == 1
    assert "depends on the others of a batch" in " ".join(loaded.warnings)


def test_a_network_of_single_images_takes_batches() -> None:
    loaded = load(Plain())
    assert ("batch" in loaded.facts.inputs[0].lengths, loaded.warnings) == (False, ())


class Keeping(Plain):
    """Sets attributes in ``forward``, in a way that subclasses choose."""

    kept: Any = None

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor(x)

    def factor(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Cached(Keeping):
    """Keeps what the first size needed."""

    def factor(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.linspace(0, 1, x.shape[3])[None, None, None]
        return F.interpolate(self.kept, size=x.shape[2:])


class Remembering(Keeping):
    """Keeps the mean of its first image."""

    def factor(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = x.mean()
        return self.kept


class Counting(Keeping):
    """Changes after many calls."""

    calls = 0

    def factor(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.full((), 2.0 if self.calls > 50 else 1.0)


class Averaging(Keeping):
    """Has a norm whose statistics follow each image."""

    def factor(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = nn.BatchNorm2d(3)
        return self.kept.train()(x)


class Iterating(Keeping):
    """Goes on with the power iteration of a call before."""

    def factor(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.ones(27)
        weight = self.first.weight.detach().flatten(1)
        self.kept = F.normalize(weight.T @ (weight @ self.kept), dim=0)
        return (weight @ self.kept).norm()


class Alternating(Keeping):
    """Gives every second image another sign."""

    kept = 1.0

    def factor(self, x: Tensor) -> Tensor:
        self.kept = -self.kept
        return torch.full((), self.kept)


class BySize(Keeping):
    """Keeps a grid for each size: a result depends on nothing else."""

    def factor(self, x: Tensor) -> Tensor:
        self.kept = self.kept or {}
        size = tuple(x.shape[2:])
        if size not in self.kept:
            self.kept[size] = torch.linspace(0, 1, x.shape[3])
        return self.kept[size]


class Noting(Keeping):
    """Notes its size, and never reads the note."""

    def factor(self, x: Tensor) -> Tensor:
        self.height, self.width = x.shape[2:]
        return torch.ones(())


@pytest.mark.parametrize("kind", [Cached, Remembering, Counting])
def test_what_a_call_leaves_for_the_next_is_refused(kind: type[nn.Module]) -> None:
    name = "calls" if kind is Counting else "kept"
    with pytest.raises(UnsupportedModelError, match=f"forward sets '{name}'.* earlier calls"):
        load(kind())


@pytest.mark.parametrize("kind", [Averaging, Iterating, Alternating])
def test_networks_that_change_with_every_call_are_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(UnsupportedModelError):
        load(kind())


@pytest.mark.parametrize("kind", [BySize, Noting])
def test_attributes_that_change_no_result_are_kept(kind: type[nn.Module]) -> None:
    assert load(kind()).warnings == ()


class Dropping(Plain):
    """Is random where features are larger than those of any test image."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return torch.where(y > 1e6, F.dropout(y, 0.5, training=True), y)


class Seeded(Plain):
    """Draws its numbers from a generator that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(x.shape, generator=self.numbers)


def test_numbers_of_a_generator_are_random() -> None:
    with pytest.raises(UnsupportedModelError, match="depends on earlier calls"):
        load(Seeded())


class OfTwo(Plain):
    """Takes a second image."""

    def forward(self, x: Tensor, other: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x) + other


def test_inputs_that_are_not_declared_are_refused() -> None:
    with pytest.raises(UnsupportedModelError):
        load(OfTwo())


def test_random_numbers_are_found_though_no_result_shows_them() -> None:
    with pytest.raises(UnsupportedModelError, match="not deterministic: it draws random numbers"):
        load(Dropping())
