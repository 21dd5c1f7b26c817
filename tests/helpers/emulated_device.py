"""The TensorRT plugins and their host with emulated kernels, for machines without a GPU.

``PYTHONPATH=tests/plugins python tests/helpers/emulated_device.py FOLDER`` builds both there. They
need TensorRT's headers (TENSORRT_ROOT), but neither nvcc nor a library of TensorRT or CUDA.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import emulator_build

ROOT = emulator_build.ROOT
PLUGINS = ROOT / "plugins" / "csrc" / "tensorrt"
HOST = ROOT / "tests" / "plugins" / "tensorrt_host"


def missing() -> str | None:
    """Return why it cannot be built here, or None."""
    headers = Path(os.environ.get("TENSORRT_ROOT", "/usr"), "include")
    if not (headers / "NvInferRuntime.h").is_file():
        return f"no NvInferRuntime.h in {headers}: set TENSORRT_ROOT"
    return emulator_build.missing()


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise emulator_build.EmulatorError(f"{' '.join(command)}\n{done.stderr}")


def build(folder: Path) -> Path:
    """Build ``libnystra_trt.so`` and ``nystra_trt_host``; return the folder.

    Raises:
        EmulatorError: g++ refused the sources.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kernels = shutil.copy(emulator_build.build("plain"), folder / "libnystra_emulated.so")
    headers = Path(os.environ.get("TENSORRT_ROOT", "/usr"), "include")
    flags = [
        *("-Itests/plugins/emulator_device", *emulator_build.FLAGS),
        *("-isystem", str(headers), "-O0", "-Wno-maybe-uninitialized"),
    ]
    plugins = [PLUGINS / f"{name}.cc" for name in ("attributes", "creators", "plugin")]
    plugins.append(PLUGINS / "test_limits.cc")
    host = [file for file in sorted(HOST.glob("*.cc")) if file.name != "faulty.cc"]
    linked = [str(kernels), "-Wl,-rpath,$ORIGIN", "-ldl"]
    for sources, output in (
        (plugins, ["-shared", "-o", str(folder / "libnystra_trt.so")]),
        (host, ["-o", str(folder / "nystra_trt_host")]),
    ):
        _compile(["g++", *flags, *map(str, sources), *linked, *output])
    return folder


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))  # noqa: T201
