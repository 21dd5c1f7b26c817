"""TensorRT and TensorRT-RTX through Polygraphy: what is installed, and how it is loaded.

Nothing is imported early. A process has one of the two, since Polygraphy chooses at its import.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError
from ...core.installation import find, installed, not_installed

TENSORRT, RTX = "tensorrt", "tensorrt-rtx"
"""The names of the builders, as backends and on the command line."""

FLAGS = ("NO_TF32", "STRONGLY_TYPED")
"""How every engine is built, for its record: an engine built with other settings is not used.

Types are those of the file, and float32 is float32: TensorRT rounds the factors of float32 products
to TF32 (10 bits of mantissa) by default, in strongly typed networks too."""

_LEVEL = "LEVEL_"


@dataclass(frozen=True)
class Builder:
    """What is known of a builder before it is imported.

    Attributes:
        title: Its name in sentences.
        modules: The first one that is installed is imported.
        targets: The GPUs that it builds for ahead of time on a machine without one; none: it builds
            for the GPU of its machine alone.
        note: What is added to the message that it is not installed.
    """

    title: str
    modules: tuple[str, ...]
    targets: tuple[str, ...] = ()
    note: str = ""


BUILDERS = {
    TENSORRT: Builder(
        "TensorRT",
        ("tensorrt",),
        note=" (a build also needs an NVIDIA GPU; nystra build --dry-run needs only the TensorRT "
        "package)",
    ),
    # It also supports sm75, for which it has no float32 matrix products; it does not support SM 90
    # (H100, H200).
    RTX: Builder(
        "TensorRT-RTX",
        ("tensorrt_rtx", "tensorrt_rtx_bindings"),
        ("sm80", "sm86", "sm89", "sm120", "sm121"),
    ),
}


def flags_at(level: int | None) -> list[str]:
    """Return the flags of an engine's record: `FLAGS`, and the builder's level if one is set."""
    return [*FLAGS, *([] if level is None else [f"{_LEVEL}{level}"])]


def built_as_now(flags: Sequence[str]) -> bool:
    """Return whether an engine of these flags has the precision of current engines."""
    return {flag for flag in flags if not flag.startswith(_LEVEL)} == set(FLAGS)


class Log(logging.Handler):
    """What TensorRT and Polygraphy log in a process.

    Attributes:
        errors: TensorRT's lines of severity error and above.
        watch: Called with every line, whatever its severity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.watch: Callable[[str], None] = lambda _line: None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        line = record.getMessage()
        self.watch(line)
        if logging.ERROR <= record.levelno < logging.CRITICAL:  # critical: Polygraphy's summary
            self.errors.append(line)


@dataclass(frozen=True)
class Toolkit:
    """A loaded builder.

    Attributes:
        name: ``tensorrt`` or ``tensorrt-rtx``.
        module: Its Python module.
        version: Its full version.
        polygraphy: ``polygraphy.backend.trt``, for this builder.
    """

    name: str
    module: Any
    version: str
    polygraphy: Any
    _loaded: set[Path] = field(default_factory=set)

    def keep_log(self) -> Log:
        """Keep the log of this process from now on, down to TensorRT's verbose lines."""
        log, logger = Log(), polygraphy_logger()
        logger.module_severity = logger.EXTRA_VERBOSE
        logger.python_logger.setLevel(1)
        logger.python_logger.propagate = False
        logger.python_logger.addHandler(log)
        return log

    def load_plugins(self, library: Path) -> None:
        """Register the plugins of a library, once.

        Polygraphy opens libraries only, and ours registers its plugins when TensorRT loads it.

        Raises:
            NystraError: It registered none; TensorRT's log says why.
        """
        if library in self._loaded:
            return
        registry = self.module.get_plugin_registry()
        before = len(registry.all_creators)
        registry.load_library(str(library))
        if len(registry.all_creators) == before:
            raise NystraError(f"{self.name} cannot load the plugin library {library}")
        self._loaded.add(library)


def find_builder(name: str) -> Builder:
    """Return a builder, installed or not.

    Raises:
        NystraError: None has this name.
    """
    if name not in BUILDERS:
        raise NystraError(f"{name!r} builds no engines: expected {' or '.join(BUILDERS)}")
    return BUILDERS[name]


def require(name: str) -> None:
    """Raise `BackendUnavailableError`, with what to install, unless a builder is installed."""
    builder = find_builder(name)
    if not any(map(installed, builder.modules)):
        raise BackendUnavailableError(not_installed(builder.title, name) + builder.note)
    if not installed("polygraphy"):
        raise BackendUnavailableError(not_installed("Polygraphy", name))


def polygraphy_logger() -> Any:
    """Return Polygraphy's logger, which then prints nothing to stdout.

    Raises:
        ModuleNotFoundError: Polygraphy is not installed.
    """
    logger = import_module("polygraphy.logger").G_LOGGER
    logger.use_python_logging_system = True
    logger.colors = logger.letter = False
    return logger


@functools.cache
def load(name: str) -> Toolkit:
    """Import a builder and Polygraphy for it; the same object every time.

    Raises:
        BackendUnavailableError: One is not installed, its libraries cannot be loaded, or this
            process has imported Polygraphy for the other builder.
    """
    require(name)
    config: Any = import_module("polygraphy.config")
    if (name == RTX) != config.USE_TENSORRT_RTX and "polygraphy.datatype" in sys.modules:
        raise BackendUnavailableError(
            f"Polygraphy serves one builder in a process, and this one has it for another: use "
            f"{name} in another process"
        )
    config.USE_TENSORRT_RTX = name == RTX
    modules = BUILDERS[name].modules
    module = next(candidate for candidate in modules if installed(candidate))
    try:
        library = import_module(module)
        version = str(library.__version__)
    except (ImportError, OSError, AttributeError) as error:
        raise BackendUnavailableError(f"{module} cannot be loaded: {error}") from error
    sys.modules.setdefault(modules[0], library)
    polygraphy_logger()
    return Toolkit(name, library, version, import_module("polygraphy.backend.trt"))


def dtype_name(kind: Any) -> str:
    """Return numpy's name of a type of the loaded builder, such as ``float16``; or ``bfloat16``."""
    return str(import_module("polygraphy.datatype").DataType.from_dtype(kind, "tensorrt"))


def by_number(target: str) -> tuple[int, str]:
    """Order targets: sm75, sm86, sm120."""
    return len(target), target


def loader_links(name: str, folder: Path) -> dict[str, str]:
    """Return the environment a process needs to load the builder's libraries.

    TensorRT-RTX looks for ``libtensorrt_rtx.so`` at the first plugin, and its wheels have only
    ``libtensorrt_rtx.so.1``: a link to it is made in ``folder``.
    """
    spec = find("tensorrt_rtx_libs") if name == RTX else None
    if spec is None or spec.origin is None:
        return {}
    libraries = Path(spec.origin).parent
    versions = sorted(libraries.glob("libtensorrt_rtx.so.*"))
    if not versions or (libraries / "libtensorrt_rtx.so").exists():
        return {}
    (folder / "libtensorrt_rtx.so").symlink_to(versions[-1].resolve())
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *([before] if before else [])])}
