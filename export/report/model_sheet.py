"""The sheet of a model file: its images, compared with full attention in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.arrays import Array
from ...runtime.images.images import image_format
from ...runtime.session import Session
from ...runtime.tasks.restoration.restorer import Restorer, restorer_for
from .scenes import find_shipped_scenes, scene_side, user_scenes
from .sheet import SheetRow, draw_sheet, run_scenes

if TYPE_CHECKING:
    from ..load.source import Source


@dataclass(frozen=True)
class UserImages:
    """Images of the user.

    Attributes:
        images: The inputs of the model, a file or a folder.
        truth: The expected outputs.
        auxiliary: Masks, references and the like, by the role or the name of the input.
    """

    images: Path
    truth: Path
    auxiliary: Mapping[str, Path | Array]


def sheet_restorer(sheet: Path, session: Session) -> Restorer:
    """Return the model as a restorer of images, before the work for the sheet begins.

    Raises:
        NystraError: The suffix of the sheet is not that of an image, or the model does not return
            images.
    """
    image_format(sheet)
    return restorer_for(session)


def draw_model_sheet(
    sheet: Path,
    session: Session,
    restorer: Restorer,
    source: Source | None,
    images: UserImages | None = None,
) -> None:
    """Draw the outputs of a model file for images.

    Args:
        sheet: The output file.
        session: The model file.
        restorer: The model file as a restorer, from `sheet_restorer`.
        source: The source that it was exported from, to show full attention too, or None.
        images: Images of the user, or None for the shipped photographs.

    Raises:
        NystraError: An image cannot be read or run, or the sheet cannot be written.
    """
    rows = model_rows(session, restorer, source, images)
    draw_sheet(sheet, rows, restorer.scale, session.path.name)


def model_rows(
    session: Session,
    restorer: Restorer,
    source: Source | None,
    images: UserImages | None = None,
    max_side: int = 1 << 16,
) -> list[SheetRow]:
    """Return the outputs of a model file for images; see `draw_model_sheet`.

    Args:
        session: As in `draw_model_sheet`.
        restorer: As in `draw_model_sheet`.
        source: As in `draw_model_sheet`.
        images: As in `draw_model_sheet`.
        max_side: Largest side of an output that is shown, in pixels.
    """
    exact = None if source is None else _in_torch(restorer, source)
    unbounded = exact is not None and session.facts.window is None
    side = scene_side(restorer, small=unbounded or session.facts.quadratic_bytes > 0)
    side = min(side, max_side // restorer.scale)
    if images is None:
        scenes = find_shipped_scenes(restorer, side)
    else:
        scenes = user_scenes(images.images, images.truth, images.auxiliary, restorer, side)
    return run_scenes(scenes, restorer, exact)


def _in_torch(restorer: Restorer, source: Source) -> Restorer:
    from ..pytorch.network_session import NetworkSession

    ports = source.loaded.facts
    outputs = [port.name for port in ports.outputs]
    backend = NetworkSession(source.exact(), outputs=outputs)
    image, *others = (port.name for port in ports.inputs)

    def function(array: Any, **more: Any) -> Any:
        feeds = {image: array, **{name: more[name] for name in others}}
        return backend.run(feeds)[ports.outputs[0].name]

    return replace(restorer, function=function, meter=None, trial=None)
