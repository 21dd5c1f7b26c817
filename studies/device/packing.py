"""The files for a device, packed on a machine without one.

Three bundles: ``kernels`` (the wheel with the CUDA libraries, the conformance host, the references
of its rows, exported files), ``ort`` (onnxruntime-gpu) and ``tensorrt``, the machine code of other
GPUs made zeros. Needs g++, network, and the scripts that bring nvcc and TensorRT
(NYSTRA_SDK_TOOLS, as `.ci/tensorrt`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .pieces import cut
from .prune import prune_file

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "gpu"
SDK = ROOT / "build" / "sdk"
TENSORRT = "10.15.1.29"
"""Of the bindings; the libraries are those of `tensorrt_sdk.sh 10`."""

OF_KERNELS = ("lazy-loader", "ml-dtypes")
OF_ORT = ("onnxruntime-gpu", "flatbuffers", "packaging", "protobuf", "numpy", "polygraphy")
"""What pip brings; numpy goes with ``ort``, since the machine's own is likely there."""

FORMS = {
    "full": "--attn full",
    "nystra": "--attn nystra",
    "cluster": "--attn cluster",
    "standard": "--attn full --target standard",  # ONNX's Attention, which TensorRT fuses itself
}
PRECISIONS = ("fp16", "fp32")
CHECKPOINT = "swinir_x2_w16"


def pack(
    folder: Path, architecture: int, python: str, bundles: Sequence[str], own: Sequence[int]
) -> int:
    """Write the pieces of the bundles; return 0.

    Args:
        folder: Gets them, and the bundles while they are made (``work``).
        architecture: Whose machine code of onnxruntime and TensorRT stays, such as 90.
        own: What nystra's kernels are compiled for.
        python: The device's, such as ``3.12``.
        bundles: Of ``kernels``, ``ort``, ``tensorrt``.
    """
    makers: dict[str, Callable[[Path], None]] = {
        "kernels": lambda target: _kernels(target, python, own),
        "ort": lambda target: _ort(target, architecture, python),
        "tensorrt": lambda target: _tensorrt(target, architecture, python),
    }
    unknown = sorted(set(bundles) - set(makers))
    if unknown:
        raise SystemExit(f"no bundle {', '.join(unknown)}; expected some of {', '.join(makers)}")
    commit = _run(["git", "rev-parse", "HEAD"]).strip()
    for name in bundles:
        start = time.monotonic()
        target = folder / "work" / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        makers[name](target)
        packed = hashlib.sha256(f"{commit} {time.time()}".encode()).hexdigest()[:12]
        about = {"packed": packed, "commit": commit, "python": python, "sm": architecture}
        found = cut(target, folder, about)
        size = sum((piece / "part").stat().st_size for piece in found) / 1e6
        seconds = time.monotonic() - start
        print(f"{name}: {len(found)} pieces, {size:.1f} MB, {seconds:.0f} s", flush=True)
        shutil.rmtree(target)
    return 0


def _kernels(target: Path, python: str, architectures: Sequence[int]) -> None:
    wheel = build_wheel(architectures)
    _unzip([wheel], target / "site")
    _bring(OF_KERNELS, python, target / "site")
    (target / "bin").mkdir()
    shutil.copy(BUILD / "nystra_trt_host", target / "bin")
    table = ROOT / "tests" / "plugins" / "enqueue_table.py"
    helpers = os.pathsep.join(str(ROOT / "tests" / part) for part in ("plugins", "helpers"))
    _run(
        [sys.executable, table, "expected", target / "expected"],
        {"PYTHONPATH": os.pathsep.join(filter(None, [helpers, os.environ.get("PYTHONPATH")]))},
    )
    (target / "models").mkdir()
    for form, options in FORMS.items():
        for precision in PRECISIONS:
            file = target / "models" / f"{CHECKPOINT}_{form}_{precision}.onnx"
            words = ["nystra", "export", CHECKPOINT, "-o", file, *options.split()]
            _run([*words, "--precision", precision, "--no-speed"])


def build_wheel(architectures: Sequence[int]) -> Path:
    """Build the wheel with the CUDA libraries, and the conformance host."""
    _bring_sdk()
    compiler = SDK / "nvcc" / "nvidia" / "cu13" / "bin" / "nvcc"
    wheels = BUILD.with_name("gpu_wheel")
    for old in wheels.glob("*.whl"):
        old.unlink()
    settings = {
        "build-dir": BUILD,
        "cmake.define.NYSTRA_CUDA_ARCHITECTURES": ";".join(f"{one}-real" for one in architectures),
        "cmake.define.NYSTRA_TENSORRT": "ON",
        "cmake.define.NYSTRA_TENSORRT_TESTS": "ON",
    }
    options = [word for name, value in settings.items() for word in ("-C", f"{name}={value}")]
    _run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, *options, ROOT],
        {"CUDACXX": str(compiler), "TENSORRT_ROOT": str(SDK / "tensorrt10")},
    )
    (wheel,) = wheels.glob("*.whl")
    return wheel


def _ort(target: Path, architecture: int, python: str) -> None:
    site = target / "site"
    _bring(OF_ORT, python, site)
    for name in ("libonnxruntime_providers_tensorrt.so",):  # TensorRT is run by itself
        for file in site.rglob(name):
            file.unlink()
    _prune(site.rglob("libonnxruntime_providers_cuda.so"), architecture)


def _tensorrt(target: Path, architecture: int, python: str) -> None:
    _bring_sdk()
    libraries = target / "lib"
    shutil.copytree(SDK / "tensorrt10" / "lib", libraries, symlinks=True)
    for file in libraries.glob("libnvinfer_vc_plugin*"):
        file.unlink()
    _prune((file for file in libraries.iterdir() if not file.is_symlink()), architecture)
    _bind(target / "site", python)
    here = target / "site-here"  # the device's Python may be another one
    _bind(here, f"{sys.version_info.major}.{sys.version_info.minor}")
    print("TensorRT as packed:", make_parser(here, libraries), flush=True)
    shutil.rmtree(here)


def _bind(site: Path, python: str) -> None:
    """Unpack the bindings for a Python next to the folder of the libraries."""
    _bring([f"tensorrt-cu13-bindings=={TENSORRT}"], python, site)
    package = site / "tensorrt"
    package.mkdir(exist_ok=True)
    # As NVIDIA's own wheels: the libraries are loaded before the bindings.
    (package / "__init__.py").write_text(_TENSORRT_PACKAGE)


def make_parser(site: Path, libraries: Path) -> str:
    """Make a builder, a network and a parser of TensorRT, in a process without a GPU.

    Args:
        site: Has the bindings for this Python.
        libraries: TensorRT's.

    Returns:
        What was made, in JSON.

    Raises:
        SystemExit: A library cannot be loaded, or makes none of them.
    """
    own = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    environment = {
        "PYTHONPATH": os.pathsep.join([str(site), *own]),
        "LD_LIBRARY_PATH": str(libraries),
        "TRT_INTERNAL_OPTIONS": "--cpu_only=1",
    }
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "probe.json"
        _run([sys.executable, "-m", "studies.device.probe", found, "--parser"], environment)
        return found.read_text()


_TENSORRT_PACKAGE = """\
import ctypes
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2] / "lib"
for _name in ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"):
    ctypes.CDLL(str(_FOLDER / _name), ctypes.RTLD_GLOBAL)

from tensorrt_bindings import *
from tensorrt_bindings import __version__
"""


def _prune(files: Iterable[Path], architecture: int) -> None:
    for file in list(files):
        pruned = file.with_name(f"{file.name}.pruned")
        of = prune_file(file, pruned, architecture)
        pruned.replace(file)
        print(f"{file.name}: {of.zeroed / 1e6:.0f} MB of other GPUs' code made zeros", flush=True)


def _bring(packages: Sequence[str], python: str, site: Path) -> None:
    """Unpack wheels for the device's Python into a folder."""
    wheels = site.parent / "wheels"
    words = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    words += ["--python-version", python, "--implementation", "cp", "-d", str(wheels)]
    for platform in ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux_2_27_x86_64"):
        words += ["--platform", platform]
    _run([sys.executable, *words, *packages])
    _unzip(wheels.glob("*.whl"), site)
    shutil.rmtree(wheels)


def _unzip(wheels: Iterable[Path], site: Path) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)


def _bring_sdk() -> None:
    if not (SDK / "tensorrt10" / "include" / "NvInferRuntime.h").is_file():
        _run([ROOT / ".ci" / "tensorrt", "build"])
    if not (SDK / "nvcc").is_dir():
        raise SystemExit("no nvcc: .ci/tensorrt brings it where NYSTRA_SDK_TOOLS names its scripts")


def _run(words: Iterable[str | Path], more: dict[str, str] | None = None) -> str:
    text = [str(word) for word in words]
    print("$", " ".join(text)[:200], flush=True)
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(
        text, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{text[0]} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout
