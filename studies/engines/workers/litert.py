"""LiteRT on a file that onnx2tf converts from an ONNX file, in float32."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from studies.engines.workers.protocol import Request, Run, serve


def convert(request: Request) -> None:
    """Write the file of LiteRT, its input and output as the ONNX file has them.

    Raises:
        RuntimeError: onnx2tf failed, and what it said last.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(request["source"], Path(folder) / "net.onnx")
        done = subprocess.run(
            ["onnx2tf", "-i", "net.onnx", "-o", "out", "-kat", "input", "-b", "1", "-n"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        made = Path(folder) / "out" / "net_float32.tflite"
        if not made.exists():
            lines = (done.stdout + done.stderr).strip().splitlines()
            said = [line for line in lines if "rror" in line][-1:] or lines[-1:]
            raise RuntimeError(f"onnx2tf ended with {done.returncode}: {' '.join(said)}")
        shutil.copy(made, request["target"])


def open_engine(request: Request) -> Run:
    """Open the file with the default delegate, XNNPACK.

    Where a file ends with a convolution, onnx2tf leaves the channels of its output last.
    """
    from ai_edge_litert.interpreter import Interpreter

    net = Interpreter(request["path"], num_threads=request["threads"])
    net.allocate_tensors()
    given, result = net.get_input_details()[0]["index"], net.get_output_details()[0]["index"]

    def run(image: np.ndarray) -> np.ndarray:
        net.set_tensor(given, image)
        net.invoke()
        output: np.ndarray = net.get_tensor(result)
        return output if output.shape[1] == image.shape[1] else output.transpose(0, 3, 1, 2)

    return run


if __name__ == "__main__":
    serve("ai-edge-litert", open_engine, convert)
