"""Names files that are no checkpoints, by their first bytes, and says how to get one from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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

_MAGIC = (
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"%PDF", "a PDF document"),
    (0, b"<!DOCTYPE", "a web page: use the direct download link of the file"),
    (0, b"<!doctype", "a web page: use the direct download link of the file"),
    (0, b"<html", "a web page: use the direct download link of the file"),
    (0, b"\x1f\x8b", f"gzip-compressed: {_UNPACK} (gunzip)"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive: {_UNPACK}"),
    (0, b"Rar!", f"a RAR archive: {_UNPACK}"),
    (0, b"\xfd7zXZ", f"xz-compressed: {_UNPACK} (unxz)"),
    (0, b"\x28\xb5\x2f\xfd", f"zstd-compressed: {_UNPACK} (unzstd)"),
    (0, b"BZh", f"bzip2-compressed: {_UNPACK} (bunzip2)"),
    (
        257,
        b"ustar",
        f"a tar archive: {_UNPACK} (tar xf), or save a checkpoint of PyTorch before 0.1.10 again",
    ),
    (0, b"version https://git-l", "a Git LFS pointer: fetch the file itself (git lfs pull)"),
    (0, b"GGUF", f"a GGUF model; {_SOURCE}"),
    (0, b"\x89HDF\r\n\x1a\n", f"an HDF5 file of Keras or TensorFlow: {_KERAS}"),
    (4, b"TFL3", f"a TensorFlow Lite model: {_TFLITE}"),
    (4, b"ET12", f"an ExecuTorch program; {_SOURCE}"),
    (4, b"PTMF", f"a PyTorch mobile program; {_SOURCE}"),
    (0, b"7767517\n", f"a network of ncnn; {_SOURCE}"),
    (0, b"\x93NUMPY", "a NumPy array: save the tensors by name with safetensors.numpy.save_file"),
    (0, b"<?xml", f"an XML document, perhaps an OpenVINO model; {_SOURCE}"),
)
"""(place, first bytes, what the file is and what to do)."""

_ONNX = "an ONNX model; give the checkpoint that it was exported from"
_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"
_SAVED_MODEL = f"a TensorFlow graph: {_SAVED}"
_ENDINGS = {
    ".onnx": _ONNX,
    ".pb": _SAVED_MODEL,
    ".index": "part of a TensorFlow checkpoint: export its network to ONNX, which nystra-export "
    "takes",
    ".engine": f"a TensorRT engine; {_SOURCE}",
}


def file_kind(path: Path, head: bytes) -> str:
    """Return what a file is and how to get a checkpoint from it; "" if it may be one.

    Args:
        path: The file, of which only the name is used.
        head: Its first bytes, 512 or all.
    """
    for place, magic, kind in _MAGIC:
        if head[place:].startswith(magic):
            return kind
    ending = _ENDINGS.get(path.suffix.lower(), "")
    if ending:
        return ending
    # A message of protobuf: the version of the format, then one of the model's other fields.
    if len(head) > 2 and head[0] == 8 and 3 <= head[1] <= 20 and head[2] in _ONNX_FIELDS:
        return _ONNX
    return ""


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
    shown = first_named([f"{name!r:.60}" for name in inside], 3)
    return f"a zip archive of {shown or 'nothing'}: {_UNPACK} (unzip) and give the file in it"
