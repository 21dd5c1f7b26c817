"""Sizes of the image as operands beside tensors, in every operator, at sizes not traced."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from conformance_models import session
from nystra.core.errors import ExportError, UnsupportedModelError
from nystra.export.tracing import size_operands
from nystra.export.tracing.trace import trace_piece

Rule = Callable[[Any, Any], Tensor]

_OPERATORS = "add sub mul truediv floordiv mod pow eq ne lt le gt ge and_ or_ xor lshift rshift"

_FUNCTIONS = (
    "add sub rsub mul div true_divide floor_divide fmod remainder pow xlogy eq ne lt le gt ge "
    "clamp_min clamp_max bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift copysign"
)

BINARY: dict[str, Rule] = {
    **{name: getattr(operator, name) for name in _OPERATORS.split()},
    **{f"torch.{name}": getattr(torch, name) for name in _FUNCTIONS.split()},
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "add alpha": lambda a, b: torch.add(a, b, alpha=2),
    "of half": lambda a, b: a * (b / 2) if isinstance(a, Tensor) else (a / 2) * b,
    "by a share": lambda a, b: a * (1 / b) if isinstance(a, Tensor) else (1 / a) * b,
    "by a root": lambda a, b: a * b**-0.5 if isinstance(a, Tensor) else a**0.5 * b,
    "grid": lambda a, b: 2 * a / max(b - 1, 1) - 1 if isinstance(a, Tensor) else max(a - 1, 1) / b,
    "in place": lambda a, b: a.clone().mul_(b).add_(b).sub_(b),
    "in place, divided": lambda a, b: a.clone().div_(b),
    "in place, power": lambda a, b: a.clone().pow_(b),
    "in place, shifted left": lambda a, b: operator.ilshift(a.clone(), b),
    "in place, shifted right": lambda a, b: operator.irshift(a.clone(), b),
    "in place, signs": lambda a, b: a.clone().copysign_(-b),
    "shifted by tensors": lambda a, b: (a << a.abs()) >> b,
    "signs of a difference": lambda a, b: torch.copysign(a, 2 - b),
    "signs of zeros": lambda a, b: torch.copysign(torch.copysign(a, -3) - 5, -(a * 0)) * b,
    "in place, remainder": lambda a, b: a.clone().fmod_(b).remainder_(b),
    "new_full": lambda a, b: a * a.new_full((1,), b),
    "full_like": lambda a, b: a * torch.full_like(a, b),
}
"""Operators of a tensor and a size, or of a size and a tensor."""

TERNARY: dict[str, Rule] = {
    "where": lambda x, n: torch.where(x > 0, x, n),
    "where not": lambda x, n: torch.where(x > 0, n, x),
    "where sizes": lambda x, n: torch.where(x > 0, n, n + 1),
    "where number": lambda x, n: torch.where(x > 0, n, 0.5),
    "clamp": lambda x, n: torch.clamp(x, -n, n),
    "clamp max": lambda x, n: torch.clamp(x, max=n - 1),
    "clamp from a number": lambda x, n: torch.clamp(x, 0.1, n - 1),
    "clip": lambda x, n: x.clip(n - 5, n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "addcdiv": lambda x, n: torch.addcdiv(x, x, x.abs() + 1, value=n),
    "add, times a size": lambda x, n: torch.add(x, x, alpha=n),
    "sub, times a size": lambda x, n: torch.sub(x, x * 3, alpha=n),
    "rsub, times a size": lambda x, n: torch.rsub(x, x * 3, alpha=n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill_": lambda x, n: x.clone().masked_fill_(x > 0, n),
    "fill_": lambda x, n: x.clone().fill_(n) + x,
    "norm": lambda x, n: x / (x - 0.5).norm(n),
    "norm of an axis": lambda x, n: x + (x - 0.5).norm(n // 2, dim=2, keepdim=True),
    "norm of order 0 and 3": lambda x, n: (
        x + torch.linalg.vector_norm(x.relu(), n - 6, (1, 3), True)
    ),
    "rolled": lambda x, n: x.roll(n // 2, 2),
    "rolled twice": lambda x, n: torch.roll(x, (-(n // 3), n + 1), (3, 2)),
    "rolled as a whole": lambda x, n: x.roll(n),
    "products added": lambda x, n: torch.baddbmm(x[0], x[0], x[0], beta=n, alpha=n - 1)[None],
    "hardtanh": lambda x, n: F.hardtanh(x, -n, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
    "celu": lambda x, n: F.celu(x, n),
    "softplus": lambda x, n: F.softplus(x, n, n),
    "softshrink": lambda x, n: F.softshrink(20 * x, n),
    "hardshrink": lambda x, n: F.hardshrink(20 * x, n),
    "index_fill": lambda x, n: x.index_fill(2, torch.tensor([0]), n),
    "threshold": lambda x, n: F.threshold(x, n, n),
    "places": lambda x, n: (torch.arange(n) / n) + x,
    "places of a grid": lambda x, n: torch.arange(0, n, dtype=torch.float32) * 2 / (n - 1) - 1 + x,
    "rotary": lambda x, n: (torch.arange(n, dtype=torch.float32)[:, None] / n * 16) ** 0.5 + x,
}
"""Operators of a tensor and two others, one of them a size."""

TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "float": lambda x: x - 0.4,
    "int": lambda x: 2 * (10 * x).to(torch.int64) - 7,  # odd: integers are not divided by zero
    "bool": lambda x: x > 0.5,
}

UNSUPPORTED = {
    ("masked_fill", "bool"),  # onnxruntime has no Where of bool
    ("masked_fill_", "bool"),
    ("add alpha", "bool"),  # nor PyTorch's exporter a sum of bool, with sizes or without
    ("add, times a size", "bool"),
    ("full_like", "bool"),
    ("fill_", "bool"),
    ("hardtanh", "int"),  # PyTorch reads the number to check it
    ("lshift", "bool"),  # PyTorch traces no shift of bool by an operator of Python
    ("rshift", "bool"),
}


NOT_TRACED: dict[str, Rule] = {
    "float_power": torch.float_power,
    "nan_to_num": lambda x, n: torch.nan_to_num(x, nan=n),
    "huber_loss": lambda x, n: F.huber_loss(x, 9 * x, reduction="none", delta=n),
    "smooth_l1_loss": lambda x, n: F.smooth_l1_loss(x, 9 * x, reduction="none", beta=n),
    "padded": lambda x, n: F.pad(x, (1, 1), value=n),
}
"""Operators for whose number torch.export takes the side of the traced image, as a constant."""


class Rows(nn.Module):
    """Computes several operators of (1, 1, H, W) and its width."""

    def __init__(self, rules: list[Rule], kind: str, order: str) -> None:
        super().__init__()
        self.rules, self.kind, self.order = rules, kind, order

    def forward(self, x: Tensor) -> Tensor:
        tensor, size = TENSORS[self.kind](x), x.shape[-1]
        pair = (tensor, size) if self.order == "tensor, size" else (size, tensor)
        rows = [rule(*pair) for rule in self.rules]
        return rows[0] if len(rows) == 1 else torch.stack([row.double() for row in rows])


def cases() -> list[tuple[str, str, str, Rule]]:
    """Return (name, kind, order, rule) of all that PyTorch itself computes."""
    found = []
    for name, rule in (BINARY | TERNARY).items():
        for kind, tensor in TENSORS.items():
            for order in ("tensor, size", "size, tensor"):
                if (name, kind) in UNSUPPORTED or (name in TERNARY and order != "tensor, size"):
                    continue
                example = tensor(torch.rand(1, 1, 6, 6))
                try:
                    rule(*((example, 6) if order == "tensor, size" else (6, example)))
                except (RuntimeError, TypeError, AttributeError):
                    continue
                found.append((name, kind, order, rule))
    return found


CASES = cases()


def check(module: nn.Module) -> None:
    """Compare a module with its file at the traced size and at two others."""
    images = [
        torch.rand(1, 1, side, side, generator=torch.Generator().manual_seed(side))
        for side in (6, 9, 5)
    ]
    free = ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    run = session(trace_piece(module, (images[0],), free, 20, ["x"], "y"))
    for image in images:
        expected = module(image).numpy()
        (output,) = run.run(None, {"x": image.numpy()})
        assert output.dtype == expected.dtype
        np.testing.assert_allclose(output, expected, rtol=2e-5, atol=1e-6)


def test_no_operator_is_left_out() -> None:
    """PyTorch computes most of them; otherwise the tests below would test nothing."""
    assert len(CASES) > 200
    assert {name for name, *_ in CASES} == {*BINARY, *TERNARY}


@pytest.mark.full
@pytest.mark.parametrize("order", ["tensor, size", "size, tensor"])
@pytest.mark.parametrize("kind", ["float", "int", "bool"])
def test_sizes_beside_tensors(kind: str, order: str) -> None:
    rules = [rule for _, *of, rule in CASES if of == [kind, order]]
    check(Rows(rules, kind, order))


def test_parts_that_are_right_for_some_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's parts of a norm leave out the signs where the traced order is even."""
    monkeypatch.setattr(size_operands, "_PARTS", {})
    with pytest.raises(UnsupportedModelError, match=r"`linalg_vector_norm`, .*Eq\(Mod\(.*, 2\), 0"):
        check(Rows([TERNARY["norm"]], "float", "tensor, size"))


@pytest.mark.full
@pytest.mark.parametrize("name", NOT_TRACED)
def test_operators_that_torch_export_fixes_to_one_size(name: str) -> None:
    """They are refused, by torch.onnx too; a file would be wrong at every other size."""
    with pytest.raises(ExportError, match="inferred a static shape of 6"):
        check(Rows([NOT_TRACED[name]], "float", "tensor, size"))


@pytest.mark.release
@pytest.mark.parametrize(
    ("kind", "order", "rule"),
    [pytest.param(*rest, id=", ".join((name, *rest[:2]))) for name, *rest in CASES],
)
def test_a_size_beside_a_tensor(kind: str, order: str, rule: Rule) -> None:
    """One operator alone, whose result has the type that PyTorch gives."""
    check(Rows([rule], kind, order))
