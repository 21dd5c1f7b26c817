"""What a user's code may contain: autocast, compiled parts, flex_attention, several results."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import ExportOptions, Plan, export_module, mechanism
from nystra.export.attention.cost import count_operations
from nystra.export.attention.site import find_sites
from nystra.export.load.module_sites import with_found_sites
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models import OwnNetwork, Port, load
from nystra.models.sizes.plain_run import run_plainly
from nystra.runtime import Session, read_references, validate_against_references
from nystra.runtime.checking.validation import further_differences

IMAGE = Port("image", "image", lengths={"channels": 3})
WINDOW, DIM = 8, 16


class Windows(nn.Module):
    """A network with attention in windows of 8, by a given function of (module, q, k, v)."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.stem, self.up = nn.Conv2d(3, DIM, 1), nn.Conv2d(DIM, 3, 1)
        self.qkv, self.attention = nn.Linear(DIM, 3 * DIM), attention
        self.bias = nn.Parameter(torch.randn(2, WINDOW**2, WINDOW**2))
        self.mask = create_block_mask(causal, None, None, WINDOW**2, WINDOW**2, device="cpu")

    def forward(self, image: Tensor) -> Tensor:
        y = self.stem(image)
        b, c, h, w = y.shape
        y = y.view(b, c, h // WINDOW, WINDOW, w // WINDOW, WINDOW).permute(0, 2, 4, 3, 5, 1)
        tokens = self.qkv(y.reshape(-1, WINDOW**2, c)).view(-1, WINDOW**2, 3, 2, c // 2)
        out = self.attention(self, *tokens.permute(2, 0, 3, 1, 4)).transpose(1, 2)
        out = out.reshape(b, h // WINDOW, w // WINDOW, WINDOW, WINDOW, c)
        return image + self.up(out.permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w))


def causal(_b: Tensor, _h: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def biased(net: Windows) -> Any:
    return lambda score, _b, h, query, key: score + net.bias[h, query, key]


def chained(net: Windows) -> Any:
    return lambda score, _b, h, query, key: score + net.bias[h][query, key]


@functools.cache
def compiled() -> Any:
    """Return the compiled function, for which PyTorch imports its compiler."""
    return torch.compile(flex_attention)


@pytest.mark.full
@pytest.mark.parametrize(
    "attention",
    [
        pytest.param(lambda net, q, k, v: flex_attention(q, k, v, biased(net)), id="score_mod"),
        pytest.param(lambda net, q, k, v: compiled()(q, k, v, biased(net)), id="compiled"),
        pytest.param(
            lambda net, q, k, v: flex_attention(q, k, v, block_mask=net.mask), id="block_mask"
        ),
    ],
)
def test_flex_attention_is_found(attention: Any) -> None:
    found = with_found_sites(load(Windows(attention).eval()))
    assert found.facts.sides is None
    assert find_sites(found.network)
    assert not any("stays as trained" in warning for warning in found.warnings)


def test_a_table_that_is_indexed_twice_is_refused_with_advice(tmp_path: Any) -> None:
    net = Windows(lambda net, q, k, v: flex_attention(q, k, v, chained(net))).eval()
    with pytest.raises(NystraError, match=r"index a table once, `table\[h, q, k\]`") as caught:
        export_module(net, tmp_path / "out.onnx", ExportOptions(speed=False))
    assert str(caught.value).isprintable()


class Cast(nn.Module):
    def __init__(self, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.conv, self.kind = nn.Conv2d(3, 3, 3, padding=1), (device, dtype)

    def forward(self, image: Tensor) -> Tensor:
        with torch.autocast(*self.kind):
            image = self.conv(image)
        return image.float()


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("cpu", torch.bfloat16), ("cpu", torch.float16), ("cuda", torch.float16)],
)
@pytest.mark.filterwarnings("ignore:CUDA is not available", "ignore:User provided device_type")
def test_autocast_is_left_out(device: str, dtype: torch.dtype) -> None:
    own = Cast(device, dtype).eval()
    loaded = load(own)
    said = f"its autocast to {str(dtype)[6:]} is left out: float32 is used, unless `precision`"
    if device == "cpu" or torch.cuda.is_available():
        assert any(said in warning for warning in loaded.warnings)
    image = torch.rand(1, 3, 9, 7)
    with torch.no_grad():
        assert torch.equal(loaded.network(image), own.conv(image))
        assert device == "cuda" or not torch.equal(own(image), own.conv(image)), "restored"


class Queried(Cast):
    def forward(self, image: Tensor) -> Tensor:
        with torch.autocast(*self.kind):
            image = self.conv(image).to(torch.get_autocast_dtype("cpu"))
        return image @ image.transpose(2, 3) @ image


def test_the_type_of_an_autocast_that_is_left_out_is_float32() -> None:
    network = load(Queried("cpu", torch.bfloat16).eval()).network
    with torch.no_grad():
        assert network(torch.rand(1, 3, 9, 7)).dtype == torch.float32


def test_other_threads_keep_their_autocast() -> None:
    """And two threads that leave it out restore it, whichever ends first."""
    before = torch.autocast.__enter__, torch.autocast.__exit__, torch.get_autocast_dtype
    inside, leave, left = threading.Event(), threading.Event(), []

    def first() -> None:
        with run_plainly():
            inside.set()
            assert leave.wait(20)
        left.append("first")

    def second() -> None:
        with run_plainly(), torch.autocast("cpu", torch.bfloat16):
            left.append("second")

    one, two = threading.Thread(target=first), threading.Thread(target=second)
    one.start()
    assert inside.wait(20)
    two.start()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.bfloat16
    leave.set()
    one.join(20)
    two.join(20)
    assert sorted(left) == ["first", "second"]
    assert before == (
        torch.autocast.__enter__,
        torch.autocast.__exit__,
        torch.get_autocast_dtype,
    )


class Weighted(nn.Module):
    """MultiheadAttention with a mask and its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, image: Tensor) -> Tensor:
        tokens = F.pixel_unshuffle(image.mean(1, keepdim=True), 4).flatten(2).transpose(1, 2)
        mask = torch.zeros(tokens.shape[1], tokens.shape[1])
        out, weights = self.attention(tokens, tokens, tokens, attn_mask=mask)
        return image + out.mean() + weights.mean()


def test_a_network_whose_attention_takes_a_mask_by_name_runs_in_float64() -> None:
    network = load(Weighted().eval()).network
    image = torch.rand(1, 3, 8, 8)
    got = torch.from_numpy(NetworkSession(network, torch.float64)(image.numpy()))
    torch.testing.assert_close(got.float(), network(image).detach())


class Two(nn.Module):
    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.conv, self.wrap = nn.Conv2d(3, 3, 3, padding=1), wrap

    def forward(self, image: Tensor) -> Any:
        coarse = image + self.conv(image)
        return self.wrap(coarse, coarse + self.conv(coarse))


@dataclass
class Output:
    coarse: Tensor
    final: Tensor


OUTPUTS = [Port(name, "picture", lengths={"channels": 3}) for name in ("coarse", "final")]


@pytest.mark.parametrize("wrap", [Output, lambda a, b: {"final": b, "coarse": a, "more": None}])
def test_outputs_by_name(wrap: Any) -> None:
    network = load(OwnNetwork(Two(wrap).eval(), [IMAGE], OUTPUTS)).network
    with torch.no_grad():
        assert [tuple(out.shape) for out in network(torch.rand(1, 3, 5, 6))] == [(1, 3, 5, 6)] * 2


@pytest.mark.full
def test_two_outputs_are_exported_and_both_are_checked(tmp_path: Any) -> None:
    """The second is 100 times as large, and has tolerances of its own."""
    own = OwnNetwork(Two(lambda a, b: (a, 100 * b)).eval(), [IMAGE], OUTPUTS)
    result = export_module(own, tmp_path / "two.onnx", ExportOptions(speed=False))
    assert result.validation.passed
    references = read_references(tmp_path / "two.npz")
    assert list(references.cases[0].outputs) == ["coarse", "final"]
    assert max(further_differences(references)["final"])[0] < 0.1
    model = onnx.load(str(result.model))
    (node,) = (node for node in model.graph.node if "final" in node.output)
    node.output[0] = "right"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1.01), "factor"))
    model.graph.node.append(onnx.helper.make_node("Mul", ["right", "factor"], ["final"]))
    onnx.save(model, str(tmp_path / "wrong.onnx"))
    report = validate_against_references(Session(tmp_path / "wrong.onnx"), references)
    assert not report.passed
    assert all("final: the largest difference is" in size.findings[0] for size in report.sizes)
    assert report.max_abs < 1e-4  # of the first output


@pytest.mark.parametrize(
    ("wrap", "kinds"),
    [
        (Output, "a Output of coarse, final"),
        (lambda a, b: [a, b], "Tensor, Tensor"),
        (lambda a, b: {"x": a, "y": b}, "a dict of x, y"),
    ],
)
def test_undeclared_outputs_are_refused_with_advice(wrap: Any, kinds: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"{kinds}.*as ports of an OwnNetwork, or"):
        load(Two(wrap).eval())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, _b: (a, None),
        lambda a, _b: ([a],),
        lambda a, _b: {"sample": a, "loss": None},
        lambda a, _b: Output(a, None),  # type: ignore[arg-type]
    ],
)
def test_the_only_tensor_is_the_output(wrap: Any) -> None:
    assert load(Two(wrap).eval()).facts.outputs[0].name == "output"


def test_outputs_of_nested_tuples_are_taken_in_order() -> None:
    network = load(OwnNetwork(Two(lambda a, b: (None, [a], b)).eval(), [IMAGE], OUTPUTS)).network
    with torch.no_grad():
        assert len(network(torch.rand(1, 3, 5, 6))) == 2


def test_complex_outputs_are_refused_with_advice() -> None:
    with pytest.raises(UnsupportedModelError, match=r"complex numbers.*`torch.view_as_real`"):
        load(Two(lambda a, _b: torch.fft.fft2(a)).eval())


class Branching(Cast):
    def forward(self, image: Tensor) -> Tensor:
        image = self.conv(image)
        return image if image.mean() > 0.5 else -image


def test_the_line_of_the_network_is_named(tmp_path: Any) -> None:
    line = Branching.forward.__code__.co_firstlineno + 2
    with pytest.raises(NystraError, match=rf"on the values .*\(test_own_code\.py, line {line}\)"):
        export_module(Branching("cpu", torch.float32), tmp_path / "a.onnx")


class Stepped(nn.Module):
    def forward(self, image: Tensor, step: Tensor) -> Tensor:
        return image * step


def test_a_number_as_input_is_refused_with_advice() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'step'; declare all inputs.*'condition'"):
        load(Stepped())
    with pytest.raises(NystraError, match=r"has the role 'step', expected one of .*condition"):
        OwnNetwork(Stepped(), [IMAGE, Port("step", "step")])


class Positions(nn.Module):
    """Attention between all cells of 8x8 pixels; their positions are computed in the run."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(192, 3 * DIM), nn.Linear(DIM, 192)

    def forward(self, image: Tensor) -> Tensor:
        y = F.pixel_unshuffle(image, 8)
        b, _, h, w = y.shape
        q, k, v = self.qkv(y.flatten(2).transpose(1, 2))[:, None].chunk(3, -1)
        frequencies = 10.0 ** -torch.arange(DIM // 2, device=image.device)
        angle = torch.arange(h * w)[:, None] * frequencies
        wave = torch.cat([angle.sin(), angle.cos()], -1)
        scores = (q + wave) @ (k + wave).transpose(-1, -2) * DIM**-0.5
        out = self.out((scores.softmax(-1) @ v)[:, 0]).transpose(1, 2)
        return image + F.pixel_shuffle(out.reshape(b, 192, h, w), 8)


@pytest.mark.full
def test_attention_with_positions_of_the_run_is_exported(tmp_path: Any) -> None:
    options = ExportOptions(Plan(mechanism("full")), speed=False)
    result = export_module(Positions().eval(), tmp_path / "out.onnx", options)
    assert result.validation.passed
    assert [site.name for site in result.source.resolved.values()] == ["full"]


class Watched(Positions):
    """Notes whether its images have values."""

    seen: ClassVar[list[bool]] = []

    def forward(self, image: Tensor) -> Tensor:
        self.seen.append(isinstance(image, FakeTensor))
        return super().forward(image)


def test_operations_are_counted_without_a_real_run() -> None:
    loaded = load(Watched().eval())
    Watched.seen.clear()
    total, _ = count_operations(loaded.network, loaded.facts)
    assert total > 0
    assert Watched.seen == [True]


class CheckedColors(nn.Module):
    """Divides by numbers of its code that it checks, as torchvision's `normalize`."""

    def forward(self, image: Tensor) -> Tensor:
        deviation = torch.as_tensor([0.2, 0.3, 0.4], dtype=image.dtype, device=image.device)
        if (deviation == 0).any():
            raise ValueError("a deviation of zero")
        return image / deviation.view(-1, 1, 1)


def test_code_may_branch_on_numbers_of_its_own(tmp_path: Any) -> None:
    network = CheckedColors()
    session = Session(export_module(network, tmp_path / "m.onnx", ExportOptions(speed=False)).model)
    image = torch.rand(2, 3, 9, 21)
    np.testing.assert_allclose(session(image.numpy()), network(image).numpy(), rtol=1e-5)
