"""What is measured of a network: padding, sizes, outputs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.core.errors import ExportError, UnsupportedModelError
from nystra.core.ports.port import Port
from nystra.export.validate.model_file import validate_file
from nystra.models.sizes.borders import BORDERS, Sides
from nystra.models.sizes.own_padding import own_sides
from nystra.models.sizes.padded_network import PaddedNetwork, call_plainly
from nystra.models.sizes.trial import Stated, try_sizes
from nystra.runtime.model.references import ReferenceCase, References


class Padding(nn.Module):
    """Pads to a multiple itself, like networks with windows."""

    def __init__(self, multiple: int, mode: str) -> None:
        super().__init__()
        self.multiple, self.mode = multiple, mode
        self.first = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        pads = (0, -width % self.multiple, 0, -height % self.multiple)
        return self.first(F.pad(x - 0.5, pads, self.mode))[:, :, :height, :width]


class Halving(nn.Module):
    """Accepts even sides only, without saying so."""

    def __init__(self, step: int = 2) -> None:
        super().__init__()
        self.step = step
        self.first = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        small = F.pixel_unshuffle(x, self.step)
        return self.first(F.pixel_shuffle(small, self.step))


IMAGE = Port("input", "image", lengths={"channels": 3})


def wrapped(network: nn.Module, sides: Sides | None = None, scale: int = 1) -> PaddedNetwork:
    output = Port("output", "picture", lengths={"channels": 3}, multiple=scale)
    return PaddedNetwork(network.eval(), sides or Sides(), [output])


def stated(minimum: int = 0) -> Stated:
    return Stated((IMAGE,), minimum, source="a.pth", by="spandrel")


class PaddingOrZeros(Padding):
    """Adds zeros to images that are too small to be mirrored, as GRL does."""

    def forward(self, x: Tensor) -> Tensor:
        try:
            return super().forward(x)
        except RuntimeError:
            height, width = x.shape[2:]
            pads = (0, -width % self.multiple, 0, -height % self.multiple)
            return self.first(F.pad(x - 0.5, pads))[:, :, :height, :width]


def test_small_images_that_a_network_pads_otherwise_are_not_taken() -> None:
    network = PaddingOrZeros(8, "reflect").eval()
    sides = own_sides(network, call_plainly, [IMAGE])
    assert sides == Sides(8, "reflect", minimum=5)
    trial = try_sizes(wrapped(network, sides), stated())
    assert trial.minimum == 5
    large = PaddingOrZeros(64, "reflect").eval()
    assert (
        try_sizes(wrapped(large, own_sides(large, call_plainly, [IMAGE])), stated()).minimum == 33
    )
    assert "it pads sides of less than 5 pixels otherwise" in trial.warnings[0]


@pytest.mark.parametrize(("mode", "border"), [("reflect", "reflect"), ("replicate", "replicate")])
def test_the_padding_of_a_network_is_found(mode: str, border: str) -> None:
    assert own_sides(Padding(8, mode).eval(), call_plainly, [IMAGE]) == Sides(8, border)
    assert own_sides(Padding(1, mode).eval(), call_plainly, [IMAGE]) == Sides()
    assert own_sides(Padding(8, "circular").eval(), call_plainly, [IMAGE]) == Sides()


def test_padding_before_it_changes_nothing() -> None:
    network, image = Padding(8, "reflect").eval(), torch.rand(2, 3, 19, 30)
    padded = wrapped(network, Sides(8, "reflect"))
    with torch.no_grad():
        assert torch.equal(padded(image), network(image))


@pytest.mark.parametrize("border", BORDERS)
def test_borders(border: str) -> None:
    image = torch.rand(1, 3, 10, 13)
    padded = Sides(8, border).pad(image)
    assert padded.shape == (1, 3, 16, 16)
    assert torch.equal(padded[:, :, :10, :13], image)
    below = {"reflect": image[0, 0, 8, 0], "symmetric": image[0, 0, 9, 0]}
    below |= {"replicate": image[0, 0, 9, 0], "zero": torch.tensor(0.0)}
    assert padded[0, 0, 10, 0] == below[border]


def test_a_multiple_that_is_not_stated_is_found_and_said() -> None:
    trial = try_sizes(wrapped(Halving(4)), stated())
    assert trial.network.sides.multiple == 4
    (warning,) = trial.warnings
    assert warning.startswith(
        "it needs sides that are multiples of 4, which spandrel does not state"
    )
    assert try_sizes(wrapped(Halving(1)), stated()).warnings == ()


@pytest.mark.parametrize("step", [3, 12, 15, 20])
def test_any_multiple_is_found(step: int) -> None:
    trial = try_sizes(wrapped(Halving(step)), Stated((IMAGE,)))
    assert trial.network.sides.multiple == step
    assert trial.warnings == (
        f"it needs sides that are multiples of {step}; they are padded to it",
    )


class Asserting(nn.Module):
    """Takes sides for which a rule holds."""

    def __init__(self, rule: Callable[[int, int], bool]) -> None:
        super().__init__()
        self.rule, self.first = rule, nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.rule(x.shape[2], x.shape[3]):
            raise ValueError(x.shape)
        y: Tensor = self.first(x)
        return y


@pytest.mark.parametrize(
    ("rule", "each", "minimum", "text"),
    [
        (lambda h, _: h % 8 == 0, (8, 1), 1, "a height that is a multiple of 8"),
        (lambda _, w: w % 3 == 0, (1, 3), 1, "a width that is a multiple of 3"),
        (
            lambda h, w: h % 4 == 0 and w % 12 == 0,
            (4, 12),
            1,
            "a height that is a multiple of 4 and a width that is a multiple of 12",
        ),
        (lambda h, _: h >= 32, (), 32, "sides of at least 32 pixels"),
        (
            lambda h, w: min(h, w) >= 24 and h % 2 == 0,
            (2, 1),
            32,
            "a height that is a multiple of 2",
        ),
    ],
)
def test_each_side_is_padded_no_more_than_it_needs(
    rule: Callable[[int, int], bool], each: tuple[int, ...], minimum: int, text: str
) -> None:
    network = Asserting(rule)
    trial = try_sizes(wrapped(network), Stated((IMAGE,)))
    assert (trial.network.sides.each, trial.minimum) == (each, minimum)
    assert f"it needs {text}" in trial.warnings[0]
    image = torch.rand(1, 3, 96, 36)
    with torch.no_grad():
        torch.testing.assert_close(trial.network(image), network(image))
        assert trial.network(image[:, :, :37, :35]).shape[2:] == (37, 35)


def test_a_network_with_a_large_multiple_is_run_on_few_pixels() -> None:
    """Large windows take long: 19 squares of 64 pixels, no image of which has more than 4."""
    network, seen = Halving(64), list[int]()
    network.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, 0].numel()))
    trial = try_sizes(wrapped(network, Sides(64)), stated())
    assert (trial.minimum, trial.fixed, trial.single) == (1, None, False)
    assert sum(seen) <= 19 * 64**2
    assert max(seen) <= 4 * 64**2


class Several(nn.Module):
    """Takes an image and a mask, returns the image at twice its size, the mask and a number."""

    def __init__(self, kind: type = tuple) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, image: Tensor, mask: Tensor) -> object:
        large = F.pixel_shuffle(F.pixel_unshuffle(image, 4), 4).repeat(1, 1, 2, 2)
        values = {"large": large, "mask": mask[:, 0], "number": image.mean((1, 2, 3))[:, None]}
        return values if self.kind is dict else self.kind(values.values())


@pytest.mark.parametrize("kind", [tuple, list, dict])
def test_several_inputs_and_outputs(kind: type) -> None:
    outputs = (
        Port("large", "picture", lengths={"channels": 3}, multiple=2),
        Port("mask", "mask", ("batch", "height", "width")),
        Port("number", "logits", ("batch", "classes"), {"classes": 1}),
    )
    network = PaddedNetwork(Several(kind).eval(), Sides(), outputs)
    trial = try_sizes(network, Stated((IMAGE, Port("mask", "mask", lengths={"channels": 1}))))
    assert trial.network.sides.multiple == 4
    large, mask, number = trial.network(torch.rand(2, 3, 5, 9), torch.ones(2, 1, 5, 9))
    assert (large.shape, mask.shape, number.shape) == ((2, 3, 10, 18), (2, 5, 9), (2, 1))


def test_what_does_not_fit_the_outputs_is_refused() -> None:
    two = PaddedNetwork(Several(dict), Sides(), [Port("a", "picture"), Port("b", "picture")])
    ports = (IMAGE, Port("mask", "mask", lengths={"channels": 1}))
    with pytest.raises(UnsupportedModelError, match=r"a dict of large, .* expected a, b"):
        try_sizes(two, Stated(ports))
    one = PaddedNetwork(Several(), Sides(), [Port("a", "picture")])
    with pytest.raises(UnsupportedModelError, match=r"returns 3 values \(Tensor, .*expected 1 of"):
        try_sizes(one, Stated(ports))


def test_a_least_side_that_is_not_stated_is_found_and_said() -> None:
    network = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(3, 3, 9))
    trial = try_sizes(wrapped(network), stated())
    assert trial.minimum == 8
    assert trial.warnings == ("it needs sides of at least 8 pixels, which spandrel does not state",)


class Alone(nn.Module):
    """Changes its input in place, and accepts one image at a time."""

    def forward(self, x: Tensor) -> Tensor:
        x *= 2
        return torch.cat([x, torch.zeros(1, 1, *x.shape[2:])], dim=1)[:, :3]


def test_a_network_of_one_image_that_writes_into_it() -> None:
    trial = try_sizes(wrapped(Alone()), stated())
    assert (trial.single, trial.minimum, trial.fixed) == (True, 1, None)
    assert trial.warnings == ("it takes a batch of 1 only: a batch of 2 fails",)
    image = torch.rand(1, 3, 5, 9)
    assert torch.equal(trial.network(image), 2 * image)


class OneByOne(nn.Module):
    """As CSNLN: it takes the images out of a batch."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([2 * image for image in torch.split(x, 1)])


@pytest.mark.parametrize(("by", "faults"), [("", 1), ("spandrel", 0)])
def test_a_network_that_takes_the_images_of_a_batch_apart_gets_one_image(
    by: str, faults: int
) -> None:
    """But for those of spandrel: a trace replaces such functions."""
    trial = try_sizes(wrapped(OneByOne()), replace(stated(), by=by))
    assert trial.single == bool(faults)
    fault = "its code runs more operations for more images"
    assert trial.warnings == (f"it takes a batch of 1 only: {fault}",) * faults


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


class NoisyOfOneSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn(1, 3, 24, 24)


@pytest.mark.parametrize(("network", "least"), [(Noisy(), 0), (NoisyOfOneSize(), 24)])
def test_a_network_that_draws_random_numbers_is_refused(network: nn.Module, least: int) -> None:
    with pytest.raises(UnsupportedModelError, match=r"a\.pth: .* not deterministic.* random"):
        try_sizes(wrapped(network), stated(least))


class OneSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.zeros(1, 3, 24, 24)


def test_a_network_of_one_size() -> None:
    trial = try_sizes(wrapped(OneSize()), stated(24))
    assert trial.fixed == (24, 24)
    assert "takes 24x24 only: fails at 27x37" in trial.warnings[0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("network", "scale", "message"),
    [
        (nn.Flatten(), 1, r"returns the shape \(1, 1425\) at 19x25, expected"),
        (nn.Conv2d(3, 1, 1), 1, r"returns the shape \(1, 1, 19, 25\) at 19x25, expected"),
        (nn.Conv2d(3, 3, 1), 2, r"returns the shape .* expected \(1, 3, 38, 50\)"),
        (nn.Conv2d(4, 3, 1), 1, "fails at 19x25: .*4 channels"),
    ],
)
def test_what_is_no_image_is_refused(network: nn.Module, scale: int, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"a\.pth: the network .*{message}"):
        try_sizes(wrapped(network, scale=scale), stated())


def test_a_file_that_keeps_the_traced_size_is_refused_with_the_other_one(tmp_path: Path) -> None:
    text = "f (float[b,3,h,w] input) => (float[b,3,h,w] output) {output = Add (input, k)}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>{text}')
    frozen = onnx.numpy_helper.from_array(np.zeros((1, 1, 16, 16), np.float32), "k")
    model.graph.initializer.append(frozen)
    onnx.save(model, tmp_path / "m.onnx")
    images = [np.ones((1, 3, *sides), np.float32) for sides in ((16, 16), (19, 11))]
    cases = tuple(ReferenceCase({"input": image}, {"output": image}) for image in images)
    references = References(cases, {"tolerances": [1e-4] * 2, "allowed_for": [""] * 2})
    with pytest.raises(ExportError, match=r"sizes other .* \(1, 3, 19, 11\).* `static`"):
        validate_file(tmp_path / "m.onnx", references, bodies=True, progress=lambda _: None)
