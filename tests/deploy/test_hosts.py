"""Programs that load model files: VapourSynth with vs-mlrt, ComfyUI with a node, chaiNNer."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper

from exported_files import swinir_files
from nystra.cli.hosts import chainner_problems
from nystra.cli.main import main
from nystra.runtime import Session
from nystra.runtime.model.references import read_references
from runtime_models import nystra_metadata, save_operator, save_upscaler
from video_files import save_video

VAPOURSYNTH = Path(__file__).parent / "vapoursynth_frames.py"


def deploy(*arguments: object) -> int:
    return main(["deploy", *map(str, arguments)])


@pytest.fixture
def upscaler(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "twice.onnx", metadata=nystra_metadata())


def interpreter() -> str:
    """Return a Python that has VapourSynth with the plug-in, or skip."""
    python = os.environ.get("NYSTRA_VAPOURSYNTH_PYTHON", sys.executable)
    probe = "import vapoursynth as vs; vs.core.ort.Version()"
    if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip(
            "no VapourSynth here: python3.12 -m venv DIR, DIR/bin/pip install numpy vapoursynth "
            "vapoursynth-mlrt-ort, and NYSTRA_VAPOURSYNTH_PYTHON=DIR/bin/python"
        )
    return python


def frames(script: Path, images: np.ndarray, tmp_path: Path) -> np.ndarray:
    """Return the output of a script's ``restore`` in VapourSynth for images (B, C, H, W)."""
    np.save(tmp_path / "in.npy", images)
    out = tmp_path / "out.npy"
    command = [interpreter(), VAPOURSYNTH, script, tmp_path / "in.npy", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.asarray(np.load(out))


def test_vapoursynth_gets_a_script(
    upscaler: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy("vapoursynth", upscaler, "-o", tmp_path, "-t", 64, "--overlap", 8, "--json") == 0
    folder = tmp_path / "twice"
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(folder),
        "files": ["model.onnx", "twice.vpy"],
    }
    text = (folder / "twice.vpy").read_text()
    compile(text, "twice.vpy", "exec")
    assert "TILE = 64" in text
    assert "MARGIN = 8" in text
    assert "vs.RGBS" in text
    assert (folder / "model.onnx").read_bytes() == upscaler.read_bytes()
    assert deploy("vapoursynth", upscaler, "-o", tmp_path) == 2
    assert "add --overwrite" in capsys.readouterr().err
    options = ("-o", tmp_path, "--overwrite", "-t", 32)
    assert deploy("vapoursynth", upscaler, *options, "--overlap", 16) == 2
    assert "has to be more than twice the overlap" in capsys.readouterr().err
    gray = save_upscaler(tmp_path / "gray.onnx", channels=1, metadata=nystra_metadata(channels=1))
    assert deploy("vapoursynth", gray, "-o", tmp_path) == 0
    text = (tmp_path / "gray" / "gray.vpy").read_text()
    compile(text, "gray.vpy", "exec")
    assert "ShufflePlanes" in text


def test_vapoursynth_refuses_what_its_plug_in_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = save_upscaler(tmp_path / "b.onnx", metadata=nystra_metadata(), batch=2)
    plain = save_upscaler(tmp_path / "p.onnx")
    for path, message in (
        (batch, "it takes 2 images at once, expected one"),
        (plain, "its metadata does not state the scale"),
    ):
        assert deploy("vapoursynth", path, "-o", tmp_path / "out") == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_vapoursynth_makes_the_recorded_images(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All recorded sizes; tiles with cropped margins change little."""
    model = swinir_files(tmp_path_factory) / "model.onnx"
    assert deploy("vapoursynth", model, "-o", tmp_path) == 0
    script = tmp_path / "model" / "model.vpy"
    for case in read_references(model.with_suffix(".npz")).cases:
        ((image,), (expected,)) = case.feeds().values(), case.outputs.values()
        made = frames(script, image, tmp_path)
        np.testing.assert_allclose(made, np.clip(expected, 0, 1), atol=1e-4)
    wide = np.random.default_rng(0).random((2, 3, 24, 40)).astype(np.float32)
    assert deploy("vapoursynth", model, "-o", tmp_path, "--overwrite", "-t", 32) == 2
    tiles = ("-t", 32, "--overlap", 8)
    assert deploy("vapoursynth", model, "-o", tmp_path, "--overwrite", *tiles) == 0
    whole = np.clip(Session(model, "ort-cpu")(wide), 0, 1)
    assert np.abs(frames(script, wide, tmp_path) - whole).mean() < 1e-3


@pytest.mark.full
def test_vapoursynth_reads_a_video(tmp_path: Path, upscaler: Path) -> None:
    """YUV to YUV, twice as large; each frame belongs to its source frame."""
    python = interpreter()
    probe = [python, "-c", "import vapoursynth as vs; vs.core.bs"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no source filter: pip install vapoursynth-bestsource")
    assert deploy("vapoursynth", upscaler, "-o", tmp_path) == 0
    video = save_video(tmp_path / "in.mp4", [0, 3600, 7200])
    command = [python, VAPOURSYNTH, tmp_path / "twice" / "twice.vpy", video, tmp_path / "out.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    source, large = np.load(tmp_path / "out.npy.source.npy"), np.load(tmp_path / "out.npy")
    assert (source.shape, large.shape) == ((3, 24, 32), (3, 48, 64))
    difference = np.abs(large.astype(int) - source.repeat(2, 1).repeat(2, 2).astype(int))
    assert difference.max() <= 3  # chroma is enlarged by another filter, and rounded twice


def test_the_help_says_what_a_flag_means_to_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy("--help") == 0
    usage = " ".join(capsys.readouterr().out.split())
    assert (
        "triton: side of a tile, in input pixels (default: 0, chosen by the free memory); " in usage
    )
    assert "vapoursynth: side of a tile, in input pixels (default: 0, whole frames)" in usage


def node(folder: Path) -> ModuleType:
    """Import a folder of nodes like ComfyUI does."""
    spec = importlib.util.spec_from_file_location("custom", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def comfyui(monkeypatch: pytest.MonkeyPatch) -> StubOfComfyUI:
    stub = StubOfComfyUI()
    stub.install(monkeypatch)
    return stub


def test_comfyui_gets_a_node(upscaler: Path, tmp_path: Path, comfyui: StubOfComfyUI) -> None:
    """With a stub of ComfyUI's interface, not ComfyUI itself."""
    assert deploy("comfyui", upscaler, "-o", tmp_path / "custom_nodes") == 0
    module = node(tmp_path / "custom_nodes" / "nystra-twice")
    (kind,) = module.NODE_CLASS_MAPPINGS.values()
    assert list(module.NODE_DISPLAY_NAME_MAPPINGS.values()) == ["twice (2x)"]
    taken = kind.INPUT_TYPES()["required"]
    values = {name: how[1]["default"] for name, how in taken.items() if len(how) > 1}
    image = torch.rand(2, 20, 24, 3)
    (made,) = getattr(kind(), kind.FUNCTION)(image=image, **values)
    assert (made.shape, made.dtype) == ((2, 40, 48, 3), image.dtype)
    expected = image.repeat_interleave(2, 1).repeat_interleave(2, 2)
    torch.testing.assert_close(made, expected)
    assert comfyui.steps == [(1, 2), (2, 2)]
    comfyui.steps.clear()
    (tiled,) = kind().restore(torch.cat([image, image[..., :1]], 3), 16, 4, "ort-cpu")
    torch.testing.assert_close(tiled[..., :3], expected)
    assert tiled.shape == (2, 40, 48, 4)  # with alpha, as `nystra run` keeps it
    wide = image[..., :1].movedim(3, 1)
    alpha = F.interpolate(wide, scale_factor=2, mode="bilinear").movedim(1, 3)
    assert (tiled[..., 3:] - alpha).abs().mean() < 0.1
    assert comfyui.steps == [(done, 8) for done in range(1, 9)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_comfyui_images_of_other_types(
    dtype: torch.dtype, upscaler: Path, tmp_path: Path, comfyui: StubOfComfyUI
) -> None:
    assert deploy("comfyui", upscaler, "-o", tmp_path) == 0
    (kind,) = node(tmp_path / "nystra-twice").NODE_CLASS_MAPPINGS.values()
    image = torch.rand(1, 20, 24, 3).to(dtype)
    (made,) = kind().restore(image, 0, 0, "ort-cpu")
    assert made.dtype == dtype
    torch.testing.assert_close(made, image.repeat_interleave(2, 1).repeat_interleave(2, 2))


def test_comfyui_cancels_between_tiles(
    upscaler: Path, tmp_path: Path, comfyui: StubOfComfyUI
) -> None:
    assert deploy("comfyui", upscaler, "-o", tmp_path) == 0
    (kind,) = node(tmp_path / "nystra-twice").NODE_CLASS_MAPPINGS.values()
    comfyui.cancel_after = 3
    with pytest.raises(Interrupted):
        kind().restore(torch.rand(2, 32, 32, 3), 16, 0, "ort-cpu")
    assert len(comfyui.steps) == 3


def test_comfyui_needs_one_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_upscaler(tmp_path / "two words.onnx", metadata=nystra_metadata())
    assert deploy("comfyui", path, "-o", tmp_path) == 2
    assert "expected letters, digits" in capsys.readouterr().err
    assert deploy("comfyui", path, "-o", tmp_path, "--name", "words") == 0


@pytest.mark.full
def test_the_gate_knows_the_hosts(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An export passes both; a wrong type and a missing body are found."""
    model = swinir_files(tmp_path_factory) / "model.onnx"
    given = ("--baseline", tmp_path / "baseline.json", "--hosts", "chainner,vapoursynth")
    command = ["check", model, *given, "--update", "--json"]
    assert main([str(argument) for argument in command]) == 0
    items = {item["item"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    assert items["host chainner"]["state"] == items["host vapoursynth"]["state"] == "passed"
    assert (
        main(["check", str(model), "--baseline", "none.json", "--update", "--hosts", "gimp"]) == 2
    )
    assert "unknown host 'gimp': expected one of chainner" in capsys.readouterr().err
    wrong = save_upscaler(tmp_path / "wrong.onnx", metadata=nystra_metadata())
    graph = onnx.load(wrong)
    graph.graph.node[1].op_type = "Equal"  # gives booleans, the output is a float
    graph.graph.node.append(helper.make_node("Cast", ["output"], ["cast"], to=1))
    onnx.save(graph, wrong)
    right = Session(model)
    object.__setattr__(right, "path", wrong)
    assert any("strict shape inference" in text for text in chainner_problems(right))
    bare = Session.__new__(Session)
    operator = Session(save_operator(tmp_path / "o.onnx", body=True))
    bare.__dict__.update(operator.__dict__)
    bare.path = save_operator(tmp_path / "bare.onnx", body=False)
    assert any("have no bodies" in text for text in chainner_problems(bare))


class Interrupted(Exception):  # noqa: N818  # ComfyUI's is no error either
    """The user cancelled."""


class StubOfComfyUI:
    """The reports of a node.

    Attributes:
        steps: (done, all) of each report to the progress bar.
        cancel_after: The user cancels after so many reports; None: never.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.cancel_after: int | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Install the modules that nodes import."""
        stub = self

        class ProgressBar:
            def __init__(self, total: int) -> None:
                self.total = total

            def update_absolute(self, value: int, total: int | None = None) -> None:
                stub.steps.append((value, total or self.total))

        def throw() -> None:
            if stub.cancel_after is not None and len(stub.steps) >= stub.cancel_after:
                raise Interrupted

        package = types.ModuleType("comfy")
        package.__path__ = []
        utils = types.ModuleType("comfy.utils")
        utils.ProgressBar = ProgressBar  # type: ignore[attr-defined]
        management = types.ModuleType("comfy.model_management")
        management.throw_exception_if_processing_interrupted = throw  # type: ignore[attr-defined]
        for module in (package, utils, management):
            monkeypatch.setitem(sys.modules, module.__name__, module)
