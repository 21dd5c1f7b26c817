"""Each extra installs what its commands need, and the pages name existing extras."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from native_nodes import library
from nystra.core.installation import install_command, install_module
from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata, save_upscaler
from shared import PACKAGES, ROOT
from small_swinir import state_of
from video_files import save_video

EXTRAS = set(metadata("nystra").get_all("Provides-Extra") or [])
PARTS = {"images", "http", "docs", "test"}  # with which no command of nystra runs by itself
ELSEWHERE = {  # extras whose projects are too large for the tests, or need other machines
    "gpu": "onnxruntime",
    "gpu-serve": "onnxruntime",
    "gpu-video": "onnxruntime",
    "tensorrt": "tensorrt",
    "tensorrt-rtx": "tensorrt_rtx",
    "ray": "ray",
    "ray-serve": "ray",
    "report": "matplotlib",
}
COMMANDS = {
    "ort": ["run", "model.onnx", "-i", "in.png", "-o", "out.png"],
    "openvino": ["run", "model.onnx", "-i", "in.png", "-o", "o.png", "--backend", "openvino"],
    "video": ["run", "model.onnx", "-i", "clip.mp4", "-o", "out.mp4"],
    "ray": ["run", "model.onnx", "-i", "in.png", "-o", "r.png", "--ray", "local", "--workers", "1"],
    "report": ["bench", "model.onnx", "--sizes", "8x8,16x16", "--runs", "3", "--plot", "b.png"],
    "layerwise": ["validate", "exported.onnx", "--layerwise"],
    "export": ["export", "tiny.safetensors", "-o", "exported.onnx", "--no-speed"],
}
SLOW = {
    "layerwise": "release",
    **dict.fromkeys(("export", "openvino", "ray", "report", "video"), "full"),
}


def nystra(extra: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "only_extra", extra, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "helpers")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, an image, a video and a checkpoint."""
    place = tmp_path_factory.mktemp("extras")
    save_upscaler(place / "model.onnx", metadata=nystra_metadata())
    gray = ImageData(np.full((8, 8, 3), 90, np.uint8))
    write_image(place / "in.png", gray)
    if find_spec("av") is not None:
        save_video(place / "clip.mp4", [0, 3600, 7200])
    save_file(state_of(), place / "tiny.safetensors")
    return place


@pytest.mark.full
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(name, marks=getattr(pytest.mark, SLOW[name]) if name in SLOW else [])
        for name in sorted(COMMANDS)
    ],
)
def test_an_extra_is_enough_for_its_command(extra: str, folder: Path) -> None:
    if extra in ELSEWHERE and find_spec(ELSEWHERE[extra]) is None:
        pytest.skip(f"{ELSEWHERE[extra]} is not installed")
    if extra == "layerwise":
        test_an_extra_is_enough_for_its_command("export", folder)
        library()  # the layers are compared with those of the kernels
    done = subprocess.run(
        nystra(extra, *COMMANDS[extra]),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_serve_serves_with_its_extra_alone(folder: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    command = nystra("serve", "serve", "model.onnx", "--port", "0")
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stderr=subprocess.STDOUT, stdout=subprocess.PIPE
    ) as service:
        assert service.stdout is not None
        os.set_blocking(service.stdout.fileno(), False)
        said, deadline = b"", time.monotonic() + 60
        while b"http://" not in said and service.poll() is None and time.monotonic() < deadline:
            said += service.stdout.read() or b""
            time.sleep(0.05)
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0, said
    assert b"http://" in said


@pytest.mark.full
def test_a_command_without_its_extra_says_what_is_missing(folder: Path) -> None:
    """Negative control: hidden projects are really hidden."""
    done = subprocess.run(
        nystra("images", *COMMANDS["ort"]),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "onnxruntime is not installed: pip install" in done.stderr


def test_every_extra_has_a_command() -> None:
    assert {*COMMANDS, *PARTS, *ELSEWHERE, "serve", "spandrel"} == EXTRAS


def test_a_missing_extra_is_installed_by_its_projects() -> None:
    """nystra's own name would need an index that has it."""
    for extra in EXTRAS:
        command = install_command(extra)
        assert re.fullmatch(r"pip install( --force-reinstall)?( '[^' ]+')+", command), command
        assert "nystra" not in command
    assert re.search(r"'onnxruntime[!>]=", install_command("ort"))
    assert install_module("cv2") == "pip install cv2, unless its package has another name"
    assert install_command("none") == "pip install '.[none]' in a checkout of nystra"


def test_install_lines_work_from_a_checkout_or_a_wheel() -> None:
    """No index has nystra, so a page first says where it comes from."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "mkdocs.yml"]
    pages += [*(ROOT / "studies" / "measurements").glob("*.md"), *(ROOT / "deploy").rglob("*file")]
    lines = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        installed = re.search(r"pip install --no-deps --index-url \S+/simple nystra\b", text)
        for found in re.finditer(r"pip install[^`\n]*?'([^']*\[[^']*\])'", text):
            given = found[1]
            place, _, extras = given.rstrip("]").partition("[")
            if place in ("onnxruntime-gpu", "tritonclient"):
                continue
            lines += 1
            there = installed is not None and installed.start() < found.start()
            wanted = place == "." or place.endswith(".whl") or (place == "nystra" and there)
            assert wanted, (page.name, given)
            assert set(extras.split(",")) <= EXTRAS | {"EXTRA"}, (page.name, given)
    assert lines > 10
    for folder in PACKAGES:
        for path in (ROOT / folder).rglob("*.py"):
            assert "nystra[" not in path.read_text(encoding="utf-8"), path
