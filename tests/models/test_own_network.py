"""A module of the user: what is measured, and that it is not changed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from nystra.core.errors import CheckpointError, NystraError, UnsupportedModelError
from nystra.models import OwnNetwork, Port, load
from own_code import SITES, WINDOWS, network, written


class Unshuffling(nn.Module):
    """Takes sides that are multiples of a step, and returns images of a given scale."""

    def __init__(self, step: int = 1, scale: int = 1, channels: int = 3) -> None:
        super().__init__()
        self.step, self.scale = step, scale
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        small = F.pixel_unshuffle(image, self.step)
        whole = self.conv(F.pixel_shuffle(small, self.step))
        return whole.repeat_interleave(self.scale, 2).repeat_interleave(self.scale, 3)


@pytest.mark.parametrize(("step", "scale", "channels"), [(1, 1, 3), (12, 1, 3), (4, 3, 1)])
def test_scale_multiple_and_channels_are_measured(step: int, scale: int, channels: int) -> None:
    own = Unshuffling(step, scale, channels)
    loaded = load(own)
    facts = loaded.facts
    assert (facts.architecture, facts.task) == ("own:Unshuffling", "restoration")
    assert (facts.scale, facts.size_multiple, facts.input_channels) == (scale, step, channels)
    said = f"it needs sides that are multiples of {step}; they are padded to it"
    assert loaded.warnings == ((said,) if step > 1 else ())
    image = torch.rand(2, channels, 24, 36)
    with torch.no_grad():
        assert torch.equal(loaded.network(image), own(image))
    assert loaded.network(image[:, :, :7, :5]).shape == (2, channels, 7 * scale, 5 * scale)


def test_padding_inside_is_done_in_front() -> None:
    own = network(WINDOWS)
    loaded = load(own)
    assert (loaded.facts.scale, loaded.facts.size_multiple, loaded.warnings) == (2, 4, ())
    image = torch.rand(2, 3, 9, 14)
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(image), own(image), rtol=0, atol=1e-6)


class Classifier(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, 3, side, side))
        self.head = nn.Linear(3, 5)

    def forward(self, image: Tensor) -> Tensor:
        return self.head((image + self.positions).mean((2, 3)))


def test_a_classifier_of_one_size() -> None:
    facts = load(Classifier(28)).facts
    assert (facts.task, facts.sides) == ("classification", {"height": 28, "width": 28})
    assert (facts.outputs[0].role, facts.output_channels) == ("logits", 5)


class Filling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 3, 1)

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        made = self.conv(torch.cat([image, mask], 1))
        return made, image * (1 - mask) + made * mask


def test_stated_ports() -> None:
    inputs = (
        Port("image", "image", lengths={"channels": 3}),
        Port("mask", "mask", lengths={"channels": 1}),
    )
    outputs = [Port(name, "picture", lengths={"channels": 3}) for name in ("coarse", "filled")]
    facts = load(OwnNetwork(Filling(), inputs, outputs, "filling", "MIT")).facts
    assert (facts.architecture, facts.task, facts.license) == ("own:filling", "inpainting", "MIT")
    assert [port.name for port in (*facts.inputs, *facts.outputs)] == [
        "image",
        "mask",
        "coarse",
        "filled",
    ]


class Clip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 3, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        whole = frames.unflatten(3, (-1, 2)).unflatten(5, (-1, 2)).flatten(5).flatten(3, 4)
        return self.conv(whole.transpose(1, 2)).transpose(1, 2)


def test_frames() -> None:
    ports = [
        Port(name, "frames", ("batch", "frames", "channels", "height", "width"), {"channels": 3})
        for name in ("frames", "restored")
    ]
    loaded = load(OwnNetwork(Clip(), ports[:1], ports[1:]))
    assert (loaded.facts.task, loaded.facts.size_multiple) == ("video", 2)
    assert loaded.network(torch.rand(1, 4, 3, 9, 7)).shape == (1, 4, 3, 9, 7)


def test_a_stated_multiple_is_padded_to() -> None:
    port = Port("input", "image", lengths={"channels": 3}, multiple=8)
    loaded = load(OwnNetwork(Unshuffling(), [port]))
    assert (loaded.facts.size_multiple, loaded.warnings) == (8, ())


def test_sites_that_the_author_states_are_kept() -> None:
    loaded = load(network(SITES))
    assert (loaded.facts.window, loaded.facts.size_multiple) == ((4, 4), 4)


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda module: module, id="plain"),
        pytest.param(lambda module: module.half(), id="half"),
        pytest.param(torch.compile, id="compiled", marks=pytest.mark.full),
        pytest.param(nn.DataParallel, id="parallel"),
        pytest.param(lambda module: module.train(), id="training"),
    ],
)
def test_a_module_is_left_as_it_is(wrap: Any) -> None:
    own = wrap(Unshuffling())
    before = [(p.dtype, p.requires_grad) for p in own.parameters()], own.training
    loaded = load(own)
    assert ([(p.dtype, p.requires_grad) for p in own.parameters()], own.training) == before
    assert loaded.facts.architecture.startswith("own:")
    copies = dict(loaded.network.named_parameters())
    assert list(copies) == ["network.conv.weight", "network.conv.bias"]
    for mine, theirs in zip(copies.values(), own.parameters(), strict=True):
        assert mine.dtype == torch.float32
        assert (mine.data_ptr() == theirs.data_ptr()) == (theirs.dtype == torch.float32)


class Kept:
    """The value that a hook recorded."""

    def __init__(self, layer: nn.Module) -> None:
        self.results: list[Tensor] = []
        layer.register_forward_hook(self.note)

    def note(self, _layer: nn.Module, _inputs: Any, result: Tensor) -> None:
        self.results[:] = [result]


def test_results_that_hooks_keep_are_copied_too() -> None:
    module = Unshuffling()
    kept = Kept(module.conv)
    image = torch.rand(1, 3, 8, 8)
    expected = module(image)
    (before,) = kept.results
    assert before.requires_grad
    loaded = load(module)
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(image), expected.detach())
    assert kept.results[0] is before


def test_equal_weights_have_equal_names() -> None:
    torch.manual_seed(0)
    first = Unshuffling()
    second = Unshuffling()
    digests = [load(own).checkpoint.sha256 for own in (first, second)]
    second.load_state_dict(first.state_dict())
    assert digests[0] != digests[1]
    assert load(second).checkpoint.sha256 == digests[0]


class Fails(nn.Module):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, image: Tensor) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result(image)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ValueError("no\nway"), r"the network fails for \(1, 3, 64, 64\): no way"),
        (lambda x: [x, x], "returns 2 values .Tensor, Tensor., expected 1"),
        (lambda x: "text", "returns 1 values .str."),
        (lambda x: {"other": x, "another": x}, "a dict of other, another, expected output"),
        (lambda x: x[:, :, ::2], r"the shape \(1, 3, 32, 64\) for \(1, 3, 64, 64\), expected a"),
        (lambda x: x[:, :, ::2, ::2], r"the shape \(1, 3, 32, 32\) for"),
        (lambda x: x.mean(), r"the shape \(\) for"),
        (lambda x: x + torch.rand_like(x), "Fails: the output of the network is not deterministic"),
    ],
)
def test_what_cannot_be_used_is_refused(result: Any, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        load(Fails(result))


def test_random_numbers_are_refused_in_a_network_of_one_size() -> None:
    """Such as dropout that runs in evaluation mode too."""
    port = Port("image", "image", lengths={"channels": 3, "height": 16, "width": 16})
    network = Fails(lambda x: x * nn.functional.dropout(torch.ones_like(x), training=True))
    with pytest.raises(UnsupportedModelError, match="the output of the network is not determin"):
        load(OwnNetwork(network, [port]))
    assert load(OwnNetwork(Fails(lambda x: 2 * x), [port])).facts.sides


@pytest.mark.parametrize("convert", [Tensor.half, Tensor.bfloat16])
def test_a_module_that_halves_its_image_is_refused_with_a_hint(convert: Any) -> None:
    class Halving(Unshuffling):
        def forward(self, image: Tensor) -> Tensor:
            return super().forward(convert(image)).float()

    with pytest.raises(UnsupportedModelError, match=r"fails for .*; weights and images are") as e:
        load(Halving().to(torch.float16))
    assert "`.half()`" in str(e.value)
    with pytest.raises(UnsupportedModelError) as plain:
        load(Fails(ValueError("no way")))
    assert "`.half()`" not in str(plain.value)


def test_a_module_that_takes_the_type_of_its_weights_is_served() -> None:
    class Typed(Unshuffling):
        def forward(self, image: Tensor) -> Tensor:
            return super().forward(image.to(self.conv.weight.dtype))

    assert load(Typed().half()).facts.architecture == "own:Typed"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_what_is_no_module_with_weights_is_refused() -> None:
    with pytest.raises(NystraError, match="got a dict, expected a torch"):
        load({})  # type: ignore[arg-type]
    with torch.device("meta"), pytest.raises(NystraError, match="'meta': its weights have no"):
        load(Unshuffling())
    with pytest.raises(NystraError, match="scripted module: pass the module"):
        load(torch.jit.script(Unshuffling()))
    with pytest.raises(NystraError, match="built already, so window_size does not apply"):
        load(Unshuffling(), window_size=8)
    broken = Unshuffling()
    broken.conv.bias.data[0] = float("nan")
    with pytest.raises(CheckpointError, match=r"NaN or infinite .* conv\.bias"):
        load(broken)


def saved(folder: Path, change: Any = lambda state: state) -> Path:
    torch.save(change(dict(network(WINDOWS).state_dict())), folder / "net.pth")
    return folder / "net.pth"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"params": {}, "params_ema": state},
        lambda state: {"state_dict": {f"module.{key}": value for key, value in state.items()}},
        lambda state: {f"model._orig_mod.{key}": value for key, value in state.items()},
        lambda state: {key: value.half() for key, value in state.items()},
    ],
)
def test_tensors_are_found_in_what_trainers_write(tmp_path: Path, wrap: Any) -> None:
    code = written(tmp_path, WINDOWS)
    loaded = load(saved(tmp_path, wrap), module=f"{code}:build", dim=8)
    assert loaded.hyper["module"] == "net.py:build"
    assert (loaded.facts.architecture, loaded.facts.scale) == ("own:Net", 2)
    own = network(WINDOWS).state_dict()
    for key, value in loaded.network.network.state_dict().items():
        torch.testing.assert_close(value, own[key], rtol=0, atol=1e-3)


def test_a_prefix_that_is_the_networks_own_is_kept(tmp_path: Path) -> None:
    code = written(tmp_path, f"{WINDOWS}\n\nclass Outer(nn.Module):\n    def __init__(self):\n"
                   "        super().__init__()\n        self.model = Net()\n\n"
                   "    def forward(self, image):\n        return self.model(image)\n")  # fmt: skip
    path = saved(tmp_path, lambda state: {f"model.{key}": value for key, value in state.items()})
    assert load(path, module=f"{code}:Outer").facts.scale == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {**s, "more": torch.zeros(1)}, "match net.py:Net: 1 surplus: more$"),
        (lambda s: {k: v for k, v in s.items() if "up" not in k}, "2 missing: up.0.weight, up.0.b"),
        (lambda s: {**s, "stem.bias": torch.zeros(9)}, r"misshapen: stem.bias \(9,\) instead of"),
        (lambda s: {**s, "stem.bias": torch.zeros(8).long()}, "stem.bias int64 instead of float32"),
        (
            lambda s: {"other.weight": torch.zeros(1)},
            "6 missing: stem.weight, .*; 1 surplus: other",
        ),
    ],
)
def test_tensors_of_another_network_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    code = written(tmp_path, WINDOWS)
    with pytest.raises(CheckpointError, match=message):
        load(saved(tmp_path, change), module=f"{code}:Net")


def test_a_checkpoint_cannot_name_code(tmp_path: Path) -> None:
    code = written(tmp_path, "raise SystemExit('it ran')")
    stored = {"nystra": json.dumps({"module": f"{code}:Net", "architecture": "own:Net"})}
    save_file(network(WINDOWS).state_dict(), tmp_path / "a.safetensors", stored)
    with pytest.raises(NystraError, match="needs its code: give `module`"):
        load(tmp_path / "a.safetensors")


class Conditional(nn.Module):
    """An image, a step, a class and tokens that the image attends to."""

    def __init__(self) -> None:
        super().__init__()
        self.classes, self.read = nn.Embedding(5, 3), nn.Linear(12, 3)

    def forward(self, image: Tensor, step: Tensor, kind: Tensor, text: Tensor) -> Tensor:
        context = self.read(text)
        queries = image.flatten(2).transpose(1, 2)
        read = (queries @ context.transpose(1, 2)).softmax(-1) @ context
        added = self.classes(kind)[:, :, None, None] + step[:, None, None, None]
        return image + read.transpose(1, 2).reshape(image.shape) + added


def test_conditions_are_found_by_trial() -> None:
    loaded = load(Conditional())
    found = {
        port.name: (port.role, port.axes, port.channels, port.dtype)
        for port in loaded.facts.inputs[1:]
    }
    assert found == {
        "step": ("condition", ("batch",), None, "float32"),
        "kind": ("condition", ("batch",), None, "int64"),
        "text": ("condition", ("batch", "steps", "classes"), 12, "float32"),
    }
    assert "text as a list of tokens of 12 numbers for each image" in loaded.warnings[0]


class Masked(nn.Module):
    """Tokens that an image attends to, but for those that a mask leaves out."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.read, self.scale = how, nn.Linear(8, 3), nn.Linear(1, 3)

    def forward(self, image: Tensor, step: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        context = self.read(text)
        scores = image.flatten(2).transpose(1, 2) @ context.transpose(1, 2)
        if self.how == "bool":
            scores = scores.masked_fill(~mask.unsqueeze(1), -1e4)
        else:
            scores = scores + (1 - mask[:, None]) * -1e4
        read = (scores.softmax(-1) @ context).transpose(1, 2).reshape(image.shape)
        return image + read * self.scale(step[:, None])[:, :, None, None]


@pytest.mark.parametrize("how", ["float32", "bool"])
def test_a_mask_of_tokens_is_found_by_trial(how: str) -> None:
    loaded = load(Masked(how))
    step, text, mask = loaded.facts.inputs[1:]
    assert (step.axes, text.lengths) == (("batch",), {"classes": 8})  # as long as the trial's list
    assert (mask.axes, mask.lengths, mask.dtype) == (("batch", "steps"), {}, how)
    assert f"mask as one number per token for each image ({how})" in loaded.warnings[0]


def test_conditions_have_no_sides() -> None:
    with pytest.raises(NystraError, match=r"condition 'step' has the axes .*, expected \(batch\)"):
        Port("step", "condition")
