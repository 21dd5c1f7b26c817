"""State outside of a network: class attributes, globals, closures, defaults, caches."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from later import one_in
from nystra.core.errors import UnsupportedModelError
from nystra.export import ExportOptions, export_module
from nystra.models import load
from nystra.models.sizes.python_state import describe
from nystra.runtime import Session
from one_convolution import OneConvolution


class Net(OneConvolution):
    """A convolution with a factor, which subclasses compute."""

    calls = 0
    seconds = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * self.factor(x)  # type: ignore[no-any-return]

    def factor(self, x: Tensor) -> Any:
        raise NotImplementedError


class Stats:
    def __init__(self) -> None:
        self.calls, self.width = 0, 0


class Slots:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


_first: int | None = None
_seen: list[Any] = []
_recent: deque[Any] = deque(maxlen=3)
_count: Counter[str] = Counter()
_by_width: dict[Any, Any] = {}
_by_size: dict[Any, Any] = {}
_stats = Stats()
_slots = Slots()
_local = threading.local()
_variable: ContextVar[int] = ContextVar("calls", default=0)
_numbers = itertools.count()
_mean = torch.zeros(1)
_is_warned = False


@functools.cache
def _grid(height: int, width: int) -> Tensor:
    return torch.arange(height)[:, None] + torch.arange(width)


@functools.cache
def _first_height(width: int) -> int:
    return int(_stats.width) + width


class OfClass(Net):
    def factor(self, x: Tensor) -> Any:
        type(self).calls += 1
        return 2 if type(self).calls == 3 else 1


class Later(Net):
    def factor(self, x: Tensor) -> Any:
        Later.calls += 1
        return 1 + Later.calls // 1000


class FirstWidth(Net):
    def factor(self, x: Tensor) -> Any:
        global _first
        if _first is None:
            _first = x.shape[3]
        return _first


class Longer(Net):
    def factor(self, x: Tensor) -> Any:
        _seen.append(x.shape)
        return 1 if len(_seen) < 200 else 2


class Recent(Net):
    def factor(self, x: Tensor) -> Any:
        _recent.append(x.shape[3])
        return sum(_recent) / len(_recent)


class Counted(Net):
    def factor(self, x: Tensor) -> Any:
        _count["calls"] += 1
        return 1 if _count["calls"] < 100 else 2


class WrongKey(Net):
    def factor(self, x: Tensor) -> Any:
        if x.shape[3] not in _by_width:
            _by_width[x.shape[3]] = float(x.shape[2])
        return _by_width[x.shape[3]]


class WrongCache(Net):
    def factor(self, x: Tensor) -> Any:
        _stats.width = x.shape[2]
        return _first_height(x.shape[3])


class OfObject(Net):
    def factor(self, x: Tensor) -> Any:
        before, _stats.calls = _stats.calls, x.shape[2]
        return 1 + before


class OfSlots(Net):
    def factor(self, x: Tensor) -> Any:
        _slots.calls += 1
        return 1 if _slots.calls < 100 else 2


class OfThread(Net):
    def factor(self, x: Tensor) -> Any:
        _local.calls = getattr(_local, "calls", 0) + 1
        return 1 if _local.calls < 100 else 2


class OfContext(Net):
    def factor(self, x: Tensor) -> Any:
        _variable.set(_variable.get() + 1)
        return 1 if _variable.get() < 100 else 2


class OfFunction(Net):
    def factor(self, x: Tensor) -> Any:
        kept: Any = OfFunction.factor
        kept.calls = getattr(kept, "calls", 0) + 1
        return 1 if kept.calls < 100 else 2


class Default(Net):
    def factor(self, x: Tensor, kept: list[Any] = []) -> Any:  # noqa: B006
        if not kept:
            kept.append(x.mean())
        return kept[0]


class Iterated(Net):
    def factor(self, x: Tensor) -> Any:
        return next(_numbers)


class RunningMean(Net):
    def factor(self, x: Tensor) -> Any:
        _mean.mul_(0.9).add_(0.1 * x.mean())
        return _mean


class OfTicks(Net):
    """Counts calls in a buffer, and reads it where no trial reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ticks", torch.zeros(()))

    def factor(self, x: Tensor) -> Any:
        self.ticks += 1
        return 1 + (self.ticks > 50_000)


def in_closure() -> nn.Module:
    largest = 0

    class Closure(Net):
        def factor(self, x: Tensor) -> Any:
            nonlocal largest
            largest = max(largest, x.shape[3])
            return largest

    return Closure()


KEPT: dict[str, Callable[[], nn.Module]] = {
    "OfClass.calls": OfClass,
    "Later.calls": Later,
    "_first": FirstWidth,
    "_seen": Longer,
    "_recent": Recent,
    "_count": Counted,
    "_by_width": WrongKey,
    "_stats.width": WrongCache,
    "_stats.calls": OfObject,
    "_slots.calls": OfSlots,
    "_local.calls": OfThread,
    "_variable": OfContext,
    "factor.calls": OfFunction,
    "kept": Default,
    "_mean": RunningMean,
    "ticks": OfTicks,
    "largest": in_closure,
}
"""Variable that decides the results of later calls -> the network."""


@pytest.mark.parametrize("name", one_in(2, KEPT))
def test_state_outside_of_a_network_is_named(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"forward sets '{name}'.* earlier calls"):
        load(KEPT[name]())


def test_state_that_cannot_be_seen_is_found_by_its_results() -> None:
    with pytest.raises(UnsupportedModelError, match=r"not deterministic|earlier calls"):
        load(Iterated())


class Unbounded(Net):
    def factor(self, x: Tensor) -> Any:
        return torch.log(x - 0.5)


class Deprecated:
    """As `torch.distributed.reduce_op`, which a network's file may import."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__dict__"):
            raise AssertionError("deprecated")
        return super().__getattribute__(name)


def test_objects_that_warn_of_every_access_are_compared() -> None:
    assert describe(Deprecated()) == describe(Deprecated()) == []


def test_a_network_without_numbers_for_noise_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match="returns NaN or infinite values for an image"):
        load(Unbounded())


class Unread(Net):
    """Counts and measures, and reads nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ticks", torch.zeros(()))

    def factor(self, x: Tensor) -> Any:
        global _is_warned
        start = time.perf_counter()
        if not _is_warned:
            _is_warned = True
        type(self).calls += 1
        self.ticks += 1
        self.runs = getattr(self, "runs", 0) + 1
        _count["calls"] += 1
        _seen.append(tuple(x.shape[:1]))
        type(self).seconds += time.perf_counter() - start
        return 1


class BySize(Net):
    def factor(self, x: Tensor) -> Any:
        size = tuple(x.shape[2:])
        if size not in _by_size:
            _by_size[size] = torch.arange(x.shape[3]).float()
        return _by_size[size]


class ByFunction(Net):
    def factor(self, x: Tensor) -> Any:
        return _grid(*x.shape[2:])


class OfAttribute(Net):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, Any] = {}

    def factor(self, x: Tensor) -> Any:
        height, width = x.shape[2:]
        return self.kept.setdefault((height, width), torch.arange(width).float())


@dataclass(frozen=True)
class Settings:
    """Cannot be assigned to, as those of many networks."""

    factors: dict[str, float] = field(default_factory=dict)


_settings = Settings()


class OfSettings(Net):
    def factor(self, x: Tensor) -> Any:
        return _settings.factors.get("gain", 2.0)


class Factors(OrderedDict[str, Any]):
    """Builds what it holds anew at each access, like the activations of transformers."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


_factors = Factors(image=nn.Identity)


class OfFactors(Net):
    def factor(self, x: Tensor) -> Any:
        return _factors["image"](x)


OF_NO_EFFECT = [Unread, BySize, ByFunction, OfAttribute, OfSettings, OfFactors]


@pytest.mark.parametrize("kind", one_in(3, OF_NO_EFFECT))
def test_what_decides_nothing_is_taken_at_any_size(kind: type[Net], tmp_path: Path) -> None:
    network = kind().eval()
    path = export_module(network, tmp_path / "m.onnx", ExportOptions(speed=False)).model
    session = Session(path)
    for shape in ((1, 3, 16, 16), (2, 3, 21, 40), (1, 3, 50, 9)):
        image = torch.rand(*shape)
        with torch.no_grad():
            expected = network(image)
        torch.testing.assert_close(torch.from_numpy(session(image.numpy())), expected)
