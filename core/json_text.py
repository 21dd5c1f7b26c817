"""Writing JSON: the same bytes for the same content, and no NaN or infinity.

`core.strict_json` reads JSON of other programs.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

PSNR_CAP = 200.0
"""The value in JSON of an infinite figure in dB, larger than float32 can reach."""


def json_number(value: float) -> float | None:
    """Return a number that JSON can hold.

    Args:
        value: Any number; an infinite one (the PSNR of equal images) becomes `PSNR_CAP` with
            its sign, NaN becomes None.
    """
    number = float(value)
    if math.isnan(number):
        return None
    if math.isinf(number):
        return math.copysign(PSNR_CAP, number)
    return number


def stable_json(value: Any) -> bytes:
    """Return UTF-8 JSON with sorted keys, two spaces of indent and a final newline.

    Tuples become lists, numpy scalars Python numbers, NaN null, infinities the cap of
    `json_number`, and texts what `utf8_text` returns.
    """
    text = json.dumps(_plain(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8")


def utf8_text(text: str) -> str:
    r"""Return a text that UTF-8 can hold: bytes of a file name that are none become ``\xff``."""
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogatepass")
    with contextlib.suppress(UnicodeEncodeError):  # a surrogate that stands for no byte
        data = text.encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return utf8_text(value)
    if isinstance(value, Mapping):
        return {utf8_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _plain(value.item())
    if isinstance(value, float):
        return json_number(value)
    return value
