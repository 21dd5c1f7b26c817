"""Reads the reference cases of ``tests/golden``, whose README describes them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from shared import ROOT, shared_path

Arrays = dict[str, np.ndarray]
Run = tuple[dict[str, Any], Arrays, dict[str, Any], Arrays]

FOLDER = ROOT / "tests" / "golden"


class GoldenCase:
    """The arrays of a case, and their description.

    Attributes:
        meta: The description.
        data: Stored arrays, by name.
    """

    def __init__(self, meta: dict[str, Any], data: Arrays) -> None:
        self.meta, self.data = meta, data

    @property
    def constructor(self) -> dict[str, Any]:
        """The arguments of the official constructor."""
        arguments: dict[str, Any] = self.meta["constructor"]
        return arguments

    def weights(self) -> Arrays:
        """Return the state dict; constant buffers may be missing."""
        weights = {}
        if not self.meta.get("weights_in_file", True):
            for name, spec in self.meta["generated_weights"].items():
                values = _stream(name, self.meta["seed"]).standard_normal(tuple(spec["shape"]))
                weights[name] = np.asarray(values * spec["std"] + spec["mean"], np.float32)
        for name, array in self.data.items():
            if name.startswith("weights."):
                weights[name.removeprefix("weights.")] = array
        return weights

    def runs(self) -> Iterator[Run]:
        """Return description, inputs, keyword arguments and outputs of each run."""
        runs = {run["name"]: run for run in self.meta["runs"]}
        for run in runs.values():
            source = runs[run.get("inputs_same_as", run["name"])]
            inputs = self._inputs(source)
            if "inputs_slice" in run:
                first, end = run["inputs_slice"]
                inputs = {name: array[first:end] for name, array in inputs.items()}
            prefix = f"input.{run['name']}."
            keywords = dict(run.get("kwargs", {}))
            for key, array in self.data.items():
                name = key.removeprefix(prefix)
                if key.startswith(prefix) and name not in inputs:
                    keywords[name] = array
            outputs = {}
            for output in run["outputs"]:
                suffix = f".{output['name']}" if output["name"] else ""
                outputs[output["name"]] = self.data[f"output.{run['name']}{suffix}"]
            yield run, inputs, keywords, outputs

    def _inputs(self, run: Mapping[str, Any]) -> Arrays:
        inputs = {}
        for name in run["inputs"]:
            spec = run.get("generated_inputs", {}).get(name)
            key = f"input.{run['name']}.{name}"
            if spec is not None:
                inputs[name] = _generated(spec)
            elif key in self.data:
                inputs[name] = self.data[key]
        return inputs


def golden(name: str) -> GoldenCase:
    """Return a case; one of published size, outside of the repository, or skip the test."""
    path = FOLDER / "cases" / f"{name}.npz"
    if path.exists():
        with np.load(path) as file:
            data = dict(file)
        return GoldenCase(json.loads(data.pop("description").tobytes()), data)
    path = shared_path("golden", "cases", f"{name}.json")
    meta = json.loads(path.read_text(encoding="utf-8"))
    return GoldenCase(meta, load_file(path.with_suffix(".safetensors")))


def state_dict_names() -> list[str]:
    """Return the names that `state_dict_text` takes."""
    return sorted(path.name.partition(".")[0] for path in (FOLDER / "state_dicts").iterdir())


def state_dict_text(name: str) -> str:
    """Return the JSON of the keys and shapes of official checkpoints."""
    path = FOLDER / "state_dicts" / f"{name}.json.gz"
    return gzip.decompress(path.read_bytes()).decode("utf-8")


def compare(run: Mapping[str, Any], name: str, outputs: Any, expected: np.ndarray) -> float:
    """Return the largest absolute difference of an output.

    Args:
        run: Description of the run.
        name: Name of the output.
        outputs: The computed output, whole.
        expected: The stored output, of which every so many rows and columns may be kept.
    """
    output = next(output for output in run["outputs"] if output["name"] == name)
    return float(np.abs(sampled(output, outputs).astype(np.float64) - expected).max())


def sampled(output: Mapping[str, Any], values: Any) -> np.ndarray:
    """Return those values of an output that a case stores; its shape must be the described one."""
    array = np.asarray(values)
    assert list(array.shape) == output["shape"], (array.shape, output["shape"])
    kept = output.get("subsample")
    if kept:
        array = array[..., kept["row_offset"] :: kept["step"], kept["col_offset"] :: kept["step"]]
    return array


def _stream(key: str, seed: int) -> np.random.RandomState:
    return np.random.RandomState((zlib.crc32(key.encode()) + 7919 * seed) % (1 << 32))


def _generated(spec: Mapping[str, Any]) -> np.ndarray:
    stream, shape = _stream(spec["key"], spec["seed"]), tuple(spec["shape"])
    if spec["kind"] == "normal":
        values = stream.standard_normal(shape) * spec["std"] + spec["mean"]
    else:
        values = stream.random_sample(shape) * (spec["hi"] - spec["lo"]) + spec["lo"]
    return np.asarray(values, np.float32)
