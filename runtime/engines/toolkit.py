"""The two engine builders: what is installed, and how it is loaded. Nothing is imported early."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError
from ...core.installation import not_installed

TENSORRT, RTX = "tensorrt", "tensorrt-rtx"
"""The names of the builders, as backends and on the command line."""

TARGETS = ("sm80", "sm86", "sm89", "sm120", "sm121")
"""The default targets of TensorRT-RTX on a machine without a GPU.

It also supports sm75, for which it has no float32 matrix products; it does not support SM 90 (H100,
H200)."""

FLAGS = ("NO_TF32", "STRONGLY_TYPED")
"""How every engine is built, for its record: an engine built with other settings is not used.

Types are those of the file, and float32 is float32: TensorRT rounds the factors of float32 products
to TF32 (10 bits of mantissa) by default, in strongly typed networks too."""

_LEVEL = "LEVEL_"


def flags_at(level: int | None) -> list[str]:
    """Return the flags of an engine's record: `FLAGS`, and the builder's level if one is set."""
    return [*FLAGS, *([] if level is None else [f"{_LEVEL}{level}"])]


def built_as_now(flags: Sequence[str]) -> bool:
    """Return whether an engine of these flags has the precision of current engines."""
    return {flag for flag in flags if not flag.startswith(_LEVEL)} == set(FLAGS)


CPU_ONLY = {"TRT_INTERNAL_OPTIONS": "--cpu_only=1"}
"""Builder and parser of TensorRT without a driver, as NVIDIA's own ``trtexec --cpuOnly``."""

_MODULES = {TENSORRT: ("tensorrt",), RTX: ("tensorrt_rtx", "tensorrt_rtx_bindings")}
_TITLES = {TENSORRT: "TensorRT", RTX: "TensorRT-RTX"}
_BESIDES = {
    TENSORRT: " (a build also needs an NVIDIA GPU; nystra build "
    "--dry-run needs only the TensorRT package)"
}


@dataclass(frozen=True)
class Toolkit:
    """An installed builder.

    Attributes:
        name: ``tensorrt`` or ``tensorrt-rtx``.
        module: The Python module.
        version: Its full version.
    """

    name: str
    module: Any
    version: str

    @property
    def strongly_typed(self) -> int:
        """The flags of a network whose types are those of the file."""
        flag = getattr(self.module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        return 0 if flag is None else 1 << int(flag)


def check_name(name: str) -> None:
    """Raise `NystraError` unless a builder has this name."""
    if name not in _MODULES:
        raise NystraError(f"unknown backend {name!r}: engines are built by {TENSORRT} or {RTX}")


def installed(name: str) -> bool:
    """Return whether the builder's Python module is installed, without importing it."""
    return any(_find(module) is not None for module in _MODULES[name])


def require(name: str) -> None:
    """Raise `BackendUnavailableError`, with what to install, unless the builder is installed."""
    check_name(name)
    if not installed(name):
        missing = not_installed(_TITLES[name], name)
        raise BackendUnavailableError(missing + _BESIDES.get(name, ""))


def load(name: str) -> Toolkit:
    """Import a builder.

    Raises:
        BackendUnavailableError: It is not installed, or its libraries cannot be loaded.
    """
    require(name)
    module = next(candidate for candidate in _MODULES[name] if _find(candidate) is not None)
    try:
        library = import_module(module)
        version = str(library.__version__)
    except (ImportError, OSError, AttributeError) as error:
        raise BackendUnavailableError(f"{module} cannot be loaded: {error}") from error
    return Toolkit(name, library, version)


def by_number(target: str) -> tuple[int, str]:
    """Order targets: sm75, sm86, sm120."""
    return len(target), target


def loader_links(name: str, folder: Path) -> dict[str, str]:
    """Return the environment a process needs to load the builder's libraries.

    TensorRT-RTX looks for ``libtensorrt_rtx.so`` at the first plugin, and its wheels have only
    ``libtensorrt_rtx.so.1``: a link to it is made in ``folder``.
    """
    spec = _find("tensorrt_rtx_libs") if name == RTX else None
    if spec is None or spec.origin is None:
        return {}
    libraries = Path(spec.origin).parent
    versions = sorted(libraries.glob("libtensorrt_rtx.so.*"))
    if not versions or (libraries / "libtensorrt_rtx.so").exists():
        return {}
    (folder / "libtensorrt_rtx.so").symlink_to(versions[-1].resolve())
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *([before] if before else [])])}


def _find(module: str) -> Any:
    try:
        return find_spec(module)
    except (ImportError, ValueError):  # what find_spec makes of a module that is blocked
        return None
