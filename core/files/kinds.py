"""Names files by their first bytes, for messages about files that are not what was expected."""

from __future__ import annotations

HEAD = 512
"""How many first bytes `file_kind` looks at."""

_UNPACK = "unpack it first"
_PAGE = "a web page: use the direct download link of the file"
VIDEO = "a video"
RAW = "a raw photograph of a camera"
_KINDS = (
    (0, b"version https://git-l", "a Git LFS pointer: fetch the file itself (git lfs pull)"),
    (0, b"<!DOCTYPE", _PAGE),
    (0, b"<!doctype", _PAGE),
    (0, b"<html", _PAGE),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (8, b"WEBPVP8", "a WebP image"),
    (8, b"CR\x02", RAW),
    (4, b"ftypcrx", RAW),
    (0, b"FUJIFILMCCD-RAW", RAW),
    *((4, b"ftyp" + brand, "a HEIF image") for brand in (b"heic", b"heix", b"mif1", b"msf1")),
    (0, b"\x00\x00\x00\x0cJXL ", "a JPEG XL image"),
    (0, b"\xff\x0a", "a JPEG XL image"),
    (0, b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image"),
    (0, b"\x76\x2f\x31\x01", "an OpenEXR image"),
    (0, b"8BPS", "a Photoshop document"),
    (0, b"<svg", "an SVG drawing"),
    (0, b"%PDF", "a PDF document"),
    *((4, b"ftyp" + brand, VIDEO) for brand in (b"isom", b"mp4", b"qt  ", b"M4V", b"iso")),
    (0, b"\x1a\x45\xdf\xa3", VIDEO),
    (8, b"AVI LIST", VIDEO),
    (0, b"\x1f\x8b", f"gzip-compressed: {_UNPACK} (gunzip)"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive: {_UNPACK}"),
    (0, b"Rar!", f"a RAR archive: {_UNPACK}"),
    (0, b"\xfd7zXZ", f"xz-compressed: {_UNPACK} (unxz)"),
    (0, b"\x28\xb5\x2f\xfd", f"zstd-compressed: {_UNPACK} (unzstd)"),
    (0, b"BZh", f"bzip2-compressed: {_UNPACK} (bunzip2)"),
    (257, b"ustar", f"a tar archive: {_UNPACK} (tar xf)"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file of Keras or TensorFlow"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ET12", "an ExecuTorch program"),
    (4, b"PTMF", "a PyTorch mobile program"),
    (0, b"ftrt", "a TensorRT engine"),
    (0, b"7767517\n", "a network of ncnn"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"<?xml", "an XML document"),
)
"""(place, first bytes, what the file is)."""

ONNX = "an ONNX model"
_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"


def file_kind(head: bytes) -> str:
    """Return what a file is, as "a PNG image", and how to get the one that it stands for, or "".

    Archives of zip have no name here: checkpoints and references are such.

    Args:
        head: Its first bytes, `HEAD` or all.
    """
    for place, magic, kind in _KINDS:
        if head[place:].startswith(magic):
            return kind
    # A message of protobuf: the version of the format, then one of the model's other fields.
    if len(head) > 2 and head[0] == 8 and 3 <= head[1] <= 20 and head[2] in _ONNX_FIELDS:
        return ONNX
    return ""
