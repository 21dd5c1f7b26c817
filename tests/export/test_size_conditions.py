"""Code that decides by sizes or values: its branches are followed, and named where they matter."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from exports import export_session
from generated_networks import Choice, Generated
from later import full, one_in
from nystra.core.errors import TraceError, UnsupportedModelError
from one_convolution import OneConvolution


class Net(OneConvolution):
    """Subclasses decide what to return."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y * 0.5 if self.halves(x) else y

    def halves(self, x: Tensor) -> bool:
        raise NotImplementedError


class Square(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[2] == x.shape[3]


class Multiple(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[2] % 64 == 0


class Area(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[2] * x.shape[3] > 40_000


class FiveImages(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[0] == 5


class Both(Net):
    """The second is decided only where the first holds."""

    def halves(self, x: Tensor) -> bool:
        return x.shape[2] == 24 and x.shape[3] == 40


class Either(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[2] == 24 or x.shape[3] % 48 == 0


class AsTuple(Net):
    def halves(self, x: Tensor) -> bool:
        return tuple(x.shape[2:]) == (24, 40)


class Between(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[2] % 3 == 0 and not (x.shape[2] % 5 or x.shape[3] % 7)


def _is_square_of(sides: tuple[int, ...], side: int) -> bool:
    height, width = sides
    if height == width:
        return height == side
    return False


class InFunction(Net):
    def halves(self, x: Tensor) -> bool:
        return _is_square_of(tuple(x.shape[2:]), 40)


class AsNumber(Net):
    """Takes numbers of what it decides."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y * (1 + int(x.shape[2] == x.shape[3]))


class Pieces(Net):
    """Takes sixteen pieces, or one more; PyTorch asks first whether a side of `unfold` is 1."""

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(self.conv(x), 3, padding=1)
        pieces = patches.split(x.shape[2] * x.shape[3] // 16, 2)
        return x + torch.stack([piece.amax() for piece in pieces]).mean()


class FromList(Net):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y * [1.0, 2.0][x.shape[2] % 2]


class Bright(Net):
    def halves(self, x: Tensor) -> bool:
        return bool(x.mean() > 0.6)


class BrightByNumpy(Net):
    def halves(self, x: Tensor) -> bool:
        return bool(x.detach().numpy().mean() > 0.6)


class BrightByView(Net):
    def halves(self, x: Tensor) -> bool:
        values = torch.zeros(4)
        values[1] = x.mean()
        return bool(values.max() > 0.6)


class Limits(Net):
    def halves(self, x: Tensor) -> bool:
        return 20 < x.shape[2] < 30


class Large(Net):
    def halves(self, x: Tensor) -> bool:
        return x.shape[3] > 400


class SameTwice(Net):
    """Decides by the size, and computes the same."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] == (64, 64):
            return self.conv(x + 0.0)  # type: ignore[no-any-return]
        return self.conv(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        (Square, r"Eq\(height, width\)"),
        (Multiple, r"Eq\(Mod\(height, 64\), 0\)"),
        (Area, r"height\*width > 40000"),
        *full((FiveImages, r"Eq\(batch, 5\)"), (Limits, "height < 30"), (Large, "width > 400")),
    ],
)
def test_a_condition_on_sizes_is_named(kind: Any, condition: str, tmp_path: Path) -> None:
    line = r"\(`return .*`, test_size_conditions\.py, line \d+\)"
    with pytest.raises(UnsupportedModelError, match=f"decides by {condition} {line}"):
        export_session(kind(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_condition_of_the_code_is_named_not_one_of_pytorch_at_the_same_size(
    tmp_path: Path,
) -> None:
    """PyTorch asks first whether the part of the padded image is all of it, as at 8x8."""
    square = Choice("left", "plain", "none", "none", "square", "one", 1)
    with pytest.raises(UnsupportedModelError, match=r"code .* decides by Eq\(height, width\)"):
        export_session(Generated(square, 142).eval(), tmp_path)


@pytest.mark.parametrize(
    ("kind", "conditions"),
    [
        (Both, r"Eq\(height, 24\) and Eq\(width, 40\)"),
        (Either, r"Eq\(height, 24\)"),
        (AsTuple, r"Eq\(height, 24\) and Eq\(width, 40\)"),
        *full(
            (Between, r"Mod\(height, 5\)"),
            (InFunction, r"Eq\(height, width\) and Eq\(height, 40\)"),
            (AsNumber, r"Eq\(height, width\)"),
        ),
        (FromList, "takes a size as the number 1"),
        (Pieces, r"takes a size as the number 17 \(`pieces"),
    ],
)
def test_conditions_within_conditions_are_named(kind: Any, conditions: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=conditions) as caught:
        export_session(kind(), tmp_path)
    assert "test_size_conditions.py, line" in str(caught.value)
    assert not list(tmp_path.iterdir())


SIZES_AS_NUMBERS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a number": (lambda x: x * float(x.shape[3]), "takes width as the number"),
    "a root": (lambda x: x / math.sqrt(x.shape[2]), "takes height as the number"),
    "a window of weights": (
        lambda x: x * torch.kaiser_window(x.shape[3]),
        "takes width as the number",
    ),
    "a loop": (lambda x: torch.stack([x[:, :, n] for n in range(x.shape[2])], 2), "takes height"),
    "a window": (lambda x: x + F.avg_pool2d(x, x.shape[2:]), "takes height as the number"),
    "halves": (lambda x: torch.cat(x.chunk(2, 2)[::-1], 2), "height.* as the number 2"),
    "bits": (lambda x: x * (x.shape[2] ^ 3), r"computes with the bits of a size by `\^` \("),
    "a power of two": (lambda x: x * (x.shape[2] & -x.shape[2]), "bits of a size by `&`"),
    "a text": (lambda x: x * 2 if f"{x.shape[2]}" == "23" else x, "makes a text of a size"),
    "numpy": (lambda x: x / np.sqrt(x.shape[2]), "needs the value of a size"),
}
"""Code for which PyTorch's tracer fixes or limits a size."""


class AsIs(Net):
    def __init__(self, rule: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.rule = rule

    def forward(self, x: Tensor) -> Tensor:
        return self.rule(self.conv(x))


@pytest.mark.parametrize("name", one_in(6, SIZES_AS_NUMBERS))
def test_a_size_that_is_taken_as_a_number_is_named(name: str, tmp_path: Path) -> None:
    rule, text = SIZES_AS_NUMBERS[name]
    with pytest.raises(TraceError, match=text) as caught:
        export_session(AsIs(rule), tmp_path)
    message = str(caught.value)
    assert "test_size_conditions.py, line" in message
    assert "`static`" in message
    assert not any(text in message for text in ("Constraints", "Specializations", "L['"))


@pytest.mark.parametrize(
    "operator",
    [partial(F.interpolate, scale_factor=2, mode="bilinear"), F.unfold],
    ids=["interpolate", "unfold"],
)
def test_an_operator_before_it_does_not_fix_the_size(operator: Any, tmp_path: Path) -> None:
    """PyTorch's own runs for shapes make numbers of the sizes of these operators."""

    def rule(x: Tensor) -> Tensor:
        enlarged = operator(x, 2) if operator is F.unfold else operator(x)
        parts = [x[:, :, row : row + 4].mean((2, 3)) for row in range(0, x.shape[2], 4)]
        return x + enlarged.mean() + sum(parts)[:, :, None, None]

    with pytest.raises(TraceError, match=r"for row in range\(0, x.shape\[2\], 4\)"):
        export_session(AsIs(rule), tmp_path)


class PaddedBeside(Net):
    """Windows of an image that is padded by the remainder of its negative sides, and the image."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        padded = self.conv(F.pad(x, (0, -width % 32, 0, -height % 32), mode="reflect"))
        rows, columns = (side // 32 for side in padded.shape[2:])
        windows = padded.view(-1, 3, rows, 32, columns, 32)
        centered = windows - windows.mean((3, 5), keepdim=True)
        joined = centered.reshape(padded.shape)[:, :, :height, :width]
        return x + joined + F.interpolate(self.conv(x), scale_factor=2.0)[:, :, ::2, ::2]


def test_remainders_of_negative_sides_keep_them_free(tmp_path: Path) -> None:
    network = PaddedBeside().eval()
    session = export_session(network, tmp_path)
    for height, width in ((33, 40), (64, 96), (50, 31)):
        image = torch.rand(1, 3, height, width)
        with torch.no_grad():
            expected = network(image)
        torch.testing.assert_close(torch.from_numpy(session(image.numpy())), expected)


class Checked(Net):
    def forward(self, x: Tensor) -> Tensor:
        torch._assert(
            x.shape[2] > 0,
            f"expected rows, got {x.shape[2]}",
        )
        if x.shape[1] != 3:
            raise ValueError(f"expected colors, got {x.shape}")
        return self.conv(x)


def test_sizes_in_messages_are_no_reason_to_refuse(tmp_path: Path) -> None:
    image = torch.rand(1, 3, 21, 9)
    network = Checked().eval()
    got = torch.from_numpy(export_session(network, tmp_path)(image.numpy()))
    with torch.no_grad():
        expected = network(image)
    torch.testing.assert_close(got, expected)


def test_a_size_is_taken_as_a_number_at_one_size(tmp_path: Path) -> None:
    rule, _ = SIZES_AS_NUMBERS["a root"]
    session, image = (
        export_session(AsIs(rule), tmp_path, static=(1, 3, 24, 40)),
        torch.rand(1, 3, 24, 40),
    )
    with torch.no_grad():
        expected = AsIs(rule).eval()(image)
    torch.testing.assert_close(torch.from_numpy(session(image.numpy())), expected)


def test_a_condition_on_sizes_does_not_matter_at_one_size(tmp_path: Path) -> None:
    session, network = export_session(Square(), tmp_path, static=(1, 3, 32, 32)), Square().eval()
    image = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        expected = network(image)
    torch.testing.assert_close(torch.from_numpy(session(image.numpy())), expected)


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "small maps": lambda x: x * 1.0 if x.shape[2] <= 8 else x,
    "two bounds": lambda x: x + 0.0 if 12 < x.shape[3] < 200 else x,
    "bits": lambda x: x * (x.shape[2] & 7) + (x.shape[3] >> 1) + (x.shape[2] << 2),
    "shape": lambda x: x * torch._shape_as_tensor(x)[2:].sum(),
    "two pads": lambda x: F.pad(
        F.pad(x, (0, -x.shape[3] % 8, 0, 0), "reflect"), (0, 0, 0, -x.shape[2] % 8), "replicate"
    )[:, :, : x.shape[2], : x.shape[3]],
    "spectrum": lambda x: torch.fft.irfft2(
        torch.fft.rfft2(x, norm="ortho") * 0.5, s=x.shape[2:], norm="ortho"
    ),
}
"""Code of sizes that computes one formula at every size."""


def _check(condition: bool) -> None:
    if not condition:
        raise ValueError("a size that it does not take")


CHECKED: dict[str, Callable[[Tensor], Any]] = {
    "rows": lambda x: _check(x.shape[2] % 8 == 0),
    "columns": lambda x: _check(x.shape[3] % 4 == 0),
    "most": lambda x: _check(x.shape[2] <= 512),
    "least": lambda x: _check(x.shape[2] >= 32),
}
"""Checks of one side."""


class Guarded(AsIs):
    def forward(self, x: Tensor) -> Tensor:
        self.rule(x)
        y: Tensor = self.conv(x)
        return y


@pytest.mark.parametrize("name", one_in(6, [*RIGHT, *CHECKED]))
def test_code_that_computes_one_formula_is_taken(name: str, tmp_path: Path) -> None:
    network = (AsIs(RIGHT[name]) if name in RIGHT else Guarded(CHECKED[name])).eval()
    session, compared = export_session(network, tmp_path), 0
    assert session.facts.sides is None
    for shape in ((2, 3, 40, 36), (1, 3, 48, 21), (1, 3, 37, 44), (1, 3, 8, 72), (1, 3, 6, 9)):
        image = torch.rand(*shape)
        try:
            with torch.no_grad():
                expected = network(image)
        except ValueError:
            continue
        if min(shape[2:]) < session.facts.size_minimum:
            continue
        compared += 1
        got = torch.from_numpy(session(image.numpy()))
        torch.testing.assert_close(got, expected, atol=1e-4 * float(expected.abs().max()), rtol=0)
    assert compared > 1


def test_a_condition_that_changes_nothing_is_taken(tmp_path: Path) -> None:
    assert export_session(SameTwice(), tmp_path).facts.sides is None


@pytest.mark.parametrize("kind", [Bright, BrightByNumpy, BrightByView])
def test_a_branch_on_values_is_refused_at_one_size_too(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="reads values that depend on the image"):
        export_session(kind(), tmp_path, static=(1, 3, 32, 32))
    with pytest.raises(TraceError):
        export_session(kind(), tmp_path)
