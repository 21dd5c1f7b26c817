"""The name that a model gets in another program: that of a folder or a file there."""

from __future__ import annotations

import re

from ..core.errors import NystraError

_LONGEST = 128


def check_model_name(name: str | None, *, dots: bool = True) -> None:
    """Refuse a name that is not a plain folder name; None is accepted.

    Args:
        name: The requested name.
        dots: Whether it may contain dots, though not begin with one.

    Raises:
        NystraError: It is none.
    """
    signs, words = ("_.-", "_ . and -") if dots else ("_-", "_ and -")
    plain = rf"[A-Za-z0-9_][A-Za-z0-9{signs}]{{0,{_LONGEST - 1}}}"
    if name is not None and not re.fullmatch(plain, name):
        raise NystraError(f"`name` is {name!r}, expected letters, digits, {words}: give another")
