"""What is found out of a foreign network before anything is promised: padding, sizes, outputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.core.errors import ExportError, UnsupportedModelError
from nystra.export.validate.model_file import validate_file
from nystra.models.spandrel.network import ForeignNetwork
from nystra.models.spandrel.sides import BORDERS, Sides, own_sides
from nystra.models.spandrel.trial import tried
from nystra.runtime.model.references import ReferenceCase, References


class Padding(nn.Module):
    """Pads to a multiple by itself, as networks with windows do."""

    def __init__(self, multiple: int, mode: str) -> None:
        super().__init__()
        self.multiple, self.mode = multiple, mode
        self.first = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        pads = (0, -width % self.multiple, 0, -height % self.multiple)
        return self.first(F.pad(x - 0.5, pads, self.mode))[:, :, :height, :width]


class Halving(nn.Module):
    """Takes even sides only and does not say so."""

    def __init__(self, step: int = 2) -> None:
        super().__init__()
        self.step = step
        self.first = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        small = F.pixel_unshuffle(x, self.step)
        return self.first(F.pixel_shuffle(small, self.step))


def run(network: nn.Module, *inputs: Tensor) -> Tensor:
    return network(*inputs)  # type: ignore[no-any-return]


def wrapped(network: nn.Module, sides: Sides | None = None, scale: int = 1) -> ForeignNetwork:
    return ForeignNetwork(network.eval(), run, sides or Sides(), scale)


@pytest.mark.parametrize(("mode", "border"), [("reflect", "reflect"), ("replicate", "replicate")])
def test_the_padding_of_a_network_is_found(mode: str, border: str) -> None:
    assert own_sides(Padding(8, mode).eval(), run, [3]) == Sides(8, border)
    assert own_sides(Padding(1, mode).eval(), run, [3]) == Sides()
    assert own_sides(Padding(8, "circular").eval(), run, [3]) == Sides()


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
    trial = tried(wrapped(Halving(4)), [3], 3, 0, square=False, source="a.pth")
    assert trial.network.sides.multiple == 4
    (warning,) = trial.warnings
    assert warning.startswith("it needs sides that are multiples of 4, which spandrel does not say")
    assert tried(wrapped(Halving(1)), [3], 3, 0, square=False, source="a.pth").warnings == ()


def test_a_least_side_that_is_not_stated_is_found_and_said() -> None:
    network = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(3, 3, 9))
    trial = tried(wrapped(network), [3], 3, 0, square=False, source="a.pth")
    assert trial.minimum == 8
    assert trial.warnings == ("it takes sides of 8 pixels and more, which spandrel does not say",)


class Alone(nn.Module):
    """Changes its input in place, and takes one picture at a time."""

    def forward(self, x: Tensor) -> Tensor:
        x *= 2
        return torch.cat([x, torch.zeros(1, 1, *x.shape[2:])], dim=1)[:, :3]


def test_a_network_of_one_picture_that_writes_into_it() -> None:
    trial = tried(wrapped(Alone()), [3], 3, 0, square=False, source="a.pth")
    assert (trial.single, trial.minimum, trial.fixed) == (True, 1, None)
    assert trial.warnings == ("it takes one picture at a time: a batch of two fails",)
    image = torch.rand(1, 3, 5, 9)
    assert torch.equal(trial.network(image), 2 * image)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x)


class NoisyOfOneSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn(1, 3, 24, 24)


@pytest.mark.parametrize(("network", "least"), [(Noisy(), 0), (NoisyOfOneSize(), 24)])
def test_a_network_that_draws_random_numbers_is_refused(network: nn.Module, least: int) -> None:
    with pytest.raises(UnsupportedModelError, match=r"a\.pth: .* random numbers .* differ by \d"):
        tried(wrapped(network), [3], 3, least, square=False, source="a.pth")


class OneSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.zeros(1, 3, 24, 24)


def test_a_network_of_one_size() -> None:
    trial = tried(wrapped(OneSize()), [3], 3, 24, square=False, source="a.pth")
    assert trial.fixed == (24, 24)
    assert "takes 24x24 only: fails at 27x37" in trial.warnings[0]


@pytest.mark.parametrize(
    ("network", "scale", "message"),
    [
        (nn.Flatten(), 1, r"gives the shape \(1, 1425\) at 19x25, expected"),
        (nn.Conv2d(3, 1, 1), 1, r"gives the shape \(1, 1, 19, 25\) at 19x25, expected"),
        (nn.Conv2d(3, 3, 1), 2, r"gives the shape .* expected \(1, 3, 38, 50\)"),
        (nn.Conv2d(4, 3, 1), 1, "fails at 19x25: .*4 channels"),
    ],
)
def test_what_is_no_picture_is_refused(network: nn.Module, scale: int, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"a\.pth: the network .*{message}"):
        tried(wrapped(network, scale=scale), [3], 3, 0, square=False, source="a.pth")


def test_a_file_that_keeps_the_traced_size_is_refused_with_the_other_one(tmp_path: Path) -> None:
    text = "f (float[b,3,h,w] input) => (float[b,3,h,w] output) {output = Add (input, k)}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>{text}')
    frozen = onnx.numpy_helper.from_array(np.zeros((1, 1, 16, 16), np.float32), "k")
    model.graph.initializer.append(frozen)
    onnx.save(model, tmp_path / "m.onnx")
    images = [np.ones((1, 3, *sides), np.float32) for sides in ((16, 16), (19, 11))]
    cases = tuple(ReferenceCase({"input": image}, {"output": image}) for image in images)
    references = References(cases, {"tolerances": [1e-4] * 2, "allowed_for": [""] * 2})
    with pytest.raises(ExportError, match=r"another size .* \(1, 3, 19, 11\).* `static`"):
        validate_file(tmp_path / "m.onnx", references, bodies=True, progress=lambda _: None)
