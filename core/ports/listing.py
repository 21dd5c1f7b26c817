"""The list of ports in a model file's metadata, in JSON; `core.metadata` has its key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import NystraError
from ..json_text import is_number, is_whole, parse_json, quote
from ..plain_text import PLAIN_NAME, is_plain_name
from .port import AXES, IMAGE_AXES, Port

_LONGEST_TEXT = 1 << 16
_MAX_PORTS = 64
_LARGEST_VALUE = 1e9
_AXIS_OF = {axis.letter: name for name, axis in AXES.items()}


def write_ports(ports: Sequence[Port]) -> str:
    """Return the JSON: a list with an object for every port.

    Properties that the graph has are omitted: fixed lengths, and whether a size is independent.
    """
    return json.dumps([_entry(port) for port in ports], sort_keys=True)


def _entry(port: Port) -> dict[str, Any]:
    entry = {
        "name": port.name,
        "role": port.role,
        "layout": port.layout,
        "range": None if port.range is None else list(port.range),
        "multiple": port.multiple,
        "dtype": port.dtype,
    }
    return {key: value for key, value in entry.items() if value is not None}


def read_ports(text: str, where: str) -> tuple[Port, ...]:
    """Return the ports that are listed, with all axes free.

    A missing key has the default of `Port`; an unknown one is ignored.

    Args:
        text: The JSON.
        where: What it is, for the message: ``the metadata entry nystra.io``.

    Raises:
        NystraError: It is not of that form, or a number or text in it is out of range.
    """
    if len(text) > _LONGEST_TEXT:
        raise NystraError(f"{where} has {len(text)} characters: it is damaged")
    entries = parse_json(text, where)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise NystraError(f"{where} is {text[:200]!r}, expected a list of objects")
    ports = tuple(_port(entry, where) for entry in entries[: _MAX_PORTS + 1])
    if len({port.name for port in ports}) != len(entries):
        raise NystraError(
            f"{where} lists {len(entries)} tensors, expected at most {_MAX_PORTS} different ones"
        )
    return ports


def read_range(where: str, value: Any) -> tuple[float, float]:
    """Return the lowest and the highest value of an entry.

    Raises:
        NystraError: It is not two finite numbers in that order.
    """
    if isinstance(value, list) and len(value) == 2 and all(_is_value(item) for item in value):
        low, high = float(value[0]), float(value[1])
        if low < high:
            return low, high
    raise NystraError(f"{where} has the range {quote(value)}, expected two numbers [low, high]")


def read_count(where: str, value: Any, largest: int) -> int:
    """Return a whole number from 1 to ``largest``.

    Raises:
        NystraError: It is none.
    """
    if is_whole(value) and 1 <= value <= largest:
        return value
    raise NystraError(
        f"{where} has the number {quote(value)}, expected a whole number from 1 to {largest}"
    )


def _port(entry: dict[str, Any], listing: str) -> Port:
    where = f"{listing} of {quote(entry.get('name'))}"
    texts = {"name": None, "role": None, "dtype": Port.dtype} | entry
    for key in ("name", "role", "dtype"):
        if not isinstance(texts[key], str) or not is_plain_name(texts[key]):
            raise NystraError(f"{where} has the {key} {quote(texts[key])}, expected {PLAIN_NAME}")
    return Port(
        texts["name"],
        texts["role"],
        _axes(where, entry["layout"]) if "layout" in entry else IMAGE_AXES,
        range=read_range(where, entry["range"]) if entry.get("range") is not None else None,
        multiple=read_count(where, entry.get("multiple", 1), AXES["height"].largest),
        dtype=texts["dtype"],
    )


def _axes(where: str, layout: Any) -> tuple[str, ...]:
    is_unique = isinstance(layout, str) and len(set(layout)) == len(layout) <= len(_AXIS_OF)
    if not is_unique or not layout or not set(layout) <= _AXIS_OF.keys():
        raise NystraError(
            f"{where} has the layout {quote(layout)}, expected letters of "
            f"{''.join(_AXIS_OF)} such as NCHW, each once"
        )
    return tuple(_AXIS_OF[letter] for letter in layout)


def _is_value(value: Any) -> bool:
    return is_number(value) and abs(value) <= _LARGEST_VALUE
