"""What compares results in an export never loses a NaN, and allows no difference without limit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nystra.core.errors import NystraError, ValidationError
from nystra.export import ExportOptions, export_module
from nystra.export.differences import largest, relative_difference
from nystra.export.rewrite import comparison
from nystra.runtime.checking.validation import validate_against_references
from nystra.runtime.metrics.measures import MEASURES
from nystra.runtime.model.references import ReferenceCase, References
from nystra.runtime.ort_values import copy_from_ort, copy_to_ort

GOOD = np.ones((1, 4), np.float32)
NAN = np.array([[1, 1, np.nan, 1]], np.float32)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_stays_wherever_it_is(kind: Any, place: int) -> None:
    results = [kind(NAN if at == place else GOOD) for at in range(3)]
    good = [kind(GOOD)] * 3
    assert math.isnan(relative_difference(results, good))
    assert math.isnan(relative_difference(good, results))
    numbers = [float("nan") if at == place else 1.0 for at in range(3)]
    assert math.isnan(largest(numbers))
    assert all(math.isnan(measure.worst(numbers)) for measure in MEASURES.values())


def test_differences_are_relative_to_the_largest_value() -> None:
    assert relative_difference([np.array([1.0, 3.0])], [np.array([2.0, 4.0])]) == 0.25
    assert relative_difference([torch.ones(2).bfloat16()], [torch.ones(2)]) == 0.0
    assert relative_difference([GOOD], [GOOD[:, :2]]) == math.inf
    assert relative_difference([GOOD[:0]], [GOOD[:0]]) == 0.0
    assert relative_difference([], []) == 0.0
    infinite = np.array([np.inf])
    assert not relative_difference([infinite], [infinite]) <= 1.0


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("of_own", [False, True])
def test_a_replacement_with_nan_is_refused_at_every_size(
    bad: int, of_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = iter(range(3))
    size = -1

    def noise(*_: Any) -> dict[str, Any]:
        nonlocal size
        size = next(at)
        return {}

    class Run:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def run(self, _: Any, compute: Any) -> dict[str, Any]:
            if compute == "ignoring":
                return {"y": copy_to_ort(0 * GOOD)}
            return {"y": copy_to_ort(NAN if size == bad and not of_own else GOOD)}

    def own(*_: Any) -> dict[str, Any]:
        return {"y": copy_to_ort(NAN if size == bad and of_own else GOOD)}

    monkeypatch.setattr(comparison, "draw_inputs", noise)
    monkeypatch.setattr(comparison, "SitedRunner", Run)
    monkeypatch.setattr(comparison, "compute_values", own)
    monkeypatch.setattr(
        comparison, "_exactly", lambda _, shapes=None: "ignoring" if shapes is None else "exact"
    )
    item: Any = SimpleNamespace(
        output=SimpleNamespace(name="y"), own=(), nodes=(), sites={}, site_shapes={}, type=1
    )
    sized: Any = SimpleNamespace(release=lambda: None)
    runner: Any = None
    assert comparison.find_mismatch(item, runner, [sized] * 3)


@pytest.mark.parametrize("kind", [7, 9, 6])
def test_noise_of_whole_numbers_is_not_all_zeros(kind: int) -> None:
    """Masks made of pixels have both values in each row, so that no token is without a key."""
    value: Any = SimpleNamespace(name="mask")
    item: Any = SimpleNamespace(inputs=[value])
    sized: Any = SimpleNamespace(data={"mask"}, types={"mask": kind}, shapes={"mask": (3, 1, 5)})
    array = copy_from_ort(comparison.draw_inputs(item, sized)["mask"])
    assert set(array.reshape(-1).tolist()) == {0, 1}
    assert (array.min(-1) == 0).all()
    assert (array.max(-1) == 1).all()


@pytest.mark.parametrize("size", [100.0, 1.0, 1e-2, 5e-5])
def test_a_given_tolerance_is_below_the_largest_output(size: float) -> None:
    random = np.random.default_rng(0)
    expected, wrong = (
        (size * random.standard_normal((1, 3, 8, 8))).astype(np.float32) for _ in range(2)
    )
    image = np.zeros((1, 3, 8, 8), np.uint8)
    references = References((ReferenceCase({"x": image}, {"y": expected}),), {})
    most = float(np.abs(expected).max())
    with pytest.raises(NystraError, match="would accept any output"):
        validate_against_references(lambda _: wrong, references, 1.1 * most)
    assert not validate_against_references(lambda _: wrong, references, 0.5 * most).passed


class Unstable(nn.Module):
    """Amplifies the rounding of a convolution to the whole range of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 + 0.45 * torch.sin(self.conv(x) * 3e6)


@pytest.mark.full
def test_rounding_does_not_widen_a_tolerance_without_limit(tmp_path: Any) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValidationError) as caught:
        export_module(Unstable().eval(), tmp_path / "m.onnx", ExportOptions(speed=False))
    assert "allowed is 0.0" in str(caught.value)
