"""TensorRT and TensorRT-RTX through Polygraphy: what is installed, and the process that calls them.

Nothing is imported early. A process has one of the two, since Polygraphy chooses at its import.
TensorRT ends its process in unexpected situations: a plugin without a format, a convolution to be
timed without a GPU. So all of it but running has a process of its own, whose death is an answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.installation import find, is_installed, not_installed
from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS, find_schema
from ..compiled.model import EngineModel
from ..model.onnx_graph import domain_nodes
from ..model.onnx_header import read_onnx_header
from ..workers.child import Child, ChildError

WORKER = f"{__package__}.worker"
_GRACE_SECONDS = 60.0
"""TensorRT needs time to release its resources, and logs while it does."""

_ERRORS = {1: ExportError, 3: BackendUnavailableError}
_REMARK = "nystra: "
"""With it begins a line of our plugins."""


@dataclass(frozen=True)
class Refusal:
    """The node that a builder refused, or "", and the messages of TensorRT and of our plugins."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{f'node {self.node}' if self.node else 'the file'} is refused: {self.reason}"


@dataclass(frozen=True, eq=False)
class Builder:
    """A builder of engines, installed or not.

    Attributes:
        name: That of its backend.
        title: Its name in sentences.
        modules: The first one that is installed is imported.
        note: What is added to the message that it is not installed.
        rtx: It is TensorRT-RTX, which builds for other GPUs too.
        targets: Those that it builds for on a machine without a GPU.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    note: str = ""
    rtx: bool = False
    targets: tuple[str, ...] = ()
    _plugins: set[Path] = field(default_factory=set)

    def require(self) -> None:
        """Raise `BackendUnavailableError`, with what to install, unless it is installed."""
        if not any(map(is_installed, self.modules)):
            raise BackendUnavailableError(not_installed(self.title, self.name) + self.note)
        if not is_installed("polygraphy"):
            raise BackendUnavailableError(not_installed("Polygraphy", self.name))

    @cached_property
    def module(self) -> Any:
        """Its Python module, imported at the first use, for Polygraphy too.

        Raises:
            BackendUnavailableError: It cannot be loaded, or Polygraphy serves the other one here.
        """
        self.require()
        config: Any = import_module("polygraphy.config")
        if self.rtx != config.USE_TENSORRT_RTX and "polygraphy.datatype" in sys.modules:
            raise BackendUnavailableError(
                f"Polygraphy serves one builder in a process, and this one has it for another: use "
                f"{self.name} in another process"
            )
        config.USE_TENSORRT_RTX = self.rtx
        name = next(filter(is_installed, self.modules))
        try:
            module = import_module(name)
            str(module.__version__)
        except (ImportError, OSError, AttributeError) as error:
            raise BackendUnavailableError(f"{name} cannot be loaded: {error}") from error
        sys.modules.setdefault(self.modules[0], module)
        polygraphy_logger()
        return module

    @property
    def version(self) -> str:
        """Its full version."""
        return str(self.module.__version__)

    @property
    def polygraphy(self) -> Any:
        """``polygraphy.backend.trt``, for this builder."""
        _ = self.module  # which Polygraphy imports by its name
        return import_module("polygraphy.backend.trt")

    def load_plugins(self, library: Path) -> None:
        """Register the plugins of a library, once.

        Polygraphy opens libraries only, and ours registers its plugins when TensorRT loads it.

        Raises:
            NystraError: It registered none; TensorRT's log says why.
        """
        if library in self._plugins:
            return
        registry = self.module.get_plugin_registry()
        before = len(registry.all_creators)
        registry.load_library(str(library))
        if len(registry.all_creators) == before:
            raise NystraError(f"{self.name} cannot load the plugin library {library}")
        self._plugins.add(library)

    def ask(
        self, model: EngineModel, do: str, *, seconds: float = 900.0, **request: Any
    ) -> dict[str, Any]:
        """Send one request to a fresh process of `worker` and return its answer.

        Its ``refusal`` is a `Refusal` or None; a process that died or took longer than ``seconds``
        is a refusal and no more.

        Raises:
            NystraError: The process reported bad input.
            ExportError: It reported that a build failed.
            BackendUnavailableError: The builder is not installed.
        """
        self.require()
        library = None if model.library is None else str(model.library)
        request |= {"backend": self.name, "model": str(model.path), "library": library}
        with scratch_folder() as folder:
            environment = self.links(folder)
            with Child(WORKER, seconds, environment=environment, grace=_GRACE_SECONDS) as child:
                try:
                    answer = child.ask(do, request)
                except ChildError as error:
                    if error.death is None:
                        raise _ERRORS.get(error.exit_code, NystraError)(str(error)) from error
                    answer = {"refusal": ["", str(error)]}
        if answer["refusal"] is not None:
            node, text = answer["refusal"]
            reason = " ".join(text.split())[:600]
            for line in child.output:
                if line.startswith(_REMARK):
                    reason += f" The plugin says: {line[len(_REMARK) :]}."
                    break
            answer["refusal"] = Refusal(node, reason)
        return answer

    def links(self, folder: Path) -> dict[str, str]:
        """Return the environment a process needs to load the builder's libraries.

        TensorRT-RTX looks for ``libtensorrt_rtx.so`` at the first plugin, and its wheels have only
        ``libtensorrt_rtx.so.1``: a link to it is made in ``folder``.
        """
        spec = find("tensorrt_rtx_libs") if self.rtx else None
        places = [] if spec is None else spec.submodule_search_locations or []
        for file in (f for place in places for f in Path(place).glob("libtensorrt_rtx.so.*")):
            (folder / "libtensorrt_rtx.so").symlink_to(file.resolve())
            paths = [str(folder), os.environ.get("LD_LIBRARY_PATH")]
            return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths))}
        return {}


TENSORRT = Builder(
    "tensorrt",
    "TensorRT",
    ("tensorrt",),
    " (a build also needs an NVIDIA GPU; nystra build --dry-run needs only the TensorRT package)",
)
# It also supports sm75, for which it has no float32 matrix products; it does not support SM 90
# (H100, H200).
RTX = Builder(
    "tensorrt-rtx",
    "TensorRT-RTX",
    ("tensorrt_rtx", "tensorrt_rtx_bindings"),
    rtx=True,
    targets=("sm80", "sm86", "sm89", "sm120", "sm121"),
)


def find_builder(name: str) -> Builder:
    """Return a builder by its name, installed or not.

    Raises:
        NystraError: None has this name.
    """
    for builder in (TENSORRT, RTX):
        if builder.name == name:
            return builder
    raise NystraError(f"{name!r} builds no engines: expected {TENSORRT.name} or {RTX.name}")


def plugin_nodes(path: Path) -> list[str]:
    """Return the names of the nodes of a model that have a plugin, themselves or in their body."""
    bodies = read_onnx_header(path).functions
    names = []
    for name, operator in domain_nodes(path, DOMAIN):
        plugin = find_schema(operator).plugin if operator in OPERATORS else operator
        if plugin == operator or (plugin is not None and (DOMAIN, plugin) in bodies):
            names.append(name)
    return names


def find_unsupported(model: EngineModel, plugins: Sequence[str]) -> Refusal | None:
    """Return a refusal if a loaded plugin library serves fewer nodes than have a plugin."""
    nodes = [] if model.library is None else plugin_nodes(model.path)
    if model.library is None or len(plugins) >= len(nodes):
        return None
    without = []
    for name in nodes:
        if not any(name in plugin for plugin in plugins):
            without.append(name)
    return Refusal(
        (without or nodes)[0],
        f"{model.library.name} was loaded, but only {len(plugins)} of the {len(nodes)} nodes that "
        "have a plugin took it: build the library of this nystra, or compile the bodies with "
        "`library` none",
    )


def polygraphy_logger() -> Any:
    """Return Polygraphy's logger, which then prints nothing to stdout.

    Raises:
        ModuleNotFoundError: Polygraphy is not installed.
    """
    logger = import_module("polygraphy.logger").G_LOGGER
    logger.use_python_logging_system = True
    logger.colors = logger.letter = False
    return logger
