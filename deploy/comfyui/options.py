"""The options of a model in ComfyUI."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.option import Options, option
from ...core.option_kinds import Text
from ...runtime.options import OVERWRITE
from ..model_name import check_model_name


@dataclass(frozen=True)
class ComfyUIOptions(Options):
    """Options of a ComfyUI node; tiles and backend are inputs of the node.

    Attributes:
        name: Name of the folder and the node.
        overwrite: Replace the folder.
    """

    name: str | None = option(
        Text(None, "name of the folder and of the node", default_text="the stem of the file")
    )
    overwrite: bool = option(OVERWRITE, doc="replace an existing folder of the model")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_name(self.name, dots=False)
