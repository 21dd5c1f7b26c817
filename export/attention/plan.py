"""The plan: the mechanism of each site. A JSON file, or one mechanism everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.json_text import parse_json, read_json, require_keys, require_version
from ...plugins.operators.window_softmax.schema import SCHEMA as WINDOWS
from .full.parameters import Full
from .mechanism import Mechanism
from .operator_option import operator_option
from .registry import mechanism_class, refuse_foreign

SCHEMA_VERSION = 1
_KEYS = ("schema_version", "source_sha256", "window", "default", "sites")
_SIDE = operator_option(WINDOWS, "window_h", default=1)


@dataclass(frozen=True)
class Plan:
    """The mechanism and its parameters for every site.

    Attributes:
        default: The mechanism of sites that are not listed.
        sites: Exact path -> mechanism.
        window: The window the plan was made for, or None.
        source_sha256: SHA-256 of the checkpoint that it was made for, or "".
    """

    default: Mechanism = field(default_factory=Full)
    sites: dict[str, Mechanism] = field(default_factory=dict)
    window: tuple[int, ...] | None = None
    source_sha256: str = ""

    def __post_init__(self) -> None:
        for mechanism in (self.default, *self.sites.values()):
            if not isinstance(mechanism, Mechanism):
                raise NystraError(
                    f"a plan has {mechanism!r:.60} for sites, expected a mechanism: "
                    "`mechanism(NAME)`"
                )

    def at(self, path: str) -> Mechanism:
        """Return the mechanism of one site."""
        return self.sites.get(path, self.default)

    def refuse_unknown_sites(self, paths: Sequence[str]) -> None:
        """Raise NystraError if the plan lists a site that is not among the known ones."""
        unknown = [path for path in self.sites if path not in paths]
        if unknown:
            raise NystraError(
                f"the plan names {len(unknown)} sites that the network does not have, first "
                f"{unknown[0]!r}; its sites are {', '.join(list(paths)[:3])}, ... "
                "('nystra inspect CHECKPOINT' lists them)"
            )

    def keep_full(self, paths: Iterable[str]) -> Plan:
        """Return the plan with exact attention at these sites, with the same masks."""
        full_sites = {path: Full.instead_of(self.at(path)) for path in paths}
        return replace(self, sites=self.sites | full_sites)

    def for_network(self, architecture: str, hyper: Mapping[str, Any]) -> Plan:
        """Return the plan with what its presets stand for; arguments as of the mechanism."""
        sites = {}
        for path, site in self.sites.items():
            sites[path] = site.for_network(architecture, hyper)
        default = self.default.for_network(architecture, hyper)
        return replace(self, default=default, sites=sites)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; ``parse_plan`` reads it back."""
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "source_sha256": self.source_sha256,
            "default": self.default.as_dict(),
            "sites": {path: site.as_dict() for path, site in self.sites.items()},
        }
        if self.window is not None:
            document["window"] = list(self.window)
        return document


def read_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Raises:
        NystraError: The file is missing or not valid JSON, or has unknown keys or values out of
            range.
    """
    return parse_plan(read_json(path, "the plan"), f"the plan {path}")


def decode_plan(text: str, where: str) -> Plan:
    """Return the plan of a JSON text, such as a model file's metadata.

    Args:
        text: The JSON.
        where: Its name in errors.

    Raises:
        NystraError: As `read_plan`.
    """
    return parse_plan(parse_json(text, where), where)


def parse_plan(document: Any, where: str = "the plan") -> Plan:
    """Return the plan of a decoded JSON document.

    Args:
        document: The JSON.
        where: Its name in errors.

    Raises:
        NystraError: Unknown keys, wrong types, values out of range, another schema version.
    """
    record = require_version(
        document, where, SCHEMA_VERSION, "use the nystra version that wrote it"
    )
    require_keys(record, where, _KEYS)
    try:
        return _parse(record)
    except NystraError as error:
        raise NystraError(f"{where}: {error}") from error


def _parse(document: dict[str, Any]) -> Plan:
    default = _parse_site(document.get("default", {}), Full(), "default")
    sites = document.get("sites", {})
    if not isinstance(sites, dict):
        raise NystraError("'sites' is not an object of path to parameters")
    sha256 = document.get("source_sha256", "")
    if not isinstance(sha256, str):
        raise NystraError(f"source_sha256 {sha256!r:.40} is not a string")
    parsed = {}
    for path, site in sites.items():
        parsed[path] = _parse_site(site, default, f"site {path}")
    return Plan(
        default=default,
        sites=parsed,
        window=_parse_window(document.get("window")),
        source_sha256=sha256,
    )


def _parse_window(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not (isinstance(value, list) and len(value) in (2, 3)):
        raise NystraError(
            f"window {value!r:.40} is neither [rows, columns] nor [frames, rows, columns]"
        )
    return tuple(_SIDE.accept("window", side) for side in value)


def _parse_site(document: Any, base: Mechanism, where: str) -> Mechanism:
    if not isinstance(document, dict):
        raise NystraError(f"{where} is not a JSON object")
    values = {key: value for key, value in document.items() if key != "reason"}
    name = values.pop("mechanism", base.name)
    try:
        if not isinstance(name, str):
            raise NystraError(f"mechanism {name!r:.40} is not a string")
        kind = mechanism_class(name)
        for key in values:
            refuse_foreign(key, key, kind)
        options = kind.list_options()
        shared = {key: value for key, value in base.values().items() if key in options}
        return kind(**shared | values)
    except NystraError as error:
        raise NystraError(f"{where}: {error}") from None
