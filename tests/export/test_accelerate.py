"""`accelerate`: a frozen module with the same call, computed by a model file."""

from __future__ import annotations

import copy
import os
import pickle
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import prune

from accelerated import Small, compare, image
from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export import Mechanism, Plan, accelerate
from nystra.models.swinir.network import SwinIR
from shared import ROOT
from small_swinir import tiny

CALLS = [(1, 3, 16, 24), (2, 3, 16, 24), (3, 3, 9, 13), (1, 3, 33, 8), (1, 3, 64, 64)]


def network() -> SwinIR:
    torch.manual_seed(0)
    return SwinIR(**tiny(window_size=8))


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NYSTRA_CACHE_DIR", str(folder))
        yield folder / "accelerated"


@pytest.fixture(scope="module")
def frozen() -> nn.Module:
    return accelerate(Small(), backend="ort-cpu", example=image())


@pytest.mark.full
def test_any_size_and_batch_by_the_file(cache: Path) -> None:
    module = network()
    assert module.training
    fast = accelerate(module, backend="ort-cpu", example=image())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in CALLS:
            assert compare(fast, module, image(*shape)) < 1e-5
    assert module.training
    report = fast.report
    assert report is not None
    assert (report.way, report.equal) == ("ort-cpu", True)
    assert report.file is not None
    assert report.file.parent == cache
    assert report.difference < 1e-5
    assert {"ort-cpu", "module"} == report.seconds.keys()
    assert report.speedup == report.seconds["module"] / report.seconds["ort-cpu"]
    assert "ort-cpu takes" in str(report)
    assert "the same but for rounding" in str(report)


@pytest.mark.full
def test_the_wrong_result_of_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.export.accelerated import engine

    right = engine.Engine.run
    monkeypatch.setattr(
        engine.Engine, "run", lambda self, t: [1.001 * out for out in right(self, t)]
    )
    with pytest.raises(NystraError, match="the result of ort-cpu differs from that of the module"):
        accelerate(Small(), backend="ort-cpu", example=image())


def average(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data.mul_(0.5)


CHANGES: dict[str, Callable[[Any], object]] = {
    "load_state_dict": lambda m: m.load_state_dict({k: 2 * v for k, v in SMALL.items()}),
    "assign": lambda m: m.load_state_dict({k: 2 * v for k, v in SMALL.items()}, assign=True),
    "a parameter in place": lambda m: m.tail.weight.detach().mul_(2.0),
    "data": lambda m: m.tail.weight.data.mul_(2.0),
    "data added": lambda m: setattr(m.tail.weight, "data", m.tail.weight.data + 1.0),
    "data copied": lambda m: m.tail.weight.data.copy_(m.tail.weight.data * 2.0),
    "numpy": lambda m: m.tail.weight.detach().numpy().fill(0.5),
    "a parameter assigned": lambda m: setattr(m.tail, "weight", nn.Parameter(m.tail.weight * 2)),
    "a submodule assigned": lambda m: setattr(m, "qkv", nn.Linear(8, 24)),
    "a buffer assigned": lambda m: setattr(m, "mean", torch.zeros(1, 3, 1, 1)),
    "a number": lambda m: setattr(m, "gain", 3.0),
    "a method": lambda m: m.set_gain(3.0),
    "a number deleted": lambda m: delattr(m, "gain"),
    "a hook": lambda m: m.tail.register_forward_hook(lambda *given: given[2] * 0),
    "prune": lambda m: prune.l1_unstructured(m.tail, "weight", 0.5),
    "forward": lambda m: setattr(m, "forward", lambda image: image),
    "a buffer registered": lambda m: m.register_buffer("more", torch.zeros(1)),
    "a module added": lambda m: m.add_module("more", nn.Identity()),
    "half": lambda m: m.half(),
    "double": lambda m: m.to(torch.float64),
    "another device": lambda m: m.to("meta"),
    "training": lambda m: m.train(),
    "gradients": lambda m: m.requires_grad_(),
}
SMALL = Small().state_dict()


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_the_frozen_module_are_errors(frozen: nn.Module, name: str) -> None:
    with pytest.raises((NystraError, AttributeError), match="an accelerated module is frozen"):
        CHANGES[name](frozen)
    assert compare(frozen, Small(), image()) < 1e-5


@pytest.mark.parametrize("name", [*CHANGES, "a moving average"])
def test_changes_of_the_module_do_not_concern_it(cache: Path, name: str) -> None:
    module = Small()
    fast = accelerate(module, backend="ort-cpu", example=image())
    with torch.no_grad():
        (CHANGES | {"a moving average": average})[name](module)
    assert compare(fast, Small(), image()) < 1e-5
    with pytest.warns(UserWarning, match=r"the unchanged module computes this call"):
        assert compare(fast, Small(), image(0, 3, 16, 16)) < 1e-5, "the copy is of that moment too"


def test_it_has_no_weights_and_refresh_builds_anew(frozen: nn.Module) -> None:
    assert ([*frozen.parameters()], [*frozen.children()], {**frozen.state_dict()}) == ([], [], {})
    assert not hasattr(frozen, "tail")
    for same in (frozen.to("cpu"), frozen.eval(), frozen.float(), frozen.train(False)):
        assert same is frozen
    assert frozen.to(memory_format=torch.channels_last) is frozen
    with pytest.raises(NystraError, match="is frozen"):
        nn.Sequential(frozen).load_state_dict({"0.gain": torch.ones(1)}, strict=False)
    module = Small()
    fast: Any = accelerate(module, backend="ort-cpu", example=image())
    with torch.no_grad():
        module.tail.weight.mul_(2.0)
    module.set_gain(0.5)
    assert compare(fast, Small(), image()) < 1e-5
    assert fast.refresh(module) is fast
    assert fast.report is None
    assert compare(fast, module, image()) < 1e-5
    assert compare(fast, Small(), image()) > 1e-2
    with pytest.raises(NystraError, match="got a int, expected"):
        fast.refresh(3)


def test_copies_threads_and_processes(frozen: Any) -> None:
    for other in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert other.report is None
        assert compare(other, Small(), image()) < 1e-5
    module = Small()  # built once: threads that draw weights disturb each other
    again = accelerate(module, backend="ort-cpu")
    results: list[float] = []
    threads = [
        threading.Thread(
            target=lambda side=side: results.append(compare(again, module, image(1, 3, side, 24)))
        )
        for side in (16, 24, 32, 40)
    ]
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)
    assert [result < 1e-5 for result in results] == 4 * [True]
    expected = frozen(image())
    child = os.fork()
    if not child:  # a convolution of PyTorch may wait for ever for a lock of MKL after a fork
        os._exit(0 if torch.equal(frozen(image()), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:the unchanged module computes")
@pytest.mark.parametrize(
    "given",
    [
        image(1, 3, 24, 32).to(memory_format=torch.channels_last),
        image(1, 3, 24, 32).flip(-1).transpose(2, 3),
        image(1, 3, 48, 64)[:, :, ::2, ::2],
        image(1, 1, 24, 32).expand(2, 3, 24, 32),
        torch._neg_view(image()),
        image(0, 3, 16, 16),
    ],
)
def test_views_and_empty_batches(frozen: nn.Module, given: Tensor) -> None:
    assert compare(frozen, Small(), given) < 1e-5
    with torch.inference_mode():
        assert compare(frozen, Small(), given) < 1e-5


@pytest.mark.full
def test_half_precision_is_computed_in_float32() -> None:
    module = Small().half()
    fast = accelerate(module, backend="ort-cpu")
    assert compare(fast, module, image().half()) < 5e-3
    assert fast.report is not None
    assert fast.report.difference < 1e-3, "from the module in float32: rounding of the result"
    with pytest.raises(UnsupportedModelError, match=r"a tensor is torch.float64"):
        accelerate(Small().double(), backend="ort-cpu", example=image().double())


def test_gradients_are_errors(frozen: nn.Module) -> None:
    asking = image().requires_grad_()
    with pytest.raises(NystraError, match="has no gradients, and an input requires one"):
        frozen(asking)
    with torch.no_grad():
        frozen(asking)
    with pytest.raises(NystraError, match="has no gradients"):
        torch.func.grad(lambda x: frozen(x).sum())(image())


def tangent(module: nn.Module) -> Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(image(), torch.ones(1, 3, 16, 24))
        return forward_ad.unpack_dual(module(dual)).tangent.detach()


TRANSFORMS: dict[str, Callable[[Any], Tensor]] = {
    "jvp": lambda m: torch.func.jvp(m, (image(),), (torch.ones(1, 3, 16, 24),))[1],
    "dual numbers": tangent,
    "vmap": lambda m: torch.vmap(m)(image(2, 1, 3, 16, 24)),
    "compiled": lambda m: torch.compile(m, backend="eager")(image()),
    "exported": lambda m: torch.export.export(m, (image(),)).module()(image().flip(2)),
    "recorded": lambda m: torch.fx.experimental.proxy_tensor.make_fx(m)(image())(image().flip(2)),
    "autocast": lambda m: torch.autocast("cpu", torch.bfloat16)(m)(image()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_pytorch(frozen: nn.Module, name: str) -> None:
    module = Small().eval().requires_grad_(False)
    results = [TRANSFORMS[name](one).detach() for one in (frozen, module)]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_what_is_not_taken_the_copy_computes_with_one_warning() -> None:
    module = network()
    fast = accelerate(module, backend="ort-cpu", example=image())
    with pytest.warns(
        UserWarning, match=r"the unchanged module computes this call.*shape \(1, 1, 16, 16\)"
    ):
        assert compare(fast, module, image(1, 1, 16, 16)) == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare(fast, module, image(1, 1, 16, 16)) == 0.0
    for wrong in [(), (image(), 3), (image().double(),)]:
        with pytest.raises((TypeError, RuntimeError)):
            fast(*wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"module": 3}, "got a int, expected a torch.nn.Module"),
        ({"attn": "all"}, "mechanism 'all' is unknown"),
        ({"attn": "auto"}, 'attn="auto" chooses by a limit'),
        ({"attn": 3}, "attn is a int, expected"),
        ({"backend": "cuda"}, "unknown backend 'cuda'"),
        ({"backend": "torch"}, "unknown backend 'torch'"),
        ({"precision": "int8"}, "`precision` is 'int8', expected None, fp32 or bf16"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        accelerate(**({"module": network()} | wrong))


@pytest.mark.full
def test_linear_attention_is_said_to_differ() -> None:
    module = SwinIR(**tiny(window_size=16))
    fast = accelerate(module, attn="cluster", backend="ort-cpu", example=image(1, 3, 32, 32))
    assert fast.report is not None
    assert not fast.report.equal
    assert 0 < fast.report.difference < 0.2
    assert "not the same" in str(fast.report)
    assert isinstance(Plan().default, Mechanism)


@pytest.mark.full
def test_a_file_is_exported_once_and_what_is_damaged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nystra.export.accelerated import choosing

    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path))
    written: list[Path] = []
    export = choosing.export_module

    def counting(own: Any, path: Path, *more: Any) -> None:
        if written:
            path.write_bytes(whole)
        else:
            export(own, path, *more)
        written.append(path)

    monkeypatch.setattr(choosing, "export_module", counting)
    fast = accelerate(network(), backend="ort-cpu", example=image())
    assert fast.report is not None
    file = fast.report.file
    assert file is not None
    again = accelerate(network(), backend="ort-cpu", example=image(2, 3, 24, 16))
    assert again.report is not None
    assert again.report.file == file
    assert len(written) == 1
    suffixes = {path.suffix for path in (tmp_path / "accelerated").iterdir()}
    assert suffixes == {".onnx", ".json"}, "no code, no locks"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    assert compare(accelerate(network(), backend="ort-cpu"), network(), image()) < 1e-5
    assert len(written) == 2


@pytest.mark.full
def test_auto_takes_the_fastest_and_remembers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.export.accelerated import choosing

    seconds = {"ort-cpu": 2.0, "module": 3.0}
    monkeypatch.setattr(choosing, "list_timed_backends", lambda: ("ort-cpu",))
    monkeypatch.setattr(choosing, "measure_shortest", lambda functions, **_: dict(seconds))
    fast = accelerate(network(), example=image())
    assert fast.report is not None
    assert (fast.report.way, fast.report.speedup, fast.report.remembered) == ("ort-cpu", 1.5, False)
    seconds["module"] = 1.0
    again = accelerate(network(), example=image())
    assert again.report is not None
    assert (again.report.way, again.report.remembered) == ("ort-cpu", True)
    slow = accelerate(network(), example=image(1, 3, 24, 24))
    assert slow.report is not None
    assert (slow.report.way, slow.report.speedup) == ("module", 1.0)
    assert compare(slow, network(), image()) == 0.0


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


@pytest.mark.release
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
    fast: Any = accelerate(descriptor, backend="ort-cpu")
    for shape in [(1, 3, 40, 33), (2, 3, 24, 31)]:
        torch.testing.assert_close(
            fast(image(*shape)), descriptor(image(*shape)), rtol=0, atol=1e-5
        )
    assert fast.scale == descriptor.scale == 2
    assert not hasattr(fast, "model")
    assert fast.report is not None
    assert fast.report.equal
    with torch.no_grad():
        for parameter in descriptor.model.parameters():
            parameter.mul_(0.9)
    assert not torch.allclose(fast(image()), descriptor(image()), rtol=0, atol=1e-4)
    fast.refresh(descriptor)
    torch.testing.assert_close(fast(image()), descriptor(image()), rtol=0, atol=1e-5)
    with pytest.raises(NystraError, match="expected a descriptor"):
        fast.refresh(descriptor.model)
