"""The built native libraries: their paths, features, and which one a session takes.

The environment variable ``NYSTRA_LIBRARY_DIR`` names a folder to look in first: builds by hand,
with sanitizers, or copied to a machine next to the package.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ..core.errors import BackendUnavailableError, NystraError

__all__ = [
    "CPU_LIBRARY",
    "CUDA_LIBRARY",
    "INSTRUCTION_SETS",
    "LIBRARY_DIR_VARIABLE",
    "has_cuda_kernels",
    "is_supported",
    "isa",
    "library_path",
]

CPU_LIBRARY = "nystra_cpu"
"""The library with the C interface of the CPU kernels, as `library_path` names it."""

CUDA_LIBRARY = "nystra_onnxruntime_cuda"
"""The onnxruntime library with CPU and CUDA kernels, as `library_path` names it."""

INSTRUCTION_SETS = ("generic", "avx2", "avx512", "avx512_bf16", "amx")
"""The instruction sets the CPU kernels are built for (x86-64), slowest first."""

LIBRARY_DIR_VARIABLE = "NYSTRA_LIBRARY_DIR"
"""The environment variable for the folder that is searched first."""

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")

_CUDA_PROVIDER = b"CUDAExecutionProvider"

_BUILD_HINT = (
    "build it with a C++ compiler: pip install . (from a checkout of nystra), or "
    "cmake -S plugins -B build/dev && cmake --build build/dev "
    f"and set {LIBRARY_DIR_VARIABLE}=build/dev"
)
_GPU_BUILD = (
    "cmake -S plugins -B build/gpu && cmake --build build/gpu "
    f"and set {LIBRARY_DIR_VARIABLE}=build/gpu"
)
_CUDA_HINT = f"build it on a machine with nvcc (CUDACXX): {_GPU_BUILD}"
_TENSORRT_HINT = (
    "build it on a machine with nvcc (CUDACXX) and TensorRT's headers (TENSORRT_ROOT): "
    f"{_GPU_BUILD}"
)


def library_path(name: str = "nystra_onnxruntime") -> Path:
    """Return the path of the shared library ``name``.

    Args:
        name: Without prefix and suffix.

    Raises:
        FileNotFoundError: It was not built; the message says how to build it.
    """
    file = f"lib{name}{_SUFFIX}"
    candidates = [Path(str(resources.files(__package__).joinpath(file)))]
    if folder := os.environ.get(LIBRARY_DIR_VARIABLE):
        candidates.insert(0, Path(folder, file))
    for path in candidates:
        if path.is_file():
            return path.absolute()
    looked = " and ".join(str(path.parent) for path in candidates)
    raise FileNotFoundError(f"no {file} in {looked}; {_hint(name)}")


def _hint(name: str) -> str:
    if name == CUDA_LIBRARY:
        return _CUDA_HINT
    return _TENSORRT_HINT if name.startswith("nystra_trt") else _BUILD_HINT


def has_cuda_kernels(path: Path) -> bool:
    """Return whether an onnxruntime library has operators for the CUDA provider.

    Raises:
        OSError: The file cannot be read.
    """
    return _CUDA_PROVIDER in path.read_bytes()


def is_supported() -> bool:
    """Return whether the onnxruntime library exists and loads on this machine."""
    try:
        isa()
    except (BackendUnavailableError, OSError):
        return False
    return True


def isa() -> str:
    """Return the CPU instruction set the kernels use: one of ``INSTRUCTION_SETS``.

    It is chosen once per process: the best of this CPU, or that of ``NYSTRA_CPU_ISA``.

    Raises:
        FileNotFoundError: The library was not built.
        OSError: The library cannot be loaded on this machine.
        BackendUnavailableError: ``NYSTRA_CPU_ISA`` names a set that is unknown or that this CPU
            lacks.
    """
    function = ctypes.CDLL(str(library_path())).nystra_isa
    function.restype = ctypes.c_char_p
    chosen: bytes | None = function()
    if chosen is None:
        raise BackendUnavailableError(
            f"NYSTRA_CPU_ISA is {os.environ.get('NYSTRA_CPU_ISA')!r}; expected one of "
            f"{', '.join(INSTRUCTION_SETS)} that this CPU and this build have, or unset it"
        )
    return chosen.decode()


@dataclass(frozen=True)
class LibraryChoice:
    """A library to try.

    Attributes:
        path: The library, or None for none.
        reason: One sentence without a full stop that says why.
        required: The user named this one: failing to load it is an error.
        missing: The default library is needed, but not installed.
        refused: That library was tried, but does not support the model.
    """

    path: Path | None
    reason: str
    required: bool = False
    missing: bool = False
    refused: bool = False


def choose_library(
    library: str | Path | None,
    *,
    needed: bool,
    name: str = "nystra_onnxruntime",
    what: str = "operator library",
) -> LibraryChoice:
    """Choose the operator library for a model.

    Args:
        library: ``auto``, None or ``none``, or a path.
        needed: The model has nystra operators.
        name: The default library.
        what: It in words.

    Raises:
        NystraError: The path given is not a file.
    """
    if library is None or library == "none":
        return LibraryChoice(None, f"the {what} is disabled (library none)")
    if library != "auto":
        path = Path(library)
        if not path.is_file():
            raise NystraError(
                f"no {what} at {path}: expected auto, none or the path of a built "
                f"lib{name}; see docs/engines.md"
            )
        return LibraryChoice(path.resolve(), f"the {what} {path} was requested", True)
    if not needed:
        return LibraryChoice(None, "the model has no nystra operators, so no library is needed")
    try:
        path = Path(library_path(name))
    except (ImportError, FileNotFoundError, NystraError) as error:
        text = str(error).strip().rstrip(".")
        reason = f"the {what} is not built ({text})"
        return LibraryChoice(None, reason, missing=True)
    return LibraryChoice(path, f"the {what} {path} is loaded")
