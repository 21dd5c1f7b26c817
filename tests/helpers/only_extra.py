"""Run a command with only the packages of an extra, as if nothing else were installed.

``python -m only_extra serve serve model.onnx``: the extra, then the arguments of ``nystra``.
"""

import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_VENDORED_BY_RAY = {"colorama", "psutil"}
"""Modules in a folder of Ray's own, which it puts on the path."""


def brought(project: str, extras: frozenset[str]) -> Iterator[str]:
    """Yield the projects that pip installs with a project, from the installed metadata."""
    seen = set()
    waiting = [(project, extras)]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        name, chosen = here
        yield canonicalize_name(name)
        try:
            stated = requires(name) or []
        except PackageNotFoundError:  # of another platform, or absent: its import fails
            continue
        for requirement in map(Requirement, stated):
            places: Iterable[str] = chosen or {""}
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in places):
                waiting.append((requirement.name, frozenset(requirement.extras)))


class OnlyThese:
    """The existing importers, without the modules of other projects."""

    def __init__(self, projects: Iterable[str], importers: list[Any]) -> None:
        """Read which modules belong to which project."""
        self.importers = importers
        allowed = {*projects, "pip", "setuptools"}
        self.hidden = {
            module
            for module, owners in packages_distributions().items()
            if not allowed & {canonicalize_name(owner) for owner in owners}
        }
        if "ray" in allowed:
            self.hidden -= _VENDORED_BY_RAY

    def find_spec(self, name: str, *where: Any) -> ModuleSpec | None:
        """Find a module that is not hidden."""
        if name.partition(".")[0] in self.hidden:
            return None
        found = (each.find_spec(name, *where) for each in self.importers)
        return next((spec for spec in found if spec is not None), None)

    def find_distributions(self, *where: Any) -> Iterator[Any]:
        """Find the metadata of all projects."""
        for each in self.importers:
            if hasattr(each, "find_distributions"):
                yield from each.find_distributions(*where)


def main() -> None:
    """Hide the others and run the command."""
    only = OnlyThese(brought("nystra", frozenset({sys.argv[1]})), list(sys.meta_path))
    for name in [name for name in sys.modules if name.partition(".")[0] in only.hidden]:
        del sys.modules[name]
    sys.meta_path[:] = [only]
    from nystra.cli.main import main as nystra

    sys.exit(nystra(sys.argv[2:]))


if __name__ == "__main__":
    main()
