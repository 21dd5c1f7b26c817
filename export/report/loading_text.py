"""Example programs that load a model file, with its own names, types and shapes."""

from __future__ import annotations

from ...core.ports.port import Port
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

outputs = Session("{session.path.name}").run({{name: array}})
"""


def _python(session: Session, operators: bool) -> str:
    lines = ["import numpy as np", "import onnxruntime", ""]
    lines.append("options = onnxruntime.SessionOptions()")
    if operators:
        lines.append(f"# {_COPY}; without this line the file runs, but slower")
        lines.append(f'options.register_custom_ops_library("{_LOCAL_COPY}")')
    lines += [
        f'session = onnxruntime.InferenceSession("{session.path.name}", options)',
        *(
            f"{port.name} = np.zeros({_shape(port)}, np.{port.dtype})  # {_meaning(port)}"
            for port in session.facts.inputs
        ),
    ]
    feeds = ", ".join(f'"{port.name}": {port.name}' for port in session.facts.inputs)
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
    lines.append(f'Ort::Session session(env, ORT_TSTR("{session.path.name}"), options);')
    lines.append("auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);")
    lines.append("std::vector<Ort::Value> values;")
    for port in session.facts.inputs:
        sizes = ", ".join(map(str, _shape(port)))
        kind = _type(port.dtype)[0]
        lines += [
            f"std::vector<int64_t> {port.name}_shape{{{sizes}}};  // {_meaning(port)}",
            f"std::vector<{kind}> {port.name}({'LL * '.join(map(str, _shape(port)))}LL);",
            f"values.push_back(Ort::Value::CreateTensor<{kind}>(",
            f"    memory, {port.name}.data(), {port.name}.size(), {port.name}_shape.data(),",
            f"    {port.name}_shape.size()));",
        ]
    inputs = ", ".join(f'"{port.name}"' for port in session.facts.inputs)
    element = _type(session.outputs[0].dtype)[0]
    lines += [
        f"const char* inputs[] = {{{inputs}}};",
        f'const char* outputs[] = {{"{session.outputs[0].name}"}};',
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
    lines.append(f'using var session = new InferenceSession("{session.path.name}", options);')
    for port in session.facts.inputs:
        kind = _type(port.dtype)[1]
        sizes = ", ".join(map(str, _shape(port)))
        lines.append(
            f"var {port.name} = new DenseTensor<{kind}>(new[] {{ {sizes} }});  // {_meaning(port)}"
        )
    feeds = ", ".join(
        f'NamedOnnxValue.CreateFromTensor("{port.name}", {port.name})'
        for port in session.facts.inputs
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
