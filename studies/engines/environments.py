"""The environments of the engines: one table of pinned packages, created if they are missing."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MINUTES = 15


@dataclass(frozen=True)
class Environment:
    """A virtual environment.

    Attributes:
        pins: What pip installs; nothing: it is the one that runs the study.
        shares: The packages of the one that runs the study are seen too, behind its own.
        python: The interpreter that it is made by, where it is another one.
        without_dependencies: Installed after these by ``pip install --no-deps``.
    """

    pins: tuple[str, ...] = ()
    shares: bool = False
    python: str | None = None
    without_dependencies: tuple[str, ...] = ()


ENVIRONMENTS = {
    "nystra": Environment(),
    "onnxruntime": Environment(("onnxruntime==1.32.0",)),
    "ep-openvino": Environment(("onnxruntime==1.32.0", "onnxruntime-ep-openvino==1.8.1")),
    "openvino": Environment(("openvino==2026.4.1", "nncf==3.4.0")),
    "ncnn": Environment(("ncnn==1.0.20261020", "pnnx==20261020"), shares=True),
    "executorch": Environment(("executorch==1.5.1",), shares=True),
    "zentorch": Environment(
        ("zentorch==2.14.0.1",),
        shares=True,
        without_dependencies=("torch==2.14.1", "nvidia-curand==10.4.5.25"),
    ),
    "litert": Environment(
        ("onnx2tf==2.6.9",),
        python="python3.12",
        without_dependencies=("ai-edge-litert==2.3.0",),
    ),
}
"""By name. PyTorch and nystra are those of the environment that runs the study."""


class NoEnvironmentError(Exception):
    """An environment cannot be created; the text is the reason."""


def interpreter(name: str, folder: Path) -> Path:
    """Return the interpreter of an environment, which is created if it is missing.

    Args:
        name: In `ENVIRONMENTS`.
        folder: Of all environments.

    Raises:
        NoEnvironmentError: It cannot be made.
    """
    environment = ENVIRONMENTS[name]
    if not environment.pins:
        return Path(sys.executable)
    home = (folder / name).absolute()
    python, done = home / "bin" / "python", home / "installed"
    wanted = "\n".join(environment.pins + environment.without_dependencies)
    if done.exists() and done.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    _run([_base(environment), "-m", "venv", str(home)])
    if environment.shares:
        (packages,) = home.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
        (packages / "shared.pth").write_text("\n".join(lines) + "\n")
    install = [str(python), "-m", "pip", "install", "-q"]
    _run([*install, *environment.pins])
    if environment.without_dependencies:
        _run([*install, "--no-deps", *environment.without_dependencies])
    done.write_text(wanted)
    return python


def _base(environment: Environment) -> str:
    if environment.python is None:
        return sys.executable
    found = shutil.which(environment.python)
    if found is None:
        raise NoEnvironmentError(f"{environment.python} is not on the PATH")
    if subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode != 0:
        raise NoEnvironmentError(f"{found} does not start (a shim without that version?)")
    return found


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60 * MINUTES
        )
    except subprocess.TimeoutExpired:
        raise NoEnvironmentError(f"{' '.join(command[:4])} took over {MINUTES} minutes") from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise NoEnvironmentError(f"{' '.join(command)}: {last[0]}")
