"""The name that a model gets in another program: that of a folder or a file there."""

from __future__ import annotations

import re

from ..core.errors import NystraError

_LONGEST = 128
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*\.|__.*__", re.IGNORECASE)
"""Names of devices of Windows, which has no file of that name or with a dot at its end, and names
that Python knows, such as ``__init__``."""


def is_model_name(name: str, *, dots: bool = True) -> bool:
    """Return whether a name is a plain folder name on every system.

    Args:
        name: The name.
        dots: Whether it may contain dots, though not at its ends.
    """
    pattern = rf"[A-Za-z0-9_][A-Za-z0-9_{'.-' if dots else '-'}]{{0,{_LONGEST - 1}}}"
    return re.fullmatch(pattern, name) is not None and _RESERVED.fullmatch(name) is None


def check_model_name(name: str | None, *, dots: bool = True) -> None:
    """Refuse a name that `is_model_name` refuses; None is accepted.

    Args:
        name: The requested name.
        dots: As `is_model_name` takes it.

    Raises:
        NystraError: It is none.
    """
    if name is not None and not is_model_name(name, dots=dots):
        words = "_ . and -" if dots else "_ and -"
        raise NystraError(
            f"`name` is {name!r}, expected letters, digits, {words}, and none that Windows or "
            "Python reserves: give another"
        )
