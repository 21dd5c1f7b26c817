"""The plan: which mechanism at which site. A JSON file, or one mechanism everywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...plugins.errors import NystraError
from .mechanism import SiteParameters

SCHEMA_VERSION = 1
_PARAMETERS = {f.name: f for f in fields(SiteParameters)}


def parse_landmarks(text: str) -> tuple[int, int]:
    """Return rows and columns of ``4x4`` or of a number: the most square grid, rows first.

    Raises:
        NystraError: neither form.
    """
    try:
        if "x" in text:
            rows, columns = (int(part) for part in text.split("x"))
        else:
            count = int(text)
            rows = max(r for r in range(1, int(count**0.5) + 1) if count % r == 0)
            columns = count // rows
    except ValueError:
        raise NystraError(
            f"landmarks {text!r} is neither a number such as 16 nor a grid such as 4x4"
        ) from None
    return rows, columns


@dataclass(frozen=True)
class Plan:
    """Mechanism and parameters for every site.

    Attributes:
        default: what a site gets that is not named.
        sites: exact path to parameters.
        window: the window the plan was made for, or None.
        source_sha256: of the checkpoint it was made for, or "".
    """

    default: SiteParameters = field(default_factory=SiteParameters)
    sites: dict[str, SiteParameters] = field(default_factory=dict)
    window: tuple[int, int] | None = None
    source_sha256: str = ""

    def at(self, path: str) -> SiteParameters:
        """Return the parameters of one site."""
        return self.sites.get(path, self.default)

    def refuse_unknown_sites(self, known: Sequence[str]) -> None:
        """Raise NystraError when the plan names a site that is not among the known ones."""
        unknown = [path for path in self.sites if path not in known]
        if unknown:
            raise NystraError(
                f"the plan names {len(unknown)} sites that the network does not have, first "
                f"{unknown[0]!r}; its sites are {', '.join(list(known)[:3])}, ... "
                "('nystra inspect CHECKPOINT' lists them)"
            )

    def full(self) -> Plan:
        """Return the plan that computes exact attention everywhere, with the same masks."""
        sites = {path: one.as_full() for path, one in self.sites.items()}
        return replace(self, default=self.default.as_full(), sites=sites)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; ``parse_plan`` reads it back."""
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "source_sha256": self.source_sha256,
            "default": self.default.as_dict(),
            "sites": {path: one.as_dict() for path, one in self.sites.items()},
        }
        if self.window is not None:
            document["window"] = list(self.window)
        return document


def read_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Raises:
        NystraError: no such file, not JSON, unknown keys, values out of range.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise NystraError(f"the plan {path} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise NystraError(f"the plan {path} is not JSON: {error}") from error
    try:
        return parse_plan(document)
    except NystraError as error:
        raise NystraError(f"the plan {path}: {error}") from error


def parse_plan(document: Any) -> Plan:
    """Return the plan of a decoded JSON document.

    Raises:
        NystraError: unknown keys, wrong types, values out of range, another schema version.
    """
    _refuse_keys(
        document, {"schema_version", "source_sha256", "window", "default", "sites"}, "plan"
    )
    if document.get("schema_version") != SCHEMA_VERSION:
        raise NystraError(
            f"schema_version {document.get('schema_version')!r}; this nystra reads {SCHEMA_VERSION}"
        )
    window = document.get("window")
    if window is not None:
        window = _grid(window, "window")
    default = _parse_site(document.get("default", {}), SiteParameters(), "default")
    sites = document.get("sites", {})
    if not isinstance(sites, dict):
        raise NystraError("'sites' is not an object of path to parameters")
    return Plan(
        default=default,
        sites={path: _parse_site(one, default, f"site {path}") for path, one in sites.items()},
        window=window,
        source_sha256=str(document.get("source_sha256", "")),
    )


def _refuse_keys(document: Any, known: set[str], where: str) -> None:
    if not isinstance(document, dict):
        raise NystraError(f"{where} is not a JSON object")
    unknown = sorted(set(document) - known)
    if unknown:
        raise NystraError(
            f"unknown key {unknown[0]!r} in {where}; known are {', '.join(sorted(known))}"
        )


def _grid(value: Any, where: str) -> tuple[int, int]:
    if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)):
        raise NystraError(f"{where} {value!r} is not [rows, columns]")
    return value[0], value[1]


def _parse_site(document: Any, base: SiteParameters, where: str) -> SiteParameters:
    _refuse_keys(document, set(_PARAMETERS), where)
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key == "reason":
            continue
        expected = type(getattr(base, key))
        if key == "landmarks":
            values[key] = _grid(value, f"{where}: landmarks")
        elif expected is float and type(value) in (int, float):
            values[key] = float(value)
        elif type(value) is expected:
            values[key] = value
        else:
            raise NystraError(f"{where}: {key} {value!r} is not of type {expected.__name__}")
    return replace(base, reason="", **values)
