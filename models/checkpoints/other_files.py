"""Names files that are no checkpoints, by their first bytes, and says how to get one from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...core.files.kinds import FileKind, file_kind
from ...core.text import first_named

_SAVE = (
    "import torch; from safetensors.torch import save_file; "
    "save_file({values}, 'model.safetensors')"
)
_CLONED = "{{key: value.detach().clone() for key, value in {network}.state_dict().items()}}"
_UNPACK = "unpack it first"
_TO_ONNX = "convert it to ONNX, which nystra-export takes (python -m {} --output model.onnx)"
_KERAS = _TO_ONNX.format("tf2onnx.convert --keras MODEL.h5")
_TFLITE = _TO_ONNX.format("tf2onnx.convert --tflite MODEL.tflite")
_SAVED = _TO_ONNX.format("tf2onnx.convert --saved-model FOLDER")
_SOURCE = "nystra-export takes the checkpoint of PyTorch that it was converted from"

_HOW = {
    FileKind.HDF5: f": {_KERAS}",
    FileKind.TFLITE: f": {_TFLITE}",
    FileKind.NUMPY: ": save the tensors by name with safetensors.numpy.save_file",
    FileKind.XML: f", perhaps an OpenVINO model; {_SOURCE}",
    FileKind.TAR: ", or save a checkpoint of PyTorch before 0.1.10 again",
    FileKind.ONNX: "; give the checkpoint that it was exported from",
    FileKind.TENSORFLOW_GRAPH: f": {_SAVED}",
    FileKind.TENSORFLOW_PART: ": export its network to ONNX, which nystra-export takes",
    FileKind.GGUF: f"; {_SOURCE}",
    FileKind.EXECUTORCH: f"; {_SOURCE}",
    FileKind.TORCH_MOBILE: f"; {_SOURCE}",
    FileKind.NCNN: f"; {_SOURCE}",
    FileKind.TENSORRT: f"; {_SOURCE}",
}
"""What a file is -> how to get a checkpoint from it."""

_ENDINGS = {
    ".onnx": FileKind.ONNX,
    ".pb": FileKind.TENSORFLOW_GRAPH,
    ".index": FileKind.TENSORFLOW_PART,
    ".engine": FileKind.TENSORRT,
}


def checkpoint_kind(path: Path, head: bytes) -> str:
    """Return what a file is and how to get a checkpoint from it; "" if it may be one.

    Args:
        path: The file, of which only the name is used.
        head: Its first bytes, `HEAD` or all.
    """
    kind = file_kind(head)
    if kind in (None, FileKind.ONNX):
        kind = _ENDINGS.get(path.suffix.lower(), kind)
    if kind is None:
        return ""
    return kind.value + _HOW.get(kind, "")


def archive_kind(path: Path, names: Sequence[str]) -> str:
    """Return what a zip archive is, if ``torch.save`` did not write it, else "".

    Args:
        path: The archive, of which only the name is used.
        names: The files in it.
    """
    contents = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
    roots = {name.partition("/")[0] for name in names}
    if any(name.endswith(("/constants.pkl", "/code/__torch__.py")) for name in names):
        values = _CLONED.format(network=f"torch.jit.load({path.name!r:.100}, 'cpu')")
        return f"a TorchScript program. Save its tensors: {_SAVE.format(values=values)}"
    if any(
        name.rpartition("/")[2] in ("archive_format", "serialized_exported_program.json")
        for name in names
    ):
        values = _CLONED.format(network=f"torch.export.load({path.name!r:.100})").replace(
            ".state_dict()", ".state_dict"
        )
        return f"a program of torch.export. Save its tensors: {_SAVE.format(values=values)}"
    if len(contents) == 1 and len(roots) == 1:
        return ""
    if any(name.endswith(".weights.h5") for name in names):
        return (
            "a Keras model: export it to ONNX (keras.models.load_model(FILE).export('model.onnx', "
            "format='onnx')), which nystra-export takes"
        )
    if names and all(name.endswith(".npy") for name in names):
        return (
            "an archive of NumPy arrays: save them with safetensors.numpy.save_file(dict("
            f"numpy.load({path.name!r:.100})), 'model.safetensors')"
        )
    inside = [name for name in names if not name.endswith("/")]
    names_inside = first_named([f"{name!r:.60}" for name in inside], 3)
    return (
        f"a zip archive of {names_inside or 'nothing'}: {_UNPACK} (unzip) and give the file in it"
    )
