"""The image of ``deploy/containers/cpu.Dockerfile``, built and run by Podman.

Where the base image cannot be pulled, Debian with its own Python, by debootstrap, stands for it.
``NYSTRA_PODMAN_BUILD`` holds more flags for ``podman build``, such as what pip has to know here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.models import pretrained_path
from nystra.runtime import RunOptions, read_image, run_images
from shared import ROOT

pytestmark = pytest.mark.release

DOCKERFILE = "deploy/containers/cpu.Dockerfile"
NAME, ADDRESS = "nystra-tested", "http://127.0.0.1:8000"
PHOTOGRAPH = ROOT / "export" / "photographs" / "coffee.png"


def podman(*arguments: object) -> str:
    """Return what it prints."""
    command = ["podman", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


def does(*arguments: str) -> bool:
    """Return whether a command succeeds."""
    return subprocess.run(["podman", *arguments], capture_output=True).returncode == 0


def stand_in(base: str, folder: Path) -> list[str]:
    """Make what stands for an image, of Debian's smallest root and its Python, if it is not there.

    Returns:
        The flags of ``podman build`` with which it does so.
    """
    made = f"{NAME}-base"
    if not does("image", "exists", made):
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            pytest.skip(f"{base} cannot be pulled; debootstrap, run by root, makes a stand-in")
        include = "--include=ca-certificates,python3,python3-venv"
        suite = base.rpartition("-")[2]
        command = ["debootstrap", "--variant=minbase", include, suite, str(folder / "root")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (folder / "root" / "usr" / "bin" / "python").symlink_to("python3")
        archive = folder / "root.tar"
        subprocess.run(["tar", "-C", str(folder / "root"), "-cf", str(archive), "."], check=True)
        podman("import", archive, made)
        shutil.rmtree(folder)
    return [f"--build-context={base}=container-image://localhost/{made}"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("podman") is None:
        pytest.skip("no podman on this machine")
    (base,) = set(re.findall(r"^FROM (\S+)", (ROOT / DOCKERFILE).read_text(), re.M))
    how = ["--format=docker", "--network=host"]  # OCI's format knows no health check
    if not does("pull", "--quiet", f"docker.io/library/{base}"):
        how += stand_in(base, tmp_path_factory.mktemp("base"))
    how += shlex.split(os.environ.get("NYSTRA_PODMAN_BUILD", ""))
    podman("build", *how, "-f", DOCKERFILE, "-t", NAME, ".")
    return NAME


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    checkpoint = str(pretrained_path("swinir_x2_w16"))
    assert (
        main(["export", checkpoint, "--attn", "nystra", "-o", str(path), "--no-speed", "-q"]) == 0
    )
    path.chmod(0o644)
    return path


@contextmanager
def served(image: str, model: Path) -> Iterator[None]:
    """Run the image as the head of its Dockerfile says, its port on this machine."""
    how = ["--read-only", "--tmpfs=/tmp", "--network=host", "--cap-drop=ALL"]
    mount = f"--volume={model}:/models/model.onnx:ro"
    podman("run", "--detach", "--name", NAME, *how, mount, image)
    try:
        yield
    finally:
        podman("rm", "--force", NAME)


def test_the_image_serves(image: str, model: Path, tmp_path: Path) -> None:
    with served(image, model):
        end = time.monotonic() + 60
        while not does("healthcheck", "run", NAME):
            assert time.monotonic() < end, podman("logs", NAME)
            time.sleep(0.5)
        assert podman("exec", NAME, "id", "-u") == "10001"
        assert not does("exec", NAME, "touch", "/opt/nystra/new")
        assert not does("exec", NAME, "python", "-c", "import torch")
        assert "kernel" in podman("exec", NAME, "nystra", "inspect", "/models/model.onnx")
        asked = urllib.request.Request(f"{ADDRESS}/v1/restore?tile=256", PHOTOGRAPH.read_bytes())
        with urllib.request.urlopen(asked, timeout=120) as answer:
            (tmp_path / "there.png").write_bytes(answer.read())
        podman("stop", "--time=30", NAME)
        assert podman("inspect", "--format={{.State.ExitCode}}", NAME) == "0"
    run_images(model, PHOTOGRAPH, tmp_path / "here.png", RunOptions(tile=256, quiet=True))
    here, there = (read_image(tmp_path / f"{place}.png").pixels for place in ("here", "there"))
    np.testing.assert_allclose(there, here, rtol=0, atol=1.01 / 255)  # another onnxruntime
