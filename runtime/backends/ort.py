"""The backend ``ort:NAME``: onnxruntime with any of its execution providers, named by the user.

The provider is one that the installed onnxruntime was built with, or a plug-in: an installed
package ``onnxruntime-ep-*`` with ``get_ep_names`` and ``get_library_path``, or the library that a
session names; onnxruntime (1.22 and later) loads it into the process. onnxruntime computes nodes
that the provider does not support on the CPU; the assignment reports how many.
"""

from __future__ import annotations

import functools
import pkgutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.reading import utf8_path
from ...core.installation import is_installed, not_installed
from ...core.option import Options, option
from ...core.option_kinds import Choice
from ...plugins.library import LibraryChoice
from ..model.onnx_graph import has_node
from ._onnxruntime import OnnxRuntimeBackend
from .base import RECORD, read_assignment

_PACKAGES = "onnxruntime_ep_"
_LOCK = threading.Lock()
_LOADED: set[str] = set()
"""Libraries that this process registered; onnxruntime keeps them until the process ends."""


def is_built_in(provider: str) -> bool:
    """Return whether the onnxruntime installed has a provider without any plug-in."""
    import onnxruntime

    return provider in onnxruntime.get_available_providers()


def find_devices(provider: str, library: Path | None = None) -> list[Any]:
    """Return the devices of a provider from a plug-in, which is loaded if necessary.

    Args:
        provider: Its name, such as ``WebGpuExecutionProvider``.
        library: The plug-in, or None for that of an installed package.

    Returns:
        One ``OrtEpDevice`` or more.

    Raises:
        NystraError: The library is not a file, or onnxruntime cannot load it as a plug-in.
        BackendUnavailableError: There is no such provider here, or it has no device here.
    """
    with _LOCK:
        if library is not None:
            _load(library)
        elif not _devices(provider):
            for name, path in _packages():
                if name == provider:
                    _load(path)
    if devices := _devices(provider):
        return devices
    import onnxruntime

    version = f"onnxruntime {onnxruntime.__version__}"
    if library is None and provider in dict(_packages()):
        raise BackendUnavailableError(
            f"{provider} is installed but offers {version} no device on this machine: see its "
            "documentation for the driver and the settings that it needs"
        )
    source = "" if library is None else f" and {library} does not contain it"
    raise BackendUnavailableError(
        f"{version} has no execution provider {provider!r} on this machine{source}: available "
        f"are {', '.join(available_providers())}; install a package onnxruntime-ep-*, another "
        "build of onnxruntime, or give `ep_library`"
    )


def available_providers() -> list[str]:
    """Return the names of the providers of this machine: built in, of packages, loaded."""
    import onnxruntime

    names = [*onnxruntime.get_available_providers(), *(name for name, _ in _packages())]
    if hasattr(onnxruntime, "get_ep_devices"):
        names += [device.ep_name for device in onnxruntime.get_ep_devices()]
    return list(dict.fromkeys(names))


def _devices(provider: str) -> list[Any]:
    import onnxruntime

    if not hasattr(onnxruntime, "get_ep_devices"):
        return []
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]


def _packages() -> Iterator[tuple[str, Path]]:
    for module in pkgutil.iter_modules():
        if not module.name.startswith(_PACKAGES):
            continue
        try:
            package = import_module(module.name)
            path = Path(package.get_library_path())
            names = list(package.get_ep_names())
        except Exception:  # noqa: BLE001 - a broken third-party package is ignored
            continue
        yield from ((name, path) for name in names)


def _load(library: Path) -> None:
    """Register a plug-in with onnxruntime, once per process."""
    import onnxruntime

    if not library.is_file():
        raise NystraError(
            f"no file at {library}: expected the plug-in library of an execution provider"
        )
    path = str(library.resolve())
    if path in _LOADED:
        return
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise BackendUnavailableError(
            f"onnxruntime {onnxruntime.__version__} cannot load the plug-in {library}: install "
            "onnxruntime 1.22 or later"
        )
    try:
        onnxruntime.register_execution_provider_library(path, path)
    except Exception as error:  # onnxruntime's errors have no common base of their own
        text = " ".join(str(error).split())[:300].rstrip(".")
        raise NystraError(f"onnxruntime cannot load {library} as a plug-in: {text}") from error
    _LOADED.add(path)


_ENGINE = "EPContext"
"""The operator by which providers store what they compiled, in the file or beside it."""

_HARDWARE = ("cpu", "gpu", "npu")


@dataclass(frozen=True)
class ProviderOptions(Options):
    """How a provider is used; options of other names go to the provider itself.

    Attributes:
        fallback: Treatment of nodes that the provider does not support.
        hardware: The kind of device, of a plug-in that has several.
    """

    fallback: str = option(
        Choice("cpu", "where nodes run that the provider does not support", ("cpu", "error"))
    )
    hardware: str | None = option(
        Choice(None, "device of a plug-in", _HARDWARE, default_text="the first one")
    )


class OrtProviderBackend(OnnxRuntimeBackend):
    """onnxruntime with one execution provider, and the CPU for the remaining nodes.

    Operators of nystra run as their bodies, so that the provider can compute them: the library has
    kernels for the CPU only. A library that is named by its path is registered.

    Attributes:
        provider: A class attribute: onnxruntime's name of the provider, "" if none is named.
    """

    devices: ClassVar[tuple[str, ...]] = (
        "CoreMLExecutionProvider",
        "DmlExecutionProvider",
        "MIGraphXExecutionProvider",
        "OpenVINOExecutionProvider",
        "QNNExecutionProvider",
        "WebGpuExecutionProvider",
    )
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "fp16", "int8"})
    options: ClassVar[type[Options]] = ProviderOptions
    library_name: ClassVar[str | None] = None
    automatic: ClassVar[bool] = False
    plugs_in: ClassVar[bool] = True
    provider: ClassVar[str] = ""

    chosen: ProviderOptions

    @classmethod
    def on(cls, device: str) -> type[OrtProviderBackend]:
        """Return the backend of a provider, available or not."""
        return _class_of(device)

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether onnxruntime is installed and a provider is named, and a sentence."""
        if not is_installed("onnxruntime"):
            return False, not_installed("onnxruntime", "ort")
        if not cls.provider:
            return False, (
                "the backend ort needs the name of an execution provider: expected one of "
                + ", ".join(f"ort:{name}" for name in available_providers())
            )
        return True, f"onnxruntime is installed; its execution provider is {cls.provider}"

    def load(self) -> None:
        """Load the file; see the base.

        Raises:
            NystraError: As there; also if the file has an engine in it, or nodes fall back to the
                CPU although `fallback` is error.
            BackendUnavailableError: As there; also if the provider or its device is not available.
        """
        import onnxruntime

        if has_node(self.path, _ENGINE, nested=True):
            raise NystraError(
                f"{self.path} holds or names an engine that a provider compiled ({_ENGINE}), which "
                "is native code of those who made the file: use the ONNX file that it was made of"
            )
        # Providers print a warning for each node that they leave to the CPU.
        onnxruntime.set_default_logger_severity(3)
        self._turn = threading.Lock()
        self._device = self._find_device()
        super().load()
        self.assignment = read_assignment(self._session, self.provider)
        if self.assignment is not None and self.assignment.others and self._strict:
            raise NystraError(
                f"{self.assignment.describe()}, and the option fallback is error, for "
                f"{self.path}: use a file whose operators the provider supports, such as one "
                "exported with `target` portable, or the option fallback cpu"
            )

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once, one thread at a time: not all providers allow concurrent runs."""
        with self._turn:
            return super().infer(feeds)

    def infer_and_release(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run as `infer`: a provider manages its memory itself."""
        return self.infer(feeds)

    @property
    def _strict(self) -> bool:
        return self.chosen.fallback == "error"

    def _choose_options(self) -> ProviderOptions:
        """Return the options of the backend; all others go to the provider, as texts."""
        options = self.options.list_options()
        requested = self.spec.options
        self._provider_options = {
            name: str(value) for name, value in requested.items() if name not in options
        }
        own = {
            name: options[name].take(name, requested[name]) for name in options if name in requested
        }
        return ProviderOptions(**own)

    def _choose(self) -> LibraryChoice:
        if self.spec.library != "auto":
            return super()._choose()
        reason = (
            f"{self.provider} runs the operators' bodies: the library has kernels for the CPU only"
        )
        if not self.header.has_operators:
            reason = "the model has no nystra operators, so no library is needed"
        return LibraryChoice(None, reason)

    def _start(self, options: Any, library: Path | None) -> Any:
        import onnxruntime

        options.add_session_config_entry(RECORD, "1")
        if self._strict and not hasattr(
            onnxruntime.InferenceSession, "get_provider_graph_assignment_info"
        ):
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        providers = None
        if self._device is None:
            providers = [(self.provider, self._provider_options)]
        else:
            options.add_provider_for_devices([self._device], self._provider_options)
        try:
            session = onnxruntime.InferenceSession(
                utf8_path(self.path, "the model", "onnxruntime"),
                options,
                providers=providers,
                enable_fallback=0,
            )
        except (ValueError, RuntimeError, _provider_error()) as error:  # a model's are others
            text = " ".join(str(error).split()).rpartition(" was false. ")[2][-400:].rstrip(".")
            raise BackendUnavailableError(
                f"onnxruntime cannot run {self.path} by {self.provider}: {text}"
            ) from error
        if self.provider not in session.get_providers():
            raise BackendUnavailableError(
                f"onnxruntime {onnxruntime.__version__} would run {self.path} by "
                f"{', '.join(session.get_providers())} and not by {self.provider}, which it "
                "could not start: its driver or libraries are missing on this machine"
            )
        return session

    def _find_device(self) -> Any:
        if self.spec.ep_library is None and is_built_in(self.provider):
            return None
        devices = find_devices(self.provider, self.spec.ep_library)
        requested = self.chosen.hardware
        kinds = [device.device.type.name.lower() for device in devices]
        if requested is not None and requested not in kinds:
            raise BackendUnavailableError(
                f"{self.provider} has no {requested} on this machine: expected "
                f"{' or '.join(sorted({*kinds}))}"
            )
        return devices[0 if requested is None else kinds.index(requested)]


def _provider_error() -> type[Exception]:
    from onnxruntime.capi import onnxruntime_pybind11_state

    kind: type[Exception] = onnxruntime_pybind11_state.EPFail
    return kind


@functools.cache
def _class_of(provider: str) -> type[OrtProviderBackend]:
    return type("OrtProviderBackend", (OrtProviderBackend,), {"provider": provider})
