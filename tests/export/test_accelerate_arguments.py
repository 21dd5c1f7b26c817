"""`accelerate`: arguments and results of any structure, and modules that no file can hold."""

from __future__ import annotations

import copy
import enum
import types
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from accelerated import Small, compare, image
from later import full
from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import accelerate


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NYSTRA_CACHE_DIR", str(folder))
        yield folder / "accelerated"


class Several(nn.Module):
    """Two inputs by name, a setting, and results in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mix = Small(), nn.Conv2d(4, 3, 1)

    def forward(self, picture: Tensor, hole: Tensor, *, strength: float = 1.0) -> dict[str, Any]:
        large = self.inner(self.mix(torch.cat([picture, hole], 1)) * strength)
        return {"large": large, "more": [large.mean((2, 3)), None], "width": picture.shape[-1]}


@pytest.mark.full
def test_several_inputs_settings_and_results_in_a_structure() -> None:
    module = Several().eval()
    fast = accelerate(module, backend="ort-cpu")
    taken = image(2, 3, 16, 24), image(2, 1, 16, 24).round()
    with torch.no_grad():
        expected = module(*taken)
        for got in (fast(*taken), fast(hole=taken[1], picture=taken[0], strength=1.0)):
            assert (got.keys(), got["width"], got["more"][1]) == (expected.keys(), 24, None)
            torch.testing.assert_close(got["large"], expected["large"], rtol=0, atol=1e-5)
            torch.testing.assert_close(got["more"][0], expected["more"][0], rtol=0, atol=1e-5)
        with pytest.warns(UserWarning, match="arguments other than tensors"):
            assert torch.equal(
                fast(*taken, strength=2.0)["large"], module(*taken, strength=2.0)["large"]
            )
        wider = image(2, 3, 16, 32), image(2, 1, 16, 32).round()
        assert fast(*wider)["width"] == 32, "a value that depends on the size"


def _first_key(options: dict[Any, float]) -> float:
    key = next(iter(options))
    return 2.0 if key is True else 1.0


class Scaled(Small):
    """Takes an object of any kind with a factor."""

    def forward(self, image: Tensor, options: Any) -> Tensor:
        factor = options.get("gain", _first_key(options)) if isinstance(options, dict) else options
        factor = getattr(factor, "gain", factor)
        factor = factor[0] if isinstance(factor, (tuple, list)) else factor
        return super().forward(image) * float(factor)


class Settings(dict[str, float]):
    pass


class Level(float, enum.Enum):
    LOW, HIGH = 1.0, 3.0


Pair = namedtuple("Pair", "gain")


def changing(value: Any, change: Callable[[Any], object]) -> Callable[[], tuple[Any, Any]]:
    def both() -> tuple[Any, Any]:
        kept = copy.deepcopy(value)
        return kept, lambda: (change(kept), kept)[1]

    return both


@pytest.mark.parametrize(
    "arguments",
    [
        lambda: (0.0, lambda: -0.0),
        *full(
            changing({"gain": 1.0}, lambda one: one.update(gain=3.0)),
            changing(types.SimpleNamespace(gain=1.0), lambda one: setattr(one, "gain", 3.0)),
            changing(Settings(gain=1.0), lambda one: one.update(gain=3.0)),
            lambda: ({True: 1.0}, lambda: {1: 1.0}),
            changing([1.0], lambda one: one.append(one.pop() * 3.0)),
            changing(torch.nn.Identity(), lambda one: setattr(one, "gain", 3.0)),
            lambda: (1.0, lambda: 3.0),
            lambda: (Level.LOW, lambda: Level.HIGH),
            lambda: (Pair(1.0), lambda: Pair(3.0)),
            lambda: (True, lambda: 3),
        ),
    ],
)
def test_arguments_count_by_their_value(arguments: Callable[[], tuple[Any, Any]]) -> None:
    first, later = arguments()
    if isinstance(first, nn.Identity):
        first.gain = 1.0
    module = Scaled().eval()
    fast = accelerate(module)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        fast(image(), first)
        second = later()
        given, expected = fast(image(), second), module(image(), second)
    assert torch.equal(given.signbit(), expected.signbit())
    torch.testing.assert_close(given, expected, rtol=0, atol=1e-5)


class ByItem(Small):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * (2 if image.mean().item() > 0.6 else 1)


class ByBranch(Small):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * (2 if image.mean() > 0.6 else 1)


class ByNumpy(Small):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * (2 if image.detach().numpy().mean() > 0.6 else 1)


class ByList(Small):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * (2 if image.mean((1, 2, 3)).tolist()[0] > 0.6 else 1)


class ByViewOfBase(Small):
    def forward(self, image: Tensor) -> Tensor:
        numbers = torch.zeros(4)
        numbers[1] = image.mean()
        return super().forward(image) * (2 if numbers.max() > 0.6 else 1)


class ByEqual(Small):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * (1 if torch.equal(image, image.round()) else 2)


class ByCount(Small):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * len(image[image > 0.6])


class Caught(Small):
    def forward(self, image: Tensor) -> Tensor:
        try:
            bright = image.mean().item() > 0.6
        except Exception:
            bright = False
        return super().forward(image) * (2 if bright else 1)


class Writes(Small):
    def forward(self, image: Tensor) -> Tensor:
        made = super().forward(image)
        image += 1.0
        return made


class Counts(Small):
    calls = 0

    def forward(self, image: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(image) * self.calls


@pytest.mark.parametrize(
    "kind",
    [
        ByBranch,
        Counts,
        *full(ByItem, ByNumpy, ByList, ByViewOfBase, ByEqual, ByCount, Caught, Writes),
    ],
)
def test_modules_that_no_file_holds_the_copy_computes(kind: type[Small]) -> None:
    module = kind().eval()
    with pytest.warns(UserWarning, match="the unchanged module computes this call"):
        fast = accelerate(module, example=image())
    assert fast.report is not None
    assert (fast.report.way, fast.report.speedup) == ("module", 1.0)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other(image())
        for given in (image(), image() * 0.2 + 0.8, image().round(), image(2, 3, 16, 16)):
            assert torch.equal(fast(given.clone()), other(given.clone()))
    with pytest.raises(NystraError):
        accelerate(kind(), backend="ort-cpu", example=image())


class HalfOfSquares(Small):
    def forward(self, image: Tensor) -> Tensor:
        made = super().forward(image)
        return made * 0.5 if image.shape[2] == image.shape[3] else made


class HalfOfMultiples(Small):
    def forward(self, image: Tensor) -> Tensor:
        made = super().forward(image)
        return made * 0.5 if image.shape[2] % 64 == 0 else made


class HalfOfOne(Small):
    def forward(self, image: Tensor) -> Tensor:
        made = super().forward(image)
        return made * 0.5 if image.shape[0] == 1 else made


class HalfOfLarge(Small):
    def forward(self, image: Tensor) -> Tensor:
        made = super().forward(image)
        return made * 0.5 if image.shape[2] * image.shape[3] > 2000 else made


@pytest.mark.filterwarnings("ignore:the unchanged module computes")
@pytest.mark.parametrize("kind", [HalfOfSquares, *full(HalfOfMultiples, HalfOfOne, HalfOfLarge)])
def test_branches_on_shapes(kind: type[Small]) -> None:
    module = kind().eval()
    fast = accelerate(module, example=image(2, 3, 32, 48))
    for shape in [(2, 3, 32, 48), (1, 3, 32, 48), (2, 3, 32, 32), (1, 3, 64, 64), (2, 3, 128, 24)]:
        assert compare(fast, module, image(*shape)) < 1e-5


class OneSize(Small):
    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 3, 32, 48))

    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image + self.positions)


@pytest.mark.full
def test_a_module_of_one_size_has_a_file_of_that_size() -> None:
    fast = accelerate(OneSize(), backend="ort-cpu", example=image(1, 3, 32, 48))
    assert compare(fast, OneSize(), image(1, 3, 32, 48)) < 1e-5
    assert fast.report is not None
    assert fast.report.way == "ort-cpu"
    with pytest.warns(UserWarning, match=r"got the shape \(2, 3, 32, 48\), expected \(1, 3"):
        assert compare(fast, OneSize(), image(2, 3, 32, 48)) == 0.0


def test_what_is_no_module_of_images_the_copy_computes() -> None:
    module, given = nn.Linear(4, 4), torch.rand(2, 4)
    with pytest.raises(UnsupportedModelError, match="expected a module of images"):
        accelerate(module, backend="ort-cpu", example=given)
    with pytest.warns(UserWarning, match="expected a module of images"):
        fast = accelerate(module, example=given)
    assert compare(fast, module, given) == 0.0
