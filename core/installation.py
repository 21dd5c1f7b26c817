"""What is installed, and messages on how to install the packages of an extra."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

_REQUIREMENT = re.compile(
    r"(?P<project>[\w.-]+)\s*(?:\[(?P<extras>[^]]*)\])?[^;]*"
    r"(?:;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+))?"
)
_PACKAGE = "nystra"

_ALWAYS = ""
"""In place of an extra: what nystra needs without any."""

_EXTRAS = {
    "lazy_loader": _ALWAYS,
    "numpy": _ALWAYS,
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "safetensors": "export",
    "onnxruntime": "ort",
    "PIL": "images",
    "pyvips": "images",
    "tqdm": "images",
    "fastapi": "serve",
    "uvicorn": "serve",
    "python_multipart": "serve",
    "prometheus_client": "serve",
}
"""Module -> the extra that has it."""


def find(module: str) -> ModuleSpec | None:
    """Return where a module would be imported from, without importing it; or None."""
    try:
        return find_spec(module)
    except (ImportError, ValueError):  # what find_spec makes of a module that is blocked
        return None


def is_installed(module: str) -> bool:
    """Return whether a module of that name could be imported."""
    return find(module) is not None


def not_installed(what: str, extra: str) -> str:
    """Return a sentence about a missing package, with the command to install it.

    Args:
        what: What is missing: ``OpenVINO``.
        extra: The extra of nystra that has it: ``openvino``.
    """
    return f"{what} is not installed: {install_command(extra)}"


def install_module(module: str) -> str:
    """Return how to install a module that could not be imported: a command, and what it assumes."""
    package = module.partition(".")[0]
    if package in _EXTRAS:
        return install_command(_EXTRAS[package])
    return f"pip install {package}, unless its package has another name"


def install_command(extra: str) -> str:
    """Return the command that installs the missing packages of an extra.

    It names the projects and not nystra itself, so that it works however nystra was installed:
    from a checkout, a wheel or an index.
    """
    from importlib.metadata import PackageNotFoundError, requires  # a command starts without it

    try:
        requirements = requires(_PACKAGE) or []
    except PackageNotFoundError:  # a folder on the path
        requirements = []
    own = dict(_projects(extra, requirements))
    parts = dict.fromkeys(_parts(extra, requirements))
    projects = own | {key: value for part in parts for key, value in _projects(part, requirements)}
    if not projects:
        return f"pip install '.[{extra}]' in a checkout of nystra"
    missing = [stated for project, stated in projects.items() if not _is_installed(project)]
    if missing:
        return " ".join(["pip install", *missing])
    return " ".join(
        ["pip install --force-reinstall", *(own or projects).values()]
    )  # there, but broken


def _projects(extra: str, requirements: list[str]) -> Iterator[tuple[str, str]]:
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and (match["extra"] or _ALWAYS) == extra and match["project"] != _PACKAGE:
            stated = re.sub(r"\s", "", requirement.partition(";")[0])
            yield match["project"], f"'{stated}'"


def _parts(extra: str, requirements: list[str]) -> Iterator[str]:
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and match["extra"] == extra and match["project"] == _PACKAGE:
            for part in match["extras"].split(","):
                yield part.strip()
                yield from _parts(part.strip(), requirements)


def _is_installed(project: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(project)
    except PackageNotFoundError:
        return False
    return True
