"""Execution providers of onnxruntime, built in or from plug-ins, and their devices.

A plug-in is a library that onnxruntime (1.22 and later) loads into the process. Packages named
``onnxruntime-ep-*`` hold one each, with ``get_ep_names`` and ``get_library_path``.
"""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError

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
    """Yield provider and library of each plug-in that is installed as a package."""
    for module in pkgutil.iter_modules():
        if not module.name.startswith(_PACKAGES):
            continue
        try:
            package = import_module(module.name)
            path = Path(package.get_library_path())
            names = list(package.get_ep_names())
        except Exception:  # a broken third-party package is ignored
            continue
        yield from ((name, path) for name in names)


def _load(library: Path) -> None:
    """Register a plug-in with onnxruntime, once per process.

    Raises:
        NystraError: It is not a file, or no plug-in.
        BackendUnavailableError: This onnxruntime does not support plug-ins.
    """
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
