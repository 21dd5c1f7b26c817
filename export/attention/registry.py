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


PRESETS: dict[str, tuple[str, str]] = {
    "nystra-published": ("nystra", "NystraPublished"),
}
"""Name of parameters with a name -> folder of the mechanism, and class in its ``parameters.py``."""


def mechanism_class(name: str) -> type[Mechanism]:
    """Return the parameters' class of a mechanism or preset.

    Raises:
        NystraError: There is no such mechanism.
    """
    if name not in mechanism_names():
        raise NystraError(
            f"mechanism {name!r:.40} is unknown; known are {', '.join(mechanism_names())}"
        )
    folder, kind = PRESETS.get(name) or (name, MECHANISMS[name])
    mechanism: type[Mechanism] = getattr(import_module(f".{folder}.parameters", __package__), kind)
    return mechanism


def mechanism_names() -> tuple[str, ...]:
    """Return the names of all mechanisms and presets."""
    return (*MECHANISMS, *PRESETS)


def mechanism(name: str, **parameters: Any) -> Mechanism:
    """Return a mechanism with parameters: ``mechanism("nystra", landmarks=(2, 4))``.

    Raises:
        NystraError: There is no such mechanism or parameter, or a value is out of range.
    """
    kind = mechanism_class(name)
    for key in parameters:
        refuse_foreign(key, key, kind)
    return kind(**parameters)


def refuse_foreign(key: str, text: str, kind: type[Mechanism]) -> None:
    """Raise NystraError where a mechanism has no such parameter.

    Args:
        key: Name of the parameter.
        text: The user's name for it.
        kind: The mechanism.
    """
    if key in kind.list_options():
        return
    users = []
    for name in mechanism_names():
        if key in mechanism_class(name).list_options():
            users.append(name)
    if users:
        raise NystraError(f"{text} does not apply to {kind.name}: it is for {' or '.join(users)}")
    declared = ", ".join(kind.list_options()) or "no parameters"
    raise NystraError(f"unknown key {text!r:.40}; {kind.name} has {declared}")
