"""Options that several records have, each said here once; a record may change the default."""

from __future__ import annotations

from ..core.option_kinds import Bytes, File, FileOrWord, Number, Switch, Text

TILE = Number(0, "side of a tile", 0, unit="input pixels", usual="0, by the memory", short="t")
OVERLAP = Number(
    None, "overlap of the tiles", 0, unit="input pixels", usual="32, less where tiles are small"
)
MAX_MEMORY = Bytes(None, "what the process may take in all, such as 4G", 1, usual="what is free")
BACKEND = Text("auto", "what runs the model", metavar="NAME")
BATCH = Number(8, "images of different requests in one run of a model", 1)
THREADS = Number(None, "threads", 1, usual="all cores")
WORKERS = Number(
    None, "processes that hold the model", 1, usual="as many as the CPUs or GPUs allow"
)
LIBRARY = FileOrWord(
    "auto",
    "the operator or plugin library; none runs the standard-operator bodies",
    ("auto", "none"),
)
EP_LIBRARY = File(
    None, "a plug-in of onnxruntime, for ort:NAME", usual="that of an installed package"
)
PRECISION = Text(
    None,
    "what the backend computes in: bf16 is bfloat16, with openvino",
    usual="as the file says",
    metavar="bf16",
)
OVERWRITE = Switch("replace what is there")
FORMAT = Text(None, "png, jpg, tif or webp", usual="the input's, else png", metavar="NAME")
QUALITY = Number(None, "of JPEG and of WebP", 1, 100, usual="95 of JPEG, lossless of WebP")
MASK = File(
    None,
    "of a model that fills holes: white = fill, same size as the picture",
    metavar="FILE|FOLDER",
)
REFERENCE = File(None, "of a model that copies from another picture", metavar="FILE|FOLDER")
TOP = Number(5, "classes of each picture, best first", 1, metavar="K")
LABELS = File(
    None, "what the classes are called, one a line or a JSON list", usual="the model's own"
)
