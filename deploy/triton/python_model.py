"""What runs inside Triton's python backend: picture files in, a picture file or classes out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from ...runtime.session import Session
from ..answering import Answering, Wishes
from .config import PROBABILITIES

Array = npt.NDArray[Any]


class TritonPythonModel:
    """One instance of the model; Triton makes it, hands it requests and drops it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the model file that lies in the folder of this version.

        Args:
            args: What Triton says: ``model_repository`` (the model's folder), ``model_version``,
                ``model_config`` (JSON) and more.

        Raises:
            NystraError: The file cannot be served; Triton says so in its log.
        """
        stated = json.loads(args["model_config"])["parameters"]
        given = {key: value["string_value"] for key, value in stated.items()}
        threads, overlap = given.get("threads"), given.get("overlap")
        session = Session(
            Path(args["model_repository"], args["model_version"], "model.onnx"),
            given["session_backend"],
            None if threads is None else int(threads),
            given["library"],
        )
        wishes = Wishes(int(given["tile"]), None if overlap is None else int(overlap))
        self._answering = Answering(session, wishes)
        self._inputs = {port.role: port.name for port in session.facts.inputs}
        self._output = session.facts.outputs[0].name
        # Only a process of the server has this module.
        self._triton: Any = import_module("triton_python_backend_utils")

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests; one that cannot be answered gets an error and stops no other."""
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        triton = self._triton
        try:
            files = {role: self._file(request, name) for role, name in self._inputs.items()}
            answer = self._answering(files, json.loads(request.parameters() or "{}"))
            tensors = [triton.Tensor(name, array) for name, array in self._named(answer).items()]
            return triton.InferenceResponse(output_tensors=tensors)
        except Exception as error:  # whatever it is, the server goes on
            text = str(error) or type(error).__name__
            if not isinstance(error, NystraError):
                return triton.InferenceResponse(error=triton.TritonError(text))
            fault = triton.TritonError(text, triton.TritonError.INVALID_ARG)
            return triton.InferenceResponse(error=fault)

    def _file(self, request: Any, name: str) -> bytes:
        array: Array = self._triton.get_input_tensor_by_name(request, name).as_numpy()
        data: bytes = array.reshape(-1)[0]
        return data

    def _named(self, answer: bytes | Array) -> dict[str, Array]:
        if isinstance(answer, bytes):
            return {self._output: np.array([answer], np.object_)}
        shares = np.exp(answer - answer.max())
        return {
            self._output: answer.astype(np.float32),
            PROBABILITIES: (shares / shares.sum()).astype(np.float32),
        }
