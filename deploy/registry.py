"""The table of serving targets: what ``nystra deploy`` writes a model file for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.option import Options


@dataclass(frozen=True)
class Target:
    """A row. Nothing of a target is imported before it is wanted.

    Attributes:
        name: What ``nystra deploy`` calls it.
        summary: What is written, in half a sentence.
        record: Module in ``deploy`` and name of its options, a subclass of `Options`.
        writer: Module in ``deploy`` and name of a function (model file, folder, options) -> the
            folder that it wrote in there, whole or not at all.
    """

    name: str
    summary: str
    record: tuple[str, str]
    writer: tuple[str, str]

    @property
    def options(self) -> type[Options]:
        """The options of the target."""
        kind: type[Options] = _load(self.record)
        return kind

    def write(self, model: Path, folder: Path, options: Any) -> Path:
        """Write a model file for the target; see `writer`.

        Raises:
            NystraError: The target cannot serve the model so.
        """
        written: Path = _load(self.writer)(model, folder, options)
        return written


TARGETS = (
    Target(
        "triton",
        "NVIDIA Triton: a model repository",
        ("triton.options", "TritonOptions"),
        ("triton.repository", "write_repository"),
    ),
)


def _load(home: tuple[str, str]) -> Any:
    return getattr(import_module(f".{home[0]}", __package__), home[1])
