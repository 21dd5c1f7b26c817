"""ncnn on files that pnnx converts from an ONNX file, in float32."""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from studies.engines.workers.protocol import Request, Run, serve

GIGABYTES = 16
"""The most memory that pnnx may take."""


def convert(request: Request) -> None:
    """Write the two files of ncnn into the folder ``target``.

    Raises:
        RuntimeError: pnnx failed, and what it said last.
    """
    shape = ",".join(map(str, np.load(request["image"]).shape))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(request["source"], Path(folder) / "net.onnx")
        done = subprocess.run(
            ["pnnx", "net.onnx", f"inputshape=[{shape}]", "fp16=0"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_limit_memory,
        )
        made = Path(folder) / "net.ncnn.param"
        if done.returncode != 0 or not made.exists():
            text = done.stdout + done.stderr
            if "bad_alloc" in text:
                raise RuntimeError(f"pnnx takes more than {GIGABYTES} GB")
            said = text.strip().splitlines()[-1:]
            raise RuntimeError(f"pnnx ended with {done.returncode}: {' '.join(said)}")
        target = Path(request["target"])
        target.mkdir()
        for path in (made, made.with_suffix(".bin")):
            shutil.copy(path, target / path.name)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))


def open_engine(request: Request) -> Run:
    """Load the two files.

    Raises:
        RuntimeError: A layer is not there.
    """
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = request["threads"]
    for kind in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{kind}", False)
    path = Path(request["path"])
    if net.load_param(str(path / "net.ncnn.param")) != 0:
        raise RuntimeError(f"ncnn does not have {_missing(path, ncnn)}")
    net.load_model(str(path / "net.ncnn.bin"))

    def run(image: np.ndarray) -> np.ndarray:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(image[0]))
        status, output = extractor.extract("out0")
        if status != 0:
            raise RuntimeError(f"ncnn ended with {status}: a layer refused its input")
        return np.array(output)[None]

    return run


def _missing(path: Path, ncnn: object) -> str:
    """Return the layers of a file that ncnn does not have."""
    lines = (path / "net.ncnn.param").read_text().splitlines()[2:]
    kinds = sorted({line.split()[0] for line in lines})
    known = getattr(ncnn, "layer_to_index", None)
    unknown = [kind for kind in kinds if "." in kind or (known and known(kind) < 0)]
    return f"the layers {', '.join(unknown)}" if unknown else "a layer of the file"


if __name__ == "__main__":
    serve("ncnn", open_engine, convert)
