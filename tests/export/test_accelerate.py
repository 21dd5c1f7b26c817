"""`accelerate`: a module with the same call, in PyTorch or by an engine, and its cache."""

from __future__ import annotations

import copy
import pickle
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import Mechanism, Plan, accelerate
from nystra.models.swinir.network import SwinIR
from shared import ROOT
from small_swinir import tiny

CALLS = [(1, 3, 16, 24), (2, 3, 16, 24), (3, 3, 9, 13), (1, 3, 33, 8)]


def network() -> SwinIR:
    torch.manual_seed(0)
    return SwinIR(**tiny(window_size=8))


def image(*shape: int) -> Tensor:
    return torch.rand(shape or (1, 3, 16, 24), generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache/accelerated"


def apart(fast: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> float:
    """Return the largest difference; the result has the type and shape of the module's."""
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(*args, **kwargs)
    got = fast(*args, **kwargs)
    assert (got.shape, got.dtype, got.requires_grad) == (expected.shape, expected.dtype, False)
    return float((got.float() - expected.float()).abs().max())


def test_any_size_and_batch_with_the_operators_in_torch() -> None:
    module = network()
    assert module.training
    fast = accelerate(module, backend="torch", example=image())
    for shape in CALLS:
        assert apart(fast, module, image(*shape)) < 1e-5
    assert module.training
    report = fast.report
    assert report is not None
    assert (report.way, report.sites, report.equal, report.file) == ("torch", 2, True, None)
    assert report.difference < 1e-5
    assert {"torch", "module"} == report.seconds.keys()
    assert report.speedup == report.seconds["module"] / report.seconds["torch"]
    assert "torch takes" in str(report)
    assert "the same but for rounding" in str(report)


def test_the_wrong_result_of_a_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.export.accelerated import ways

    right = ways.InTorch.forward
    monkeypatch.setattr(
        ways.InTorch, "forward", lambda self, *t: [1.001 * out for out in right(self, *t)]
    )
    with pytest.raises(NystraError, match="the result of torch differs from that of the module"):
        accelerate(network(), backend="torch", example=image())


@pytest.mark.full
def test_it_is_a_module_with_the_names_and_weights_of_the_module() -> None:
    module = network()
    fast = accelerate(module, backend="torch")
    assert fast.report is None
    assert list(fast.state_dict()) == list(module.state_dict())
    assert [*dict(fast.named_parameters())] == [*dict(module.named_parameters())]
    assert fast.upscale == module.upscale
    assert not hasattr(fast, "nothing")
    assert fast.to("cpu") is fast.eval() is fast
    before = fast(image())
    fast.load_state_dict({key: 1.1 * value for key, value in module.state_dict().items()})
    assert apart(fast, module, image()) < 1e-5
    assert (fast(image()) - before).abs().max() > 1e-3
    with torch.no_grad():
        module.conv_first.weight.mul_(2.0)
    assert apart(fast, module, image()) < 1e-5, "a change in place is noticed"


@pytest.mark.full
def test_copies_and_threads() -> None:
    module = network()
    fast = accelerate(module, backend="torch", example=image())
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert other.report is None
        assert apart(other, module, image()) < 1e-5
        assert list(other.state_dict()) == list(module.state_dict())
    again = accelerate(module, backend="torch")
    results: list[float] = []
    threads = [
        threading.Thread(target=lambda: results.append(apart(again, module, image())))
        for _ in range(4)
    ]
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)
    assert [result < 1e-5 for result in results] == 4 * [True]


def test_half_precision_is_computed_in_float32() -> None:
    module = network().half()
    fast = accelerate(module, backend="torch")
    assert apart(fast, module, image().half()) < 5e-3
    assert fast.report is not None
    assert fast.report.difference < 1e-3, "from the module in float32: rounding of the result"
    wide = accelerate(network(), backend="torch", example=image())
    assert apart(wide.half(), module, image().half()) < 5e-3, "converted later"


def test_gradients_and_training_are_errors() -> None:
    fast = accelerate(network(), backend="torch", example=image())
    asking = image().requires_grad_()
    with pytest.raises(NystraError, match="has no gradients, and an input requires one"):
        fast(asking)
    with torch.no_grad():
        fast(asking)
    with torch.inference_mode():
        fast(image())
    with pytest.raises(NystraError, match="no training mode: train the module itself"):
        fast.train()


def test_what_is_not_taken_the_module_computes_with_one_warning() -> None:
    module = network()
    fast = accelerate(module, backend="torch", example=image())
    with pytest.warns(UserWarning, match="the unchanged module computes this call.*channels 1"):
        assert apart(fast, module, image(1, 1, 16, 16)) == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert apart(fast, module, image(1, 1, 16, 16)) == 0.0
        with torch.autocast("cpu", torch.bfloat16):
            fast(image())
    for wrong in [(), (image(), 3), (image().double(),)]:
        with pytest.raises((TypeError, RuntimeError)):
            fast(*wrong)


class Several(nn.Module):
    """Two inputs by name, a setting, and results in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mix = network(), nn.Conv2d(4, 3, 1)

    def forward(self, picture: Tensor, hole: Tensor, *, strength: float = 1.0) -> dict[str, Any]:
        large = self.inner(self.mix(torch.cat([picture, hole], 1)) * strength)
        return {"large": large, "more": [large.mean((2, 3)), None], "version": 3}


def test_several_inputs_settings_and_results_in_a_structure() -> None:
    module = Several().eval()
    fast = accelerate(module, backend="torch")
    taken = image(2, 3, 16, 16), image(2, 1, 16, 16).round()
    with torch.no_grad():
        expected = module(*taken)
        for got in (fast(*taken), fast(hole=taken[1], picture=taken[0], strength=1.0)):
            assert (got.keys(), got["version"], got["more"][1]) == (expected.keys(), 3, None)
            torch.testing.assert_close(got["large"], expected["large"], rtol=0, atol=1e-5)
            torch.testing.assert_close(got["more"][0], expected["more"][0], rtol=0, atol=1e-5)
        with pytest.warns(UserWarning, match="arguments other than tensors"):
            assert torch.equal(
                fast(*taken, strength=2.0)["large"], module(*taken, strength=2.0)["large"]
            )


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        made = self.conv(image)
        return made if made.mean() > 0 else -made


@pytest.mark.parametrize(
    ("module", "taken", "reason"),
    [
        (nn.Linear(4, 4), torch.rand(2, 4), "expected a module of images"),
        (Branching(), image(), "the module reads values of its inputs"),
        (nn.Dropout(0.5), image(), None),
    ],
)
def test_modules_that_nothing_accelerates(
    module: nn.Module, taken: Tensor, reason: str | None
) -> None:
    if reason is not None:
        with pytest.raises(UnsupportedModelError, match=reason):
            accelerate(module, backend="torch", example=taken)
        with pytest.warns(UserWarning, match=reason):
            fast = accelerate(module, example=taken)
        assert fast.report is not None
        assert (fast.report.way, fast.report.speedup) == ("module", 1.0)
        assert apart(fast, module, taken) == 0.0
    else:
        with pytest.raises(UnsupportedModelError, match="no attention was found"):
            accelerate(module, backend="torch", example=taken)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"module": 3}, "got a int, expected a torch.nn.Module"),
        ({"attn": "all"}, "mechanism 'all' is unknown"),
        ({"attn": "auto"}, 'attn="auto" chooses by a limit'),
        ({"attn": 3}, "attn is a int, expected"),
        ({"backend": "cuda"}, "unknown backend 'cuda'"),
        ({"precision": "int8"}, "`precision` is 'int8', expected None, fp32 or bf16"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        accelerate(**({"module": network()} | wrong))


def test_linear_attention_is_said_to_differ() -> None:
    module = SwinIR(**tiny(window_size=16))
    fast = accelerate(module, attn="cluster", backend="torch", example=image(1, 3, 32, 32))
    assert fast.report is not None
    assert not fast.report.equal
    assert 0 < fast.report.difference < 0.2
    assert "not the same" in str(fast.report)
    assert isinstance(Plan().default, Mechanism)


@pytest.mark.full
def test_a_file_is_exported_once_and_what_is_damaged_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nystra.export.accelerated import choosing

    written: list[Path] = []
    export = choosing.write_file

    def counting(own: Any, path: Path, *more: Any) -> None:
        if written:
            path.write_bytes(whole)
        else:
            export(own, path, *more)
        written.append(path)

    monkeypatch.setattr(choosing, "write_file", counting)
    module = network()
    fast = accelerate(module, backend="ort-cpu", example=image())
    for shape in CALLS:
        assert apart(fast, module, image(*shape)) < 1e-5
    assert fast.report is not None
    file = fast.report.file
    assert file is not None
    assert file.parent == cache
    again = accelerate(network(), backend="ort-cpu", example=image(2, 3, 24, 16))
    assert again.report is not None
    assert again.report.file == file
    assert len(written) == 1
    assert {path.suffix for path in cache.iterdir()} == {".onnx", ".json"}, "no code, no locks"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    assert apart(accelerate(module, backend="ort-cpu"), module, image()) < 1e-5
    assert len(written) == 2


@pytest.mark.full
def test_auto_takes_the_fastest_and_remembers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.export.accelerated import choosing

    seconds = {"torch": 2.0, "module": 3.0}
    monkeypatch.setattr(choosing, "timed_backends", lambda: ())
    monkeypatch.setattr(choosing, "least_seconds", lambda functions, **_: dict(seconds))
    fast = accelerate(network(), example=image())
    assert fast.report is not None
    assert (fast.report.way, fast.report.speedup, fast.report.remembered) == ("torch", 1.5, False)
    seconds["module"] = 1.0
    again = accelerate(network(), example=image())
    assert again.report is not None
    assert (again.report.way, again.report.remembered) == ("torch", True)
    slow = accelerate(network(), example=image(1, 3, 24, 24))
    assert slow.report is not None
    assert (slow.report.way, slow.report.speedup) == ("module", 1.0)
    assert apart(slow, network(), image()) == 0.0


def test_the_package_has_it_and_starts_without_torch() -> None:
    """The face of the package is written by the build, from the text in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r"location = \"install\"\ntemplate = '''\n(.*?)'''", text, re.DOTALL)
    assert found is not None
    space: dict[str, Any] = {"__name__": "nystra", "__package__": "nystra"}
    exec(found[1], space)
    assert space["__getattr__"]("accelerate") is accelerate
    with pytest.raises(AttributeError, match="module 'nystra' has no attribute 'nothing'"):
        space["__getattr__"]("nothing")


@pytest.mark.full
def test_compiled_by_torch() -> None:
    module = network()
    fast = accelerate(module, backend="torch", example=image())
    compiled = torch.compile(fast, fullgraph=True)
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(image())
        torch.testing.assert_close(compiled(image()), expected, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:torch.meshgrid")
def test_a_descriptor_of_spandrel(tmp_path: Path) -> None:
    spandrel = pytest.importorskip("spandrel")
    from spandrel.architectures.SwinIR import SwinIR as Published

    torch.manual_seed(0)
    torch.save(
        Published(
            img_size=64, embed_dim=16, depths=[2], num_heads=[2], mlp_ratio=2, window_size=8,
            upscale=2, upsampler="pixelshuffledirect",
        ).state_dict(),
        tmp_path / "net.pth",
    )  # fmt: skip
    descriptor = spandrel.ModelLoader().load_from_file(tmp_path / "net.pth")
    for backend in ("torch", "ort-cpu"):
        fast = accelerate(descriptor, backend=backend)
        for shape in [(1, 3, 40, 33), (2, 3, 24, 31)]:
            torch.testing.assert_close(
                fast(image(*shape)), descriptor(image(*shape)), rtol=0, atol=1e-5
            )
        assert fast.scale == descriptor.scale == 2
        assert list(fast.state_dict()) == list(descriptor.model.state_dict())
        assert fast.report is not None
        assert fast.report.equal
