"""Example programs that load a model file, with its own names, types and shapes."""

from __future__ import annotations

import json

from ...core.ports.port import ROLES, Port, keyed_ports
from ...deploy.triton.config import takes_batches, tensor_config
from ...deploy.triton.options import TritonOptions
from ...deploy.triton.text_format import text_format
from ...runtime.model.onnx_header import read_onnx_header
from ...runtime.session import Session
from ...runtime.tasks.registry import task_named

_LIBRARY = "libnystra_onnxruntime.so"
_LOCAL_COPY = f"./{_LIBRARY}"
"""Where programs without nystra find a copy of it: the loader of Linux searches only folders that
are named."""

_COPY = "a copy of the file nystra.plugins.library.library_path()"
_EXAMPLE = {"batch": 1, "channels": 3, "height": 64, "width": 64, "frames": 5}
TELEMETRY = (
    "On Linux and macOS, onnxruntime 1.29 and later reports its use to its makers unless the "
    "environment has ORT_DISABLE_TELEMETRY=1 before it is loaded. nystra sets that; start programs "
    "without nystra with it."
)
"""What those who load a file in programs of their own should know."""

_TYPES = {
    "float32": ("float", "float"),
    "float16": ("Ort::Float16_t", "Float16"),
}
"""numpy name -> C++, C#."""


def loading_texts(session: Session) -> list[tuple[str, str]]:
    """Return title and program for each way to load a model file."""
    operators = read_onnx_header(session.path).has_operators
    return [
        ("Python, with tiles, color profiles and 16 bits:", _nystra(session)),
        ("Python, onnxruntime alone:", _python(session, operators)),
        ("C++ (examples/cpp also reads and writes images):", _cpp(session, operators)),
        ("C#:", _csharp(session, operators)),
        (
            "Triton, config.pbtxt next to 1/model.onnx (nystra deploy triton writes both):",
            _triton(session, operators),
        ),
    ]


def _nystra(session: Session) -> str:
    task = task_named(session.facts.task)
    if task is not None:
        return task.summary().example(session.path.name)
    return f"""
from nystra.runtime import Session

outputs = Session({session.path.name!r}).run({{name: array}})
"""


def _python(session: Session, operators: bool) -> str:
    lines = ["import numpy as np", "import onnxruntime", ""]
    lines.append("options = onnxruntime.SessionOptions()")
    if operators:
        lines.append(f"# {_COPY}; without this line the file runs, but slower")
        lines.append(f'options.register_custom_ops_library("{_LOCAL_COPY}")')
    lines += [
        f"session = onnxruntime.InferenceSession({session.path.name!r}, options)",
        *(
            f"{name} = np.zeros({_shape(port)}, np.{port.dtype})  # {_meaning(port)}"
            for name, port in _variables(session).items()
        ),
    ]
    feeds = ", ".join(f"{port.name!r}: {name}" for name, port in _variables(session).items())
    lines.append(f"output = session.run(None, {{{feeds}}})[0]")
    return "\n".join(lines)


def _cpp(session: Session, operators: bool) -> str:
    lines = [
        "#include <onnxruntime_cxx_api.h>",
        "",
        "Ort::Env env;",
        "Ort::SessionOptions options;",
    ]
    if operators:
        lines.append(f'options.RegisterCustomOpsLibrary(ORT_TSTR("{_LOCAL_COPY}"));  // {_COPY}')
    lines.append(f"Ort::Session session(env, ORT_TSTR({_text(session.path.name)}), options);")
    lines.append("auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);")
    lines.append("std::vector<Ort::Value> values;")
    for name, port in _variables(session).items():
        sizes = ", ".join(map(str, _shape(port)))
        kind = _type(port.dtype)[0]
        lines += [
            f"std::vector<int64_t> {name}_shape{{{sizes}}};  // {_meaning(port)}",
            f"std::vector<{kind}> {name}({'LL * '.join(map(str, _shape(port)))}LL);",
            f"values.push_back(Ort::Value::CreateTensor<{kind}>(",
            f"    memory, {name}.data(), {name}.size(), {name}_shape.data(),",
            f"    {name}_shape.size()));",
        ]
    inputs = ", ".join(_text(port.name) for port in session.facts.inputs)
    element = _type(session.outputs[0].dtype)[0]
    lines += [
        f"const char* inputs[] = {{{inputs}}};",
        f"const char* outputs[] = {{{_text(session.outputs[0].name)}}};",
        "auto results = session.Run(",
        "    Ort::RunOptions{}, inputs, values.data(), values.size(), outputs, 1);",
        f"const {element}* output = results[0].GetTensorData<{element}>();",
    ]
    return "\n".join(lines)


def _csharp(session: Session, operators: bool) -> str:
    lines = [
        "using System.Linq;",
        "using Microsoft.ML.OnnxRuntime;",
        "using Microsoft.ML.OnnxRuntime.Tensors;",
        "",
        "using var options = new SessionOptions();",
    ]
    if operators:
        lines.append(f'options.RegisterCustomOpLibraryV2("{_LOCAL_COPY}", out _);  // {_COPY}')
    lines.append(f"using var session = new InferenceSession({_text(session.path.name)}, options);")
    for name, port in _variables(session).items():
        kind = _type(port.dtype)[1]
        sizes = ", ".join(map(str, _shape(port)))
        lines.append(
            f"var {name} = new DenseTensor<{kind}>(new[] {{ {sizes} }});  // {_meaning(port)}"
        )
    feeds = ", ".join(
        f"NamedOnnxValue.CreateFromTensor({_text(port.name)}, {name})"
        for name, port in _variables(session).items()
    )
    lines += [
        f"using var results = session.Run(new[] {{ {feeds} }});",
        f"var output = results.First().AsTensor<{_type(session.outputs[0].dtype)[1]}>();",
    ]
    return "\n".join(lines)


def _triton(session: Session, operators: bool) -> str:
    options = TritonOptions("onnxruntime")
    name = session.path.stem
    most = options.max_batch if takes_batches(session.facts) else 0
    config = tensor_config(name, session.facts, options, most, labels=False)
    if operators:
        place = f"{options.server_path}/{name}/1/{_LIBRARY}"
        config["model_operations"] = {"op_library_filename": [place]}
    return text_format(config).rstrip()


def _variables(session: Session) -> dict[str, Port]:
    """Return the inputs by the name of a variable: their role, or a number."""
    return {
        role if role in ROLES else f"tensor{place}": port
        for place, (role, port) in enumerate(keyed_ports(session.facts.inputs).items())
    }


def _text(text: str) -> str:
    """Return a text as a string of C++ and C#."""
    return json.dumps(text)


def _type(dtype: str) -> tuple[str, str]:
    return _TYPES.get(dtype, _TYPES["float32"])


def _shape(port: Port) -> tuple[int, ...]:
    """Return an example shape."""
    return tuple(port.lengths.get(axis, _EXAMPLE.get(axis, 1)) for axis in port.axes)


def _meaning(port: Port) -> str:
    """Return the meaning of a tensor, in a few words."""
    axes = " x ".join(port.axes)
    if port.range is None:
        return axes
    low, high = port.range
    return f"{axes}, {low:g} to {high:g}"
