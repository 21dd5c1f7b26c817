"""The table of mechanisms; importing it imports none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...core.errors import NystraError
from .mechanism import Mechanism

MECHANISMS: dict[str, str] = {
    "full": "Full",
    "nystra": "Nystra",
    "nystromformer": "Nystromformer",
    "cluster": "Cluster",
    "psal": "Psal",
    "linformer": "Linformer",
    "performer": "Performer",
    "as_trained": "AsTrained",
}
"""Name, which is also the folder -> class in its ``parameters.py``."""


def mechanism_class(name: str) -> type[Mechanism]:
    """Return the parameters' class of a mechanism.

    Raises:
        NystraError: There is no such mechanism.
    """
    if name not in MECHANISMS:
        raise NystraError(f"mechanism {name!r:.40} is unknown; known are {', '.join(MECHANISMS)}")
    module = import_module(f".{name}.parameters", __package__)
    kind: type[Mechanism] = getattr(module, MECHANISMS[name])
    return kind


def mechanism(name: str, **parameters: Any) -> Mechanism:
    """Return a mechanism with parameters: ``mechanism("nystra", landmarks=(2, 4))``.

    Raises:
        NystraError: There is no such mechanism or parameter, or a value is out of range.
    """
    kind = mechanism_class(name)
    for key in parameters:
        refuse_foreign(key, key, kind)
    return kind(**parameters)


def refuse_foreign(key: str, shown: str, kind: type[Mechanism], owner: str = "") -> None:
    """Raise NystraError where a mechanism has no such parameter.

    Args:
        key: Name of the parameter.
        shown: The user's name for it.
        kind: The mechanism.
        owner: The user's name for the mechanism; "": its own name.
    """
    if key in kind.declared():
        return
    owner = owner or kind.name
    users = [name for name in MECHANISMS if key in mechanism_class(name).declared()]
    if users:
        prefix = owner.removesuffix(kind.name)
        raise NystraError(
            f"{shown} does not apply to {owner}: it is for {prefix}{' or '.join(users)}"
        )
    known = ", ".join(kind.declared()) or "no parameters"
    raise NystraError(f"unknown key {shown!r:.40}; {owner} has {known}")
