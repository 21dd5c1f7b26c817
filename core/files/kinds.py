"""Names files by their first bytes, for messages about files that are not what was expected."""

from __future__ import annotations

import enum

HEAD = 512
"""How many first bytes `file_kind` looks at."""


class FileKind(enum.Enum):
    """What a file is. Each value says it, and how to get the file that it stands for."""

    LFS_POINTER = "a Git LFS pointer: fetch the file itself (git lfs pull)"
    PAGE = "a web page: use the direct download link of the file"
    PNG = "a PNG image"
    JPEG = "a JPEG image"
    GIF = "a GIF image"
    WEBP = "a WebP image"
    RAW = "a raw photograph of a camera"
    HEIF = "a HEIF image"
    JPEG_XL = "a JPEG XL image"
    JPEG_2000 = "a JPEG 2000 image"
    OPENEXR = "an OpenEXR image"
    PHOTOSHOP = "a Photoshop document"
    SVG = "an SVG drawing"
    PDF = "a PDF document"
    VIDEO = "a video"
    GZIP = "gzip-compressed: unpack it first (gunzip)"
    SEVEN_ZIP = "a 7z archive: unpack it first"
    RAR = "a RAR archive: unpack it first"
    XZ = "xz-compressed: unpack it first (unxz)"
    ZSTD = "zstd-compressed: unpack it first (unzstd)"
    BZIP2 = "bzip2-compressed: unpack it first (bunzip2)"
    TAR = "a tar archive: unpack it first (tar xf)"
    GGUF = "a GGUF model"
    HDF5 = "an HDF5 file of Keras or TensorFlow"
    TFLITE = "a TensorFlow Lite model"
    EXECUTORCH = "an ExecuTorch program"
    TORCH_MOBILE = "a PyTorch mobile program"
    TENSORRT = "a TensorRT engine"
    NCNN = "a network of ncnn"
    NUMPY = "a NumPy array"
    XML = "an XML document"
    ONNX = "an ONNX model"
    TENSORFLOW_GRAPH = "a TensorFlow graph"
    TENSORFLOW_PART = "part of a TensorFlow checkpoint"

    def __str__(self) -> str:
        return self.value


_KINDS = (
    (0, b"version https://git-l", FileKind.LFS_POINTER),
    (0, b"<!DOCTYPE", FileKind.PAGE),
    (0, b"<!doctype", FileKind.PAGE),
    (0, b"<html", FileKind.PAGE),
    (0, b"\x89PNG", FileKind.PNG),
    (0, b"\xff\xd8\xff", FileKind.JPEG),
    (0, b"GIF8", FileKind.GIF),
    (8, b"WEBPVP8", FileKind.WEBP),
    (8, b"CR\x02", FileKind.RAW),
    (4, b"ftypcrx", FileKind.RAW),
    (0, b"FUJIFILMCCD-RAW", FileKind.RAW),
    *((4, b"ftyp" + brand, FileKind.HEIF) for brand in (b"heic", b"heix", b"mif1", b"msf1")),
    (0, b"\x00\x00\x00\x0cJXL ", FileKind.JPEG_XL),
    (0, b"\xff\x0a", FileKind.JPEG_XL),
    (0, b"\x00\x00\x00\x0cjP  ", FileKind.JPEG_2000),
    (0, b"\x76\x2f\x31\x01", FileKind.OPENEXR),
    (0, b"8BPS", FileKind.PHOTOSHOP),
    (0, b"<svg", FileKind.SVG),
    (0, b"%PDF", FileKind.PDF),
    *((4, b"ftyp" + brand, FileKind.VIDEO) for brand in (b"isom", b"mp4", b"qt  ", b"M4V", b"iso")),
    (0, b"\x1a\x45\xdf\xa3", FileKind.VIDEO),
    (8, b"AVI LIST", FileKind.VIDEO),
    (0, b"\x1f\x8b", FileKind.GZIP),
    (0, b"7z\xbc\xaf\x27\x1c", FileKind.SEVEN_ZIP),
    (0, b"Rar!", FileKind.RAR),
    (0, b"\xfd7zXZ", FileKind.XZ),
    (0, b"\x28\xb5\x2f\xfd", FileKind.ZSTD),
    (0, b"BZh", FileKind.BZIP2),
    (257, b"ustar", FileKind.TAR),
    (0, b"GGUF", FileKind.GGUF),
    (0, b"\x89HDF\r\n\x1a\n", FileKind.HDF5),
    (4, b"TFL3", FileKind.TFLITE),
    (4, b"ET12", FileKind.EXECUTORCH),
    (4, b"PTMF", FileKind.TORCH_MOBILE),
    (0, b"ftrt", FileKind.TENSORRT),
    (0, b"7767517\n", FileKind.NCNN),
    (0, b"\x93NUMPY", FileKind.NUMPY),
    (0, b"<?xml", FileKind.XML),
)
"""(place, first bytes, what the file is)."""

_ONNX_FIELDS = b"\x12\x1a\x22\x2a\x32\x3a\x42"


def file_kind(head: bytes) -> FileKind | None:
    """Return what a file is, or None if its first bytes do not tell.

    Archives of zip have no name here: checkpoints and references are such.

    Args:
        head: Its first bytes, `HEAD` or all.
    """
    for place, magic, kind in _KINDS:
        if head[place:].startswith(magic):
            return kind
    # A message of protobuf: the version of the format, then one of the model's other fields.
    if len(head) > 2 and head[0] == 8 and 3 <= head[1] <= 20 and head[2] in _ONNX_FIELDS:
        return FileKind.ONNX
    return None
