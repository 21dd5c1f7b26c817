"""A real Triton server on this machine, out of the wheel of nvidia-pytriton; no GPU is needed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nystra.plugins.library import LIBRARY_DIR_VARIABLE, library_path
from shared import PACKAGES, ROOT

_PATIENCE = 180.0
"""Seconds until it is ready: 7 at a load of 7 on two cores."""


def server_files() -> Path:
    """Return ``pytriton/tritonserver`` of the wheel, or skip the test.

    Its stub crashes with numpy 2, so the wheel may lie in a folder of its own that
    ``NYSTRA_PYTRITON`` names: ``pip install --no-deps --target FOLDER nvidia-pytriton 'numpy<2'``.
    """
    folder = os.environ.get("NYSTRA_PYTRITON")
    spec = importlib.util.find_spec("pytriton")
    if folder is None and spec is not None and spec.origin is not None:
        folder = str(Path(spec.origin).parent.parent)
    place = Path(folder or "/nonexistent", "pytriton", "tritonserver")
    if not (place / "bin" / "tritonserver").is_file():
        pytest.skip(
            "no Triton server: nvidia-pytriton is not here, see tests/helpers/triton_server.py"
        )
    return place


@contextmanager
def triton_server(repository: Path, work: Path) -> Iterator[dict[str, str]]:
    """Yield the addresses ``http`` and ``grpc`` of a server that is ready.

    Args:
        repository: The folder of models.
        work: An empty folder for the server's own files and its log.
    """
    files = server_files()
    libpython = sysconfig.get_config_var("LDLIBRARY")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("this Python is not built shared, and Triton's python backend loads libpython")
    shutil.copytree(files / "backends" / "python", work / "backends" / "python")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = "triton_python_backend_stub"
    shutil.copy(files / "python_backend_stubs" / version / stub, work / "backends" / "python")
    (work / "backends" / "python" / stub).chmod(0o755)
    _add_package(work / "backends" / "python" / "nystra", files.parent.parent)
    http, grpc, metrics = (_free_port() for _ in range(3))
    libraries = [files.parent.parent / "nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR")]
    assert libpython
    environment = {
        **os.environ,
        # The stub takes the environment of the first python3 on PATH: with numpy 2 in it, it dies.
        "PATH": os.pathsep.join([str(Path(sys.base_prefix, "bin")), os.defpath]),
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder) for folder in libraries),
        **_library_folder(),
    }
    command = [
        str(files / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={work / 'backends'}",
        *("--http-address=127.0.0.1", f"--http-port={http}"),
        *("--grpc-address=127.0.0.1", f"--grpc-port={grpc}"),
        *("--metrics-address=127.0.0.1", f"--metrics-port={metrics}"),
        *("--exit-on-error=true", "--exit-timeout-secs=5"),
    ]
    with (work / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{http}/v2/health/ready", server, work / "log")
        yield {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}"}
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _add_package(place: Path, first: Path) -> None:
    """Make nystra and its dependencies available to the stub.

    It ignores PYTHONPATH and editable installs, but searches its own folder: links there provide
    the package, which adds the paths of this process.

    Args:
        place: The package.
        first: The folder of the wheel, whose numpy takes precedence.
    """
    place.mkdir()
    packages = [str(first), *(path for path in sys.path if path.endswith("site-packages"))]
    text = f'import sys\n\nsys.path[:0] = {packages!r}\n__version__ = ""\n'
    (place / "__init__.py").write_text(text)
    for name in PACKAGES:
        (place / name).symlink_to(ROOT / name, target_is_directory=True)


def _library_folder() -> dict[str, str]:
    """Return the folder of this process's operator library as an environment variable."""
    try:
        return {LIBRARY_DIR_VARIABLE: str(library_path().parent)}
    except FileNotFoundError:
        return {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not start:\n{log.read_text()[-4000:]}")
