"""The options of a model in ComfyUI."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import Text
from ...runtime.options import OVERWRITE

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")


@dataclass(frozen=True)
class ComfyUIOptions(Options):
    """How ComfyUI shows a model; tiles and backend are inputs of the node.

    Attributes:
        name: Of the folder and the node.
        overwrite: Replace the folder.
    """

    name: str | None = option(
        Text(None, "name of the folder and of the node", usual="the stem of the file")
    )
    overwrite: bool = option(OVERWRITE, doc="replace the model's folder")

    def __post_init__(self) -> None:
        """Refuse what is no name of a node.

        Raises:
            NystraError: It is none.
        """
        super().__post_init__()
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise NystraError(
                f"`name` is {self.name!r}, expected letters, digits, _ and -: give another"
            )
