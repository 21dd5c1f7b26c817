"""The base of all backends: class attributes, state of a loaded file, checks of inputs.

A backend overrides `available`, `load` and `infer`; one whose files are not ONNX also
`read_metadata`, one that can give memory back `infer_and_release`, one whose runs can end early
`stop`, and one that computes on a device and can time it `time_on_device`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...core.arrays import Array
from ...core.ending import Computing
from ...core.errors import NystraError
from ...core.metadata import ModelMetadata
from ...core.option import Options
from ..model.external_data import check_data_files
from ..model.model_facts import TensorInfo
from ..model.onnx_header import OnnxHeader, read_onnx_header
from ..session_spec import SessionSpec

if TYPE_CHECKING:
    from ..engines.builder import Builder

EMULATED = (
    "this CPU has no bfloat16 instructions: bfloat16 is emulated or computed in float32, "
    "which is slow"
)

RECORD = "session.record_ep_graph_assignment_info"
"""The session setting that makes onnxruntime (1.24 and later) keep the assignment."""

_MAX_OPERATORS = 8
"""Most operators named in a sentence."""


@dataclass(frozen=True)
class Assignment:
    """How onnxruntime divided the nodes of a graph between execution providers.

    The nodes are those that onnxruntime divides: after it inlined functions and folded constants.

    Attributes:
        provider: The one that was requested.
        nodes: Provider -> operator -> number of nodes.
    """

    provider: str
    nodes: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> int:
        """Nodes in all."""
        return sum(sum(operators.values()) for operators in self.nodes.values())

    @property
    def taken(self) -> int:
        """Nodes that the provider computes."""
        return sum(self.nodes.get(self.provider, {}).values())

    @property
    def others(self) -> str:
        """The nodes of other providers in words; empty if there are none."""
        return "; ".join(
            f"{provider} computes {_list_names(operators)}"
            for provider, operators in sorted(self.nodes.items())
            if provider != self.provider
        )

    def describe(self) -> str:
        """Return the provider's share of the nodes and what the others compute."""
        text = f"{self.provider} computes {self.taken} of {self.total} nodes"
        return f"{text}; {self.others}" if self.others else text

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        nodes = {name: dict(sorted(counts.items())) for name, counts in sorted(self.nodes.items())}
        return {
            "provider": self.provider,
            "taken": self.taken,
            "total": self.total,
            "nodes": nodes,
        }


def read_assignment(session: Any, provider: str) -> Assignment | None:
    """Return how the nodes of a session were divided; None if its onnxruntime keeps no record.

    Args:
        session: An ``InferenceSession`` that was opened with `RECORD` as ``1``.
        provider: The one that was requested.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    nodes: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        counts = nodes.setdefault(part.ep_name, Counter())
        counts.update(node.op_type for node in part.get_nodes())
    return Assignment(provider, nodes)


def _list_names(operators: Mapping[str, int]) -> str:
    ordered = sorted(operators.items(), key=lambda pair: (-pair[1], pair[0]))
    names = [f"{count} {operator}" for operator, count in ordered[:_MAX_OPERATORS]]
    rest = sum(count for _, count in ordered[_MAX_OPERATORS:])
    return ", ".join([*names, *([f"{rest} of other operators"] if rest else [])])


"""The warning where `Backend.emulated` is true."""


@dataclass(frozen=True)
class NoOptions(Options):
    """The options of a backend that has none."""


class Backend:
    """Runs one loaded model file; safe to use from several threads at once.

    Properties, which a class declares:

    Attributes:
        device: Where it computes: ``cpu`` or ``cuda``.
        devices: Devices that may follow its name, ``openvino:GPU``; `on` returns the class of one,
            also of names that are not listed.
        artifact: The suffix of the files that it opens, without the dot.
        precisions: The ``nystra.precision`` of the files that it computes in.
        arithmetic: Precisions that a session may set; empty: only that of the file.
        options: The record of its options, whose fields are made by `core.option.option`.
        engine: The builder of the engines that it runs, or None if it takes the model file itself.
        build_options: The record of its options of `nystra build`, or None if it builds nothing.
        library_name: The default operator library, as `library_path` names it; None
            if it has none.
        bodies: Without a library it computes operators by the bodies in the file.
        measures_memory: A run uses the memory of this process, so that its memory can be measured.
        compiles: It compiles the network for each size of its inputs.
        concurrent: Runs of several threads are computed at the same time.
        automatic: ``auto`` tries it.
        timed: ``fastest`` times it.
        plugs_in: It loads execution providers of onnxruntime from libraries (`ep_library`).

    Attributes of an object:

    Attributes:
        spec: The settings that it was opened with.
        path: The model file.
        chosen: The options that were given, as the record `options`.
        metadata: The file's metadata, as text.
        stated: The metadata, parsed.
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        library: The operator library in use, or None.
        library_reason: One sentence that explains the choice of the library.
        library_missing: The default library is not installed.
        library_refused: It is installed but does not support the file, which runs on bodies.
        emulated: The requested precision is slow on this machine, see `EMULATED`.
        assignment: Which execution provider computes which nodes, or None if that is not known.
    """

    device: ClassVar[str] = "cpu"
    devices: ClassVar[tuple[str, ...]] = ()
    artifact: ClassVar[str] = "onnx"
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32"})
    arithmetic: ClassVar[frozenset[str]] = frozenset()
    options: ClassVar[type[Options]] = NoOptions
    engine: ClassVar[Builder | None] = None
    build_options: ClassVar[type[Options] | None] = None
    library_name: ClassVar[str | None] = None
    bodies: ClassVar[bool] = False
    measures_memory: ClassVar[bool] = False
    compiles: ClassVar[bool] = False
    concurrent: ClassVar[bool] = False
    automatic: ClassVar[bool] = True
    timed: ClassVar[bool] = False
    plugs_in: ClassVar[bool] = False

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    def __init__(self, spec: SessionSpec) -> None:
        """Read the file's metadata; `load` loads it.

        Args:
            spec: The settings, which name this backend.

        Raises:
            NystraError: The file is missing or wrong, or an option does not apply.
        """
        self.spec = spec
        self.path = spec.model
        self.library: Path | None = None
        self.library_reason = ""
        self.library_missing = False
        self.library_refused = False
        self.emulated = False
        self.assignment: Assignment | None = None
        self.chosen = self._choose_options()
        self.metadata = self.read_metadata()
        if self.artifact == "onnx":
            check_data_files(self.path)
        self.stated = ModelMetadata.read(self.metadata)

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether the backend can run here, and a sentence with the reason."""
        raise NotImplementedError

    @classmethod
    def on(cls, device: str) -> type[Backend]:
        """Return the backend of one of its devices.

        Raises:
            NystraError: It has no such device.
        """
        raise NystraError(f"it has no devices, got {device!r}: omit the device")

    def read_metadata(self) -> dict[str, str]:
        """Return the metadata of the file, by the keys of an ONNX file of nystra."""
        return dict(self.header.metadata)

    def load(self) -> None:
        """Load the file; sets `inputs`, `outputs` and the attributes of the library.

        Raises:
            NystraError: The file or the library is refused.
            BackendUnavailableError: Something that the file needs is missing.
        """
        raise NotImplementedError

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once on checked arrays; safe to call from several threads."""
        raise NotImplementedError

    def infer_and_release(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run as `infer`, and return the memory of the run to the system."""
        return self.infer(feeds)

    def stop(self) -> None:
        """Make the runs under way, and all later ones, fail soon, if the engine can do that.

        Called from another thread than those of the runs.
        """
        return

    def time_on_device(self, feeds: Mapping[str, Array]) -> float | None:
        """Run once on checked arrays; return what `device_seconds` does."""
        return None

    def run(self, feeds: Mapping[str, Array], *, release: bool = False) -> dict[str, Array]:
        """Run the model once; see `Session.run`."""
        arrays = self._check(feeds)
        with Computing(self.stop):
            return self.infer_and_release(arrays) if release else self.infer(arrays)

    def device_seconds(self, feeds: Mapping[str, Array]) -> float | None:
        """Run the model once; see `Session.device_seconds`."""
        arrays = self._check(feeds)
        with Computing(self.stop):
            return self.time_on_device(arrays)

    def _check(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        expected = {tensor.name: tensor for tensor in self.inputs}
        if set(feeds) != set(expected):
            raise NystraError(
                f"{self.path} got the inputs {sorted(feeds)}, expected {sorted(expected)}"
            )
        return {name: _fit(expected[name], np.asarray(array)) for name, array in feeds.items()}

    @cached_property
    def header(self) -> OnnxHeader:
        """The head of an ONNX file."""
        return read_onnx_header(self.path)

    @property
    def operators(self) -> str:
        """Where nystra's operators are computed: ``kernels`` of a library, or ``bodies``.

        Empty where the file has none, and where the backend runs neither.
        """
        if self.artifact != "onnx" or not self.header.has_operators:
            return ""
        if self.library is not None:
            return "kernels"
        return "bodies" if self.bodies else ""

    def _choose_options(self) -> Options:
        options = self.options.list_options()
        if unknown := sorted(set(self.spec.options) - set(options)):
            raise NystraError(
                f"{self.spec.backend} has no option {', '.join(unknown)}: expected "
                + (" or ".join(options) or "none")
            )
        requested = self.spec.options.items()
        return self.options(**{name: options[name].take(name, value) for name, value in requested})


def _fit(tensor: TensorInfo, array: Array) -> Array:
    if not array.dtype.isnative:  # a backend reads the bytes in memory order
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name != tensor.dtype:
        floating = array.dtype.kind == "f" and tensor.dtype in ("float16", "float32", "float64")
        if not floating:
            raise NystraError(
                f"the input {tensor.name!r} got {array.dtype.name}, expected {tensor.dtype}: "
                "convert it first (8-bit images: divide by 255)"
            )
        array = array.astype(tensor.dtype)
    fits = len(array.shape) == len(tensor.shape) and all(
        not isinstance(expected, int) or expected == got
        for expected, got in zip(tensor.shape, array.shape, strict=False)
    )
    if not fits:
        raise NystraError(
            f"the input {tensor.name!r} got the shape {array.shape}, expected {tensor.shape}"
        )
    if 0 in array.shape:
        raise NystraError(f"the input {tensor.name!r} is empty: its shape is {array.shape}")
    return array
