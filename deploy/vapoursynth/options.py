"""The options of a model in VapourSynth."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import Number, Text
from ...runtime.options import OVERLAP, OVERWRITE, TILE
from ..model_name import check_model_name


@dataclass(frozen=True)
class VapourSynthOptions(Options):
    """Options of a VapourSynth script.

    Attributes:
        name: Name of the folder and the script.
        tile: Side of a tile with both margins, in input pixels; 0: whole frames.
        overlap: Margin on each side of a tile that is computed and cropped.
        streams: Frames that are computed in parallel.
        overwrite: Replace the folder.
    """

    name: str | None = option(
        Text(None, "name of the folder", default_text="the stem of the file", metavar="NAME")
    )
    tile: int = option(TILE, default_text="0, whole frames")
    overlap: int | None = option(OVERLAP, default_text="16")
    streams: int = option(Number(1, "frames computed in parallel", 1, hard_maximum=256))
    overwrite: bool = option(OVERWRITE, doc="replace an existing folder of the model")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_name(self.name)
        if self.tile and self.tile <= 2 * self.margin:
            raise NystraError(
                f"`tile` is {self.tile} and `overlap` {self.margin}: the tile has to be more "
                "than twice the overlap, which is cropped on each side"
            )

    @property
    def margin(self) -> int:
        """The overlap in use."""
        return 16 if self.overlap is None else self.overlap
