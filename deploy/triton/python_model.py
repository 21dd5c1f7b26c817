"""What runs inside Triton's python backend: files in, a file or arrays out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.arrays import Array
from ...core.ports.port import key_ports
from ...runtime.session import Session
from ...runtime.tasks.handler import read_parameters
from ...runtime.tasks.registry import find_handler
from ...runtime.tasks.result import in_one_line


class TritonPythonModel:
    """One instance of the model, which Triton creates, calls with requests and destroys."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model file that lies in the folder of this version, and try it.

        Args:
            args: What Triton says: ``model_repository`` (the model's folder), ``model_version``,
                ``model_config`` (JSON) and more.

        Raises:
            NystraError: The file cannot be served; Triton says so in its log.
        """
        stated = json.loads(args["model_config"])["parameters"]
        parameters = {key: value["string_value"] for key, value in stated.items()}
        threads = parameters.get("threads")
        session = Session(
            Path(args["model_repository"], args["model_version"], "model.onnx"),
            parameters["session_backend"],
            None if threads is None else int(threads),
            parameters["library"],
            range=parameters.get("range"),
        )
        self._answer = find_handler(session).open(session, session.path.stem)
        self._answer.try_out()
        defaults = self._answer.parameters()
        declared = defaults.list_options()
        own = {name: text for name, text in parameters.items() if name in declared}
        self._defaults = read_parameters(defaults, own)
        keyed = key_ports(session.facts.inputs)
        self._inputs = {key: port.name for key, port in keyed.items()}
        # Only a process of the server has this module.
        self._triton: Any = import_module("triton_python_backend_utils")

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests; one that cannot be answered gets an error and stops no other."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        triton = self._triton
        try:
            files = {role: self._file(request, name) for role, name in self._inputs.items()}
            values = json.loads(request.parameters() or "{}")
            answer = self._answer(files, read_parameters(self._defaults, values))
            tensors = [triton.Tensor(name, array) for name, array in answer.tensors.items()]
            return triton.InferenceResponse(output_tensors=tensors)
        except Exception as error:  # noqa: BLE001 - after any error the server continues
            text = str(in_one_line(error, Path("the image")))
            fault = triton.TritonError(text, triton.TritonError.INVALID_ARG)
            return triton.InferenceResponse(error=fault)

    def _file(self, request: Any, name: str) -> bytes:
        array: Array = self._triton.get_input_tensor_by_name(request, name).as_numpy()
        data: bytes = array.reshape(-1)[0]
        return data
