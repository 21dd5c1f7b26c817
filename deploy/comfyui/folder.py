"""Writing the folder of a model for ComfyUI."""

from __future__ import annotations

import os
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.writing import atomic_folder
from ...runtime.model.model_copy import ModelCopy
from ...runtime.session import Session
from ...runtime.tasks.restoration.restorer import restorer_for
from .options import ComfyUIOptions

_INIT = '''"""A node of ComfyUI, by nystra with its extra ort."""

from pathlib import Path

from nystra.deploy.comfyui.node import node_of

NODE_CLASS_MAPPINGS = {{{key!r}: node_of(Path(__file__).with_name({model!r}))}}
NODE_DISPLAY_NAME_MAPPINGS = {{{key!r}: {title!r}}}
'''


def write_node(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    options: ComfyUIOptions | None = None,
) -> Path:
    """Write a model as a node of ComfyUI: one folder, atomically.

    Args:
        model: The ONNX file.
        folder: ComfyUI's ``custom_nodes``, in which the model's folder is written.
        options: The options.

    Returns:
        The model's folder in it.

    Raises:
        NystraError: The file has more inputs than one image, or the folder exists already.
        BackendUnavailableError: No installed backend can load the file to read its inputs.
    """
    options = options or ComfyUIOptions()
    path = Path(model)
    name = options.name or path.stem
    ComfyUIOptions(name=name)  # a stem may be no name of a node
    session = Session(path)
    restorer = restorer_for(session)
    if restorer.auxiliary:
        names = ", ".join(port.name for port in restorer.auxiliary)
        raise NystraError(
            f"{model} takes {names} besides an image, and the node supports a single image; "
            "see docs/engines.md"
        )
    copy = ModelCopy.of(path)
    target = Path(folder, f"nystra-{name}")
    with atomic_folder(target, overwrite=options.overwrite) as scratch:
        written = copy.write(scratch)
        title = f"{name} ({restorer.scale}x)"
        text = _INIT.format(key=target.name, model=written.name, title=title)
        (scratch / "__init__.py").write_text(text, encoding="utf-8")
    return target
