"""``FILE.py:CALLABLE``: the code of a network, which runs because the user named it.

The file runs by itself, as a script does: no folder is put on ``sys.path``, so that what lies
next to it is not imported, and no compiled copy of it is written or read.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from ...core.errors import NystraError, foreign_reason
from ...core.files.reading import regular_file
from ...core.installation import install_module
from .network import OwnNetwork

_LARGEST = 1 << 22  # bytes of a file of code
_MOST_FOLDERS = 5
"""Folders above a file in which modules that it imports are looked for."""


@dataclass(frozen=True)
class Code:
    """The target of ``FILE.py:CALLABLE``.

    Attributes:
        path: The file.
        name: Name of the callable.
        sha256: Of the file.
        value: The named object: a callable, or the network itself.
    """

    path: Path
    name: str
    sha256: str
    value: Any

    @property
    def text(self) -> str:
        """Its name in messages."""
        return f"{self.path.name}:{self.name}"

    @property
    def is_callable(self) -> bool:
        """Whether it builds a network, and is none itself."""
        return not isinstance(self.value, (nn.Module, OwnNetwork))

    def network(self, arguments: Mapping[str, Any]) -> OwnNetwork:
        """Call it; if the name is a network already, return that.

        Args:
            arguments: By keyword.

        Raises:
            NystraError: It raises, or returns no network.
        """
        built = self.value
        if self.is_callable:
            with _translate_errors(self.path, f"{self.text}()"):
                built = self.value(**arguments)
        elif arguments:
            raise NystraError(
                f"{self.text} is a network and not a function with arguments: omit "
                f"{', '.join(arguments)}"
            )
        if not isinstance(built, (nn.Module, OwnNetwork)):
            raise NystraError(
                f"{self.text}() returned the type {type(built).__name__}, expected a "
                "torch.nn.Module or a nystra.models.OwnNetwork; see docs/own.md"
            )
        return OwnNetwork.of(built)


def read_code(text: str) -> Code:
    """Run a file and return the named object.

    Args:
        text: ``FILE.py:CALLABLE``.

    Raises:
        NystraError: The text has another form, the file cannot be read or run, or has no such name.
    """
    file, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier() or not file.endswith(".py"):
        raise NystraError(f"`module` is {text!r:.200}, expected FILE.py:CALLABLE; see docs/own.md")
    path = regular_file(file, "the code")
    if path.stat().st_size > _LARGEST:
        raise NystraError(f"{path} has {path.stat().st_size} bytes, expected a Python file")
    source = path.read_bytes()
    space = _run(path, source)
    if not hasattr(space, name):
        theirs = [key for key, value in vars(space).items() if _is_theirs(value, space.__name__)]
        raise NystraError(
            f"{path.name} has no {name}; it has {', '.join(theirs[:8]) or 'no class or function'}; "
            "see docs/own.md"
        )
    built = getattr(space, name)
    if not callable(built) and not isinstance(built, OwnNetwork):
        raise NystraError(
            f"{path.name}:{name} is of the type {type(built).__name__}, expected a class or a "
            "function that returns the network; see docs/own.md"
        )
    return Code(path, name, hashlib.sha256(source).hexdigest(), built)


def _run(path: Path, source: bytes) -> ModuleType:
    """Return the module of a file; it stays in ``sys.modules``, as classes need that."""
    space = ModuleType(f"nystra_own_{path.stem}")
    space.__file__, space.__package__ = str(path), ""
    sys.modules[space.__name__] = space
    with _translate_errors(path, path.name):
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(space))
    return space


def _is_theirs(value: object, module: str) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module


@contextlib.contextmanager
def _translate_errors(path: Path, what: str) -> Iterator[None]:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except SyntaxError as error:
        raise NystraError(f"{what}, line {error.lineno}: {error.msg}") from error
    except ImportError as error:
        raise NystraError(_import_fault(path, error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any error, SystemExit too
        reason = foreign_reason(error)
        text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise NystraError(f"{what} raised {text}{_line(path, error)}") from error


def _line(path: Path, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def _import_fault(path: Path, error: ImportError) -> str:
    name = (error.name or "").partition(".")[0]
    if "relative import" in str(error):
        root, module = _as_module(path.absolute())
        return (
            f"{path.name} imports by a relative import, but only that file is executed: write a "
            f"file with the line 'from {module} import NAME', and name that one, such as "
            f"PYTHONPATH={_show(root)} nystra-export ... --module FILE.py:NAME"
        )
    folder = _folder_with(path.absolute(), name)
    if folder is not None:
        place = "the same folder" if folder == path.absolute().parent else _show(folder)
        return (
            f"{path.name} imports {name}, which is in {place}: only that file is executed, other "
            "files are found where PYTHONPATH says, such as "
            f"PYTHONPATH={_show(folder)} nystra-export ..., or if installed as a package"
        )
    if isinstance(error, ModuleNotFoundError) and name:
        install = install_module(name)
        return f"{path.name} imports {error.name}, which is not installed: {install}"
    return f"{path.name} cannot import: {foreign_reason(error)}"


def _folder_with(path: Path, name: str) -> Path | None:
    """Return the nearest folder above a file that holds a module; None if it is found anyway."""
    if not name or name in sys.modules:
        return None
    for folder in list(path.parents)[:_MOST_FOLDERS]:
        if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
            return folder
    return None


def _as_module(path: Path) -> tuple[Path, str]:
    """Return the folder of the package that a file is a part of, and the name of its module."""
    root, names = path.parent.parent, [path.parent.name, path.stem]
    while (root / "__init__.py").is_file():
        root, names = root.parent, [root.name, *names]
    return root, ".".join(names)


def _show(folder: Path) -> str:
    """Return a folder as a shell takes it, from the working folder if it is inside of that."""
    current = Path.cwd()
    inside = folder.relative_to(current) if folder.is_relative_to(current) else folder
    return shlex.quote(str(inside))
