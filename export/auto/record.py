"""The measurements of a search, written continuously: an interrupted search continues.

``<checkpoint>.auto.json`` next to the model file. It is kept: a choice for another budget reuses
it. It belongs to one checkpoint, and its entries to images, window and version.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import __version__
from ...core.errors import NystraError
from ...core.files.writing import atomic_write_bytes
from ...core.json_records import is_number, require_keys, require_version
from ...core.json_text import stable_json
from ...core.strict_json import read_json
from ...models.loading import LoadedModel
from ..load.images import Feeds
from .costs import CostTable, parse_costs

SCHEMA_VERSION = 1
_KEYS = ("schema_version", "source_sha256", "costs", "changes")
_ADVICE = "give `overwrite` to measure again and replace it, or choose another `output`"
_SECONDS_BETWEEN_WRITES = 5.0

Changes = dict[str, dict[str, dict[str, float]]]
"""Crop -> path of a site -> text of a candidate -> mean-square change of the output."""


class Record:
    """The file and its content.

    Attributes:
        path: Path of the file.
        costs: The latest costs, or None.
        changes: The changes for the current images, window and version.
    """

    def __init__(self, path: Path, sha256: str) -> None:
        """Begin with nothing measured for the checkpoint of that SHA-256."""
        self.path = path
        self.costs: CostTable | None = None
        self.changes: Changes = {}
        self._sha256 = sha256
        self._all: dict[str, Changes] = {}
        self._written = time.monotonic()

    @classmethod
    def open(
        cls, path: Path, loaded: LoadedModel, samples: Mapping[str, Feeds], *, replace: bool
    ) -> Record:
        """Read earlier measurements, if the file exists.

        Args:
            path: The file.
            loaded: The network.
            samples: The images that changes are measured on.
            replace: Begin again if the file belongs to something else.

        Raises:
            NystraError: The file belongs to another checkpoint, or was not written by nystra.
        """
        record = cls(path, loaded.checkpoint.sha256)
        if path.exists():
            try:
                record._read(read_json(path, "what was measured"))
            except NystraError as error:
                if not replace:
                    raise NystraError(f"{error}: {_ADVICE}") from error
        record.changes = record._all.setdefault(_fingerprint(loaded, samples), {})
        return record

    def _read(self, document: Any) -> None:
        where = f"what was measured, {self.path}"
        document = require_version(document, where, SCHEMA_VERSION, "it was not written by nystra")
        require_keys(document, where, _KEYS, _KEYS)
        if document["source_sha256"] != self._sha256:
            raise NystraError(
                f"{where} is of another checkpoint ({document['source_sha256']!r:.14}..., this one "
                f"is {self._sha256[:12]}...)"
            )
        if not _are_changes(document["changes"], depth=4):
            raise NystraError(f"{where}: 'changes' has values that are not numbers")
        if document["costs"] is not None:
            self.costs = parse_costs(document["costs"], where)
        self._all = document["changes"]

    def has(self, crop: str, path: str, candidate: str) -> bool:
        """Return whether a change was measured."""
        return candidate in self.changes.get(crop, {}).get(path, {})

    def note(self, crop: str, path: str, candidate: str, change: float) -> None:
        """Add a change; the file is written every few seconds."""
        self.changes.setdefault(crop, {}).setdefault(path, {})[candidate] = change
        if time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write the file."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "source_sha256": self._sha256,
            "costs": None if self.costs is None else self.costs.as_dict(),
            "changes": self._all,
        }
        atomic_write_bytes(self.path, stable_json(document))
        self._written = time.monotonic()


def _fingerprint(loaded: LoadedModel, samples: Mapping[str, Feeds]) -> str:
    """Return a key of everything other than the checkpoint on which measured changes depend."""
    digest = hashlib.sha256(stable_json([__version__, loaded.facts.window, loaded.hyper]))
    for name, feeds in samples.items():
        digest.update(name.encode())
        for array in feeds.values():
            digest.update(str(array.shape).encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def _are_changes(value: Any, depth: int) -> bool:
    if depth == 0:
        return is_number(value) and value >= 0
    return isinstance(value, dict) and all(
        _are_changes(entry, depth - 1) for entry in value.values()
    )
