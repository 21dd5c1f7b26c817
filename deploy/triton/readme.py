"""The README of a model's folder: how to start the server, use it, and what was tested."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from ...runtime.engines.cache import EngineRecord
from ...runtime.model.model_facts import ModelFacts
from ...runtime.tasks.handler import Handler
from .options import TritonOptions


def readme(
    name: str,
    options: TritonOptions,
    facts: ModelFacts,
    handler: Handler | None,
    library: Path | None,
    record: EngineRecord | None,
) -> str:
    """Return the text, in Markdown.

    Args:
        name: Name of the model on the server.
        options: The options.
        facts: Facts of the model file.
        handler: What answers requests, for the python backend.
        library: The operator library that lies in the folder, or None.
        record: Record of the engine, for TensorRT.
    """
    parts = [
        f"# {name}\n\nFor Triton's backend `{options.backend}`, by `nystra deploy triton`.",
        f"## Start\n\n{_start(name, options, library, record)}",
        f"## Send a request\n\n{_ask(name, options, facts, handler)}",
        f"## What was tested\n\n{options.facts.proof}",
    ]
    return "\n\n".join(parts) + "\n"


def _start(
    name: str, options: TritonOptions, library: Path | None, record: EngineRecord | None
) -> str:
    place = options.server_path
    gpu = "--gpus all " if options.on_gpu else ""
    image = "nvcr.io/nvidia/tritonserver:<xx.yy>-py3"
    variables = f"-e {options.facts.variable} " if options.facts.variable else ""
    notes = []
    if options.facts.files:
        image = "tritonserver-nystra"
        extra = "gpu" if options.gpu else "ort"
        notes.append(
            "The server needs nystra in the Python of its python backend, of the version that "
            f"wrote this folder:\n\n```dockerfile\nFROM nvcr.io/nvidia/tritonserver:<xx.yy>-py3\n"
            "COPY nystra-*.whl /tmp/\n"
            f"RUN pip install \"$(ls /tmp/nystra-*.whl)[{extra}]\" 'numpy<2'\n```\n\n"
            'With numpy 2 the backend of Triton 2.51 crashes at the first request ("not healthy"). '
            f"Built as `{image}`:"
        )
    if record is not None:
        notes.append(
            f"The engine was built by TensorRT {record.version} on "
            f"{record.device.get('name', 'a GPU')}: the server needs the same version of "
            "TensorRT and the same type of GPU."
        )
        if library is not None:
            variables = f"-e {quote(f'LD_PRELOAD={place}/{name}/1/{library.name}')} "
    notes.append(
        "```sh\n"
        f"docker run --rm {gpu}--shm-size=1g -p8000:8000 -p8001:8001 -p8002:8002 \\\n"
        f"  {variables}-v {quote(f'REPOSITORY:{place}')} {image} tritonserver "
        f"{quote(f'--model-repository={place}')}\n"
        "```"
    )
    if options.facts.libraries:
        notes.append(
            f"`model_operations` names the operator library at {place}/{name}/1/{library.name}: "
            "if the server has the repository at another path, write the folder with "
            "--server-path."
            if library is not None
            else "There is no operator library in this folder: the operators of nystra, if the "
            "model has any, run as their bodies of standard operators."
        )
    return "\n\n".join(notes)


def _ask(name: str, options: TritonOptions, facts: ModelFacts, handler: Handler | None) -> str:
    ports = facts.inputs
    if handler is None:
        inputs = ", ".join(f"`{port.name}` ({port.role}, {port.layout})" for port in ports)
        return (
            f"Tensors: {inputs}, RGB, values {_range(facts)}; the client has to handle tiles, "
            "color and alpha. `--backend python` serves image files."
        )
    first = f'a = InferInput({ports[0].name!r}, [1], "BYTES")'
    more = "".join(
        f"\n# and the same for the input {port.name!r}, the {port.role}" for port in ports[1:]
    )
    labeled = [tensor.name for tensor in handler.tensors if tensor.labeled]
    known = handler.parameters.declared()
    if labeled:
        output = labeled[-1]
        end = (
            f'answer = client.infer("{name}", [a], outputs=[\n'
            f"    InferRequestedOutput({output!r}, class_count=5)])\n"
            f"print(answer.as_numpy({output!r}))"
        )
        names, note = "InferInput, InferRequestedOutput", "Probability, number and label of five."
    else:
        output = handler.tensors[0].name
        extra = ', parameters={"format": "png"}' if "format" in known else ""
        end = (
            f'answer = client.infer("{name}", [a]{extra})\n'
            f'open("out.png", "wb").write(answer.as_numpy({output!r})[0])'
        )
        names = "InferInput"
        listed = "; ".join(f"`{key}`: {kind.help}" for key, kind in known.items())
        note = f"Parameters, all optional: {listed}." if known else "There are no parameters."
        note += " The file is byte for byte the one that `nystra run` writes."
    return (
        "```python\nimport numpy as np\n"
        f"from tritonclient.http import InferenceServerClient, {names}\n\n"
        'client = InferenceServerClient("localhost:8000")\n'
        f"{first}{more}\n"
        'a.set_data_from_numpy(np.array([open("in.png", "rb").read()], object))\n'
        f"{end}\n```\n\n{note}"
    )


def _range(facts: ModelFacts) -> str:
    low, high = facts.inputs[0].range or (0.0, 1.0)
    return f"{low:g} to {high:g}"
