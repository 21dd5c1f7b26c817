"""Options that several records have, each declared once; a record may change the default."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from ..core.option import Option, Options, option
from ..core.option_kinds import Bytes, File, FileOrWord, Number, Pairs, Switch, Text
from ..core.ports.port import ValueRanges

InputValue: TypeAlias = "str | os.PathLike[str] | float | Sequence[float]"
"""What is given for an input: numbers, also as a text with commas between them, or a path."""

_MAX_SIDE = 1 << 16

TILE = Number(
    0,
    "side of a tile",
    0,
    unit="input pixels",
    default_text="0, chosen by the free memory",
    short="t",
    hard_maximum=_MAX_SIDE,
)
OVERLAP = Number(
    None,
    "overlap of the tiles",
    0,
    unit="input pixels",
    default_text="32, less for small tiles",
    hard_maximum=_MAX_SIDE,
)
MAX_MEMORY = Bytes(
    None, "memory limit of the process, such as 4G", 1, default_text="the free memory"
)
BACKEND = Text("auto", "backend", metavar="NAME")
BATCH = Number(
    8, "maximum number of images per run, also of different requests", 1, hard_maximum=4096
)
THREADS = Number(None, "threads", 1, default_text="all cores", hard_maximum=512)
WORKERS = Number(None, "worker processes", 1, default_text="one per CPU or GPU", hard_maximum=1024)
LIBRARY = FileOrWord(
    "auto",
    "the operator or plugin library; none runs the standard-operator bodies",
    ("auto", "none"),
)
EP_LIBRARY = File(
    None,
    "plug-in library of an execution provider, for ort:NAME",
    default_text="that of an installed package",
)
PRECISION = Text(
    None,
    "precision of the computation: bf16 is bfloat16, with openvino",
    default_text="that of the file",
    metavar="bf16",
)
RANGE = ValueRanges(
    None,
    "values that the model takes and returns, 0..255 or -1..1, or two if they differ: 0..1,0..255",
    default_text="those of the file, else measured",
)
OVERWRITE = Switch("replace existing files")
FORMAT = Text(None, "png, jpg, tif or webp", default_text="the input's, else png", metavar="NAME")
QUALITY = Number(
    None, "JPEG or WebP quality", 1, 100, default_text="95 for JPEG, lossless for WebP"
)
MASK = File(
    None,
    "mask for inpainting: white is filled; same size as the image",
    metavar="FILE|FOLDER",
)
REFERENCE = File(None, "reference image, for models that take one", metavar="FILE|FOLDER")
INPUTS = Pairs(
    None,
    "another input by its name, such as step=0.5 or text=TOKENS.npy: a number, numbers with commas "
    "between them, a .npy or image file, or a folder of such files; may be repeated",
)
TOP = Number(5, "number of classes per image, best first", 1, metavar="K")
LABELS = File(None, "class labels, one per line or a JSON list", default_text="those of the model")


LOCAL = "local"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True)
class Address(Option):
    """``HOST:PORT`` of a cluster, or ``local``."""

    _expected: ClassVar[str] = (
        "local or HOST:PORT, as `ray start --head` prints it (port 6379, not the client's ray://)"
    )

    def _convert(self, name: str, value: Any) -> str:
        if value != LOCAL and not (isinstance(value, str) and _ADDRESS.fullmatch(value)):
            raise self.make_error(name, value)
        return str(value)


@dataclass(frozen=True)
class ClusterOptions(Options):
    """Which cluster, and how much of it."""

    address: str = option(
        Address(
            LOCAL,
            "distribute the images of a folder or the frames of a video over a Ray cluster that "
            "this machine belongs to, or over local processes; `threads` is then per worker, "
            "default 1",
            flag="--ray",
            metavar="HOST:PORT|local",
            default_text="not used",
        )
    )
    workers: int | None = option(WORKERS)
    threads: int = option(
        THREADS, default=1, doc="threads of a worker, and the CPUs that Ray reserves for it"
    )
    library: str = option(LIBRARY)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the address."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)
