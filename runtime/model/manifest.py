"""The manifest: the JSON next to a model file with its origin and measurements."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.files.reading import file_sha256
from ...core.files.writing import atomic_write_bytes
from ...core.json_text import read_json, require_keys, require_version, stable_json

SCHEMA_VERSION = 1


@dataclass
class Manifest:
    """The content of ``<stem>.json`` next to ``<stem>.onnx``.

    Attributes:
        model: Name of the model file.
        files: Name (in the folder of the manifest) -> SHA-256 of every file of the export.
        source: The checkpoint: ``name`` and ``sha256``.
        tools: Tool -> version.
        command: The command line, one argument per entry.
        facts: The model's facts, as in its metadata.
        plan: The attention plan.
        form: Other settings of the export: functions, opset, precision, static shape, target.
        validation: The figures that were measured.
        schema_version: Version of this layout.
    """

    model: str
    files: dict[str, str] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    form: dict[str, Any] = field(default_factory=dict)
    validation: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @staticmethod
    def path_for(model: str | os.PathLike[str]) -> Path:
        """Return the path of a model file's manifest: the same stem, ``.json``."""
        return Path(model).with_suffix(".json")

    @classmethod
    def for_model(cls, model: str | os.PathLike[str]) -> Manifest | None:
        """Return the manifest next to a model file, or None if there is none.

        Another JSON file of that name, without a list of hashes, is not a manifest.

        Raises:
            NystraError: It cannot be read.
        """
        path = cls.path_for(model)
        if not os.path.lexists(path):
            return None
        value = read_json(path, "the manifest")
        if not isinstance(value, dict) or not {"model", "files"} <= set(value):
            return None
        return cls.read(path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest.

        Raises:
            NystraError: The file is missing, not a manifest, or of another schema version.
        """
        value = read_json(path, "the manifest")
        where, advice = (
            f"the manifest {path}",
            "export again, or use the nystra version that wrote it",
        )
        _check_types(where, require_version(value, where, SCHEMA_VERSION, advice))
        return cls(**value)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the manifest.

        Raises:
            NystraError: The file cannot be written.
        """
        atomic_write_bytes(path, self.content())

    def content(self) -> bytes:
        """Return the bytes of the file, which are the same for the same content."""
        return stable_json(asdict(self))

    def add_file(self, name: str, content: bytes) -> None:
        """Record the SHA-256 of a file in the folder of the manifest."""
        self.files[name] = hashlib.sha256(content).hexdigest()

    def problems(self, folder: str | os.PathLike[str]) -> list[str]:
        """Return a sentence for every recorded file that was changed.

        A missing file is accepted: a device may need the model only.
        """
        paths = {Path(folder) / name: expected for name, expected in sorted(self.files.items())}
        changed = []
        for path, expected in paths.items():
            if not path.is_file():
                continue
            sha256 = file_sha256(path)
            if sha256 != expected:
                changed.append(
                    f"{path.name} was changed: its SHA-256 is {sha256[:16]}..., its manifest has "
                    f"{str(expected)[:16]}..."
                )
        return changed


def _check_types(where: str, value: dict[str, Any]) -> None:
    kinds: dict[str, type] = {item.name: dict for item in fields(Manifest)}
    kinds |= {"model": str, "command": list, "schema_version": int}
    require_keys(value, where, kinds, ["model"])
    wrong = sorted(key for key in value if not isinstance(value[key], kinds[key]))
    if wrong:
        types = ", ".join(f"{key} ({kinds[key].__name__})" for key in wrong)
        raise NystraError(f"{where} has keys of the wrong type: expected {types}")
    outside = [name for name in value.get("files", {}) if Path(name).name != name]
    if outside:
        raise NystraError(f"{where} names files outside its folder: {outside}")
