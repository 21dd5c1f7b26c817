"""Writing the folder of a model for VapourSynth."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.writing import atomic_folder
from ...runtime.session import Session
from ..host_model import HostModel
from .options import VapourSynthOptions
from .rules import vapoursynth_problems
from .script import script


def write_script(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    options: VapourSynthOptions | None = None,
) -> Path:
    """Write a model and a VapourSynth script that runs it: one folder, atomically.

    Args:
        model: The ONNX file.
        folder: Where the model's folder is written, which is created.
        options: The options.

    Returns:
        The model's folder in it: ``model.onnx`` and ``<name>.vpy``.

    Raises:
        NystraError: The plug-in of VapourSynth cannot run the file, or the folder exists already.
        BackendUnavailableError: No installed backend can load the file to read its inputs.
    """
    options = options or VapourSynthOptions()
    session = Session(model)
    if problems := vapoursynth_problems(session):
        raise NystraError(
            f"{model} does not run in VapourSynth: {'; '.join(problems)}; see docs/engines.md"
        )
    entry = HostModel.of(session)
    if entry.channels[0] != entry.channels[1]:
        raise NystraError(
            f"{model} takes {entry.channels[0]} channels and returns {entry.channels[1]}: in "
            "VapourSynth both have to be equal"
        )
    name = options.name or entry.path.stem
    VapourSynthOptions(name=name)  # a stem may be no name of a folder
    target = Path(folder, name)
    with atomic_folder(target, overwrite=options.overwrite) as scratch:
        shutil.copyfile(entry.path, scratch / "model.onnx")
        (scratch / f"{name}.vpy").write_text(script(name, entry, options), encoding="utf-8")
    return target
