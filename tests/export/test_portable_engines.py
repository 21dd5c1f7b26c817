"""Portable files in engines that convert ONNX themselves."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from exports import export
from nystra.export import ExportOptions, Plan, mechanism
from nystra.runtime import Session

SHAPE = (1, 3, 16, 24)

_NCNN = """
import subprocess, sys, ncnn, numpy as np
shape = "[" + ",".join(map(str, np.load("in.npy").shape)) + "]"
subprocess.run([sys.argv[1], "m.onnx", "inputshape=" + shape, "fp16=0"], check=True)
net = ncnn.Net()
for kind in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
    setattr(net.opt, "use_" + kind, False)
assert net.load_param("m.ncnn.param") == 0, "an operator is not there"
net.load_model("m.ncnn.bin")
image = np.load("in.npy")[0]
extractor = net.create_extractor()
extractor.input("in0", ncnn.Mat(image))
np.save("out.npy", np.array(extractor.extract("out0")[1])[None])
"""

_LITERT = """
import subprocess, sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
keep = ["-kat", "input", "-b", "1", "-n"]
subprocess.run([sys.argv[1], "-i", "m.onnx", "-o", "lite", *keep], check=True)
net = Interpreter("lite/m_float32.tflite")
net.allocate_tensors()
given, result = net.get_input_details()[0], net.get_output_details()[0]
image = np.load("in.npy")
net.set_tensor(given["index"], image)
net.invoke()
np.save("out.npy", net.get_tensor(result["index"]))
"""


def run_with(program: str, script: str, model: Path, image: np.ndarray) -> np.ndarray:
    """The output of a script in the environment of a program, whose path it gets, or skip."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not on the PATH: install it in an environment of its own")
    folder = model.parent
    np.save(folder / "in.npy", image)
    command = [str(Path(path).parent / "python"), "-c", script, path]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    result: np.ndarray = np.load(folder / "out.npy")
    return result


@pytest.mark.release
@pytest.mark.parametrize(
    ("program", "script", "name"),
    [
        ("pnnx", _NCNN, "full"),
        ("onnx2tf", _LITERT, "full"),
        ("onnx2tf", _LITERT, "cluster"),
        ("onnx2tf", _LITERT, "nystra"),
    ],
)
def test_a_converter_takes_a_portable_file(
    program: str, script: str, name: str, tmp_path: Path
) -> None:
    options = {"landmarks": (2, 2)} if name == "nystra" else {}
    plan = Plan(mechanism(name, **options))
    path = export(tmp_path, ExportOptions(plan=plan, static=SHAPE, target="portable"))
    image = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    got = run_with(program, script, path, image)
    assert np.abs(got - Session(path, "ort-cpu").run({"input": image})["output"]).max() < 1e-4
