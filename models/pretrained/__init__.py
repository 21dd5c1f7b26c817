"""Small checkpoints of our own, each a ``.safetensors`` file with its model card next to it."""

from __future__ import annotations

import os
from pathlib import Path

from ...core.errors import NystraError

_FOLDER = Path(__file__).resolve().parent


def pretrained_path(name: str = "swinir_x2_w16") -> Path:
    """Return the file of a shipped checkpoint.

    Args:
        name: File name without its suffix; the model card is ``<name>.md`` next to the file.

    Raises:
        NystraError: No such checkpoint is shipped.
    """
    names = sorted(file.stem for file in _FOLDER.glob("*.safetensors"))
    if name not in names:
        raise NystraError(
            f"no file and no shipped checkpoint has the name {name!r:.80}; shipped checkpoints: "
            f"{', '.join(names)}"
        )
    return _FOLDER / f"{name}.safetensors"


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """Return the file that is meant: a bare name that is not a file is a shipped checkpoint.

    Raises:
        NystraError: It is a bare name, and no such checkpoint is shipped.
    """
    file = Path(path)
    bare = file.name == str(file) and not file.suffix
    return pretrained_path(file.name) if bare and not os.path.lexists(file) else file
