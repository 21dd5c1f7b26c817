"""A file is compared with the network as it was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exports import export_session
from found_toys import lively
from mask_toys import of, unsafe
from nystra.core.errors import ValidationError
from nystra.export import Plan, mechanism, replacement_timing
from nystra.export.graph.precision import lowering
from nystra.export.load.telling import choose_telling_inputs, find_telling_inputs
from nystra.export.rewrite import tokens
from nystra.export.rewrite.sources import FileSource
from nystra.export.validate import last_word
from nystra.models import load
from nystra.models.own import checkpoint
from nystra.models.sizes.borders import Sides
from nystra.models.sizes.given import GivenNetwork
from one_convolution import OneConvolution
from searched_graphs import of_one_size


class Enlarged(OneConvolution):
    """Pads by itself, and adds the enlarged image."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        y = self.conv(F.pad(x, (0, -width % 8, 0, -height % 8), "reflect"))[:, :, :height, :width]
        return y + F.interpolate(x, scale_factor=1.0, mode="bicubic") + F.avg_pool2d(x, 3, 1, 1)


@pytest.mark.full
def test_padding_that_was_moved_wrongly_fails_the_last_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything else of an export compares the padded network with itself."""
    monkeypatch.setattr(checkpoint, "own_sides", lambda *_: Sides(8))
    with pytest.raises(ValidationError, match="the file differs from the network as it was given"):
        export_session(Enlarged(), tmp_path)
    monkeypatch.undo()
    assert export_session(Enlarged(), tmp_path).facts.image is not None


@pytest.mark.full
def test_a_network_that_is_compared_with_nothing_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_word, "run_as_given", lambda *_: None)
    monkeypatch.setattr(last_word, "_run_padded", lambda *_: None)
    with pytest.raises(ValidationError, match="returns numbers for no image"):
        export_session(Enlarged(), tmp_path)


@pytest.mark.full
def test_numbers_where_the_network_has_none_fail_the_last_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = lively(nn.Sequential(of(unsafe)(), nn.Conv2d(16, 3, 1)))
    monkeypatch.setattr(tokens, "_without_keys", lambda builder, core, out, bias: out)
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])
    with pytest.raises(ValidationError, match="returns numbers where the network as it was given"):
        export_session(network, tmp_path, plan=Plan(mechanism("full")))


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_ends_is_no_size_that_a_network_does_not_take(error: Exception) -> None:
    class Large(OneConvolution):
        def forward(self, x: Tensor) -> Tensor:
            raise error

    given = GivenNetwork(Large(), lambda network, *inputs: network(*inputs), (), ())
    with pytest.raises(type(error)):
        given.outputs_for([torch.zeros(1, 3, 8, 8)])


class Summed(OneConvolution):
    """Its sums over a large image are beyond the largest value of float16."""

    def forward(self, x: Tensor) -> Tensor:
        sums = (100.0 * self.conv(x)).abs().sum((2, 3), keepdim=True)
        return x + 1e-6 * self.conv(sums)


@pytest.mark.full
def test_what_overflows_in_large_images_alone_stays_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_session(Summed(), tmp_path, precision="fp16")
    model = onnx.load(str(tmp_path / "m.onnx"))
    assert [tensor.data_type for tensor in model.graph.initializer].count(onnx.TensorProto.FLOAT)
    monkeypatch.setattr(lowering, "find_overflowing", lambda *_: {})
    with pytest.raises(ValidationError, match=r"the file returns other than finite numbers"):
        export_session(Summed(), tmp_path, precision="fp16", overwrite=True)


def test_a_module_that_ran_before_is_compared_as_it_is(tmp_path: Path) -> None:
    network = OneConvolution().eval()
    network(torch.rand(1, 3, 8, 8))
    image = torch.rand(2, 3, 21, 9)
    with torch.no_grad():
        expected = network(image)
    got = torch.from_numpy(export_session(network, tmp_path)(image.numpy()))
    torch.testing.assert_close(got, expected)


class Normalized(OneConvolution):
    """Divides by a length, which is 0 in black images."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.norm(dim=1, keepdim=True) + 1e-8)


@pytest.mark.full
def test_a_small_number_that_protects_a_quotient_is_kept(tmp_path: Path) -> None:
    """onnxscript takes 1e-8 for 0: black images gave no numbers, and the export was refused."""
    session = export_session(Normalized(), tmp_path)
    assert not session(np.zeros((1, 3, 8, 8), np.float32)).any()


def _compared(parameters: int, *, changed: bool, quadratic: float = 0.0) -> list[tuple[int, ...]]:
    facts = load("swinir_x2_w16").facts
    cases = find_telling_inputs(
        facts, 8, parameters, quadratic=quadratic, photographs_only=False, changed=changed
    )
    return [next(iter(case.feeds.values())).shape for case in cases]


def test_a_large_network_is_compared_at_few_sizes_one_of_them_above_128() -> None:
    """Those of SwinIR-M: the comparison takes a tenth of its export."""
    shapes = _compared(11_752_487, changed=False)
    assert len(shapes) == 2
    assert shapes[0][0] == 3  # a batch
    assert max(shapes[1][2:]) > 128
    around = set(_compared(11_752_487, changed=True)) - set(shapes)
    assert around, "a network that was padded or traced anew has no references of its own"


@pytest.mark.parametrize("kind", ["module", "file"])
def test_the_weights_of_a_network_that_is_a_graph_count(kind: str) -> None:
    """24 layers of Swin2SR were compared at all sizes: 41 of the 97 s of an export."""
    network = of_one_size(nn.Conv2d(3, 400_000, 3), 1, 3, 3, 3).network
    source = network.source
    if kind == "file":
        network.source = FileSource(source.path, source.model, source.graph_model)
    facts = load("swinir_x2_w16").facts
    cases = choose_telling_inputs(network, facts, photographs_only=False, changed=True)
    assert [len(next(iter(case.feeds.values()))) for case in cases] == [3, 1, 1]


def test_a_small_network_is_compared_at_all_sizes_in_batches() -> None:
    shapes = _compared(100_000, changed=False)
    assert len(shapes) == 10
    assert {shape[0] for shape in shapes} == {3}


def test_attention_between_all_pixels_is_compared_on_small_squares_and_long_strips() -> None:
    """Colorization took 70 of the 75 s of its export at sides of 131."""
    shapes = _compared(100_000, changed=False, quadratic=256.0)
    assert max(max(shape[2:]) for shape in shapes) > 128
    assert max(height * width for *_, height, width in shapes) < 64**2
