"""An object that a table names and that is imported on first use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Lazy(Generic[T]):
    """A name in a module.

    Attributes:
        package: Package of the table.
        module: Below the package; with a leading dot, next to it.
        name: In the module; None is the module itself.
    """

    package: str
    module: str
    name: str | None = None

    def __call__(self) -> T:
        """Import it."""
        module: Any = import_module(f".{self.module}", self.package)
        value: T = module if self.name is None else getattr(module, self.name)
        return value
