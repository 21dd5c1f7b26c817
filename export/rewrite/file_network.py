"""The network of an ONNX file: onnxruntime runs it, and PyTorch the sites that a plan changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError
from ...models.sites import WindowSite
from ..attention.full.parameters import Full
from ..attention.implementation import as_trained
from ..execute.parts import PartRunner, session_of
from ..execute.sites import SitedRunner
from .replacement import Replacement, compute_site, with_replacements
from .widening import has_half, widened

_FLOAT16, _BFLOAT16 = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16


@dataclass(frozen=True)
class SourceFile:
    """The file that a network was read from; copies of the network share it.

    Attributes:
        path: The file.
        model: The whole model, as it was read.
        searched: The same model, of an opset that nodes are written for.
        raised: The model of that opset if the file has another one, or None.
        is_converted: Whether that opset was asked for, so that it is written in any case.
    """

    path: Path
    model: onnx.ModelProto
    searched: ir.Model
    raised: onnx.ModelProto | None = None
    is_converted: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> SourceFile:
        """Return the same object."""
        return self


class _Shared(dict[Any, Any]):
    """What copies of a network share."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self


class FileNetwork(nn.Module):
    """Runs the graph of a file, from its only input to its only output.

    While every site is exact, the file itself runs in onnxruntime. Otherwise onnxruntime runs what
    is between the sites of other mechanisms, and these are computed in PyTorch. In float64, sites
    are computed in float64; onnxruntime fuses no nodes, and computes half precision in float32.

    Attributes:
        source: The file.
        replacements: The parts of its graph that sites may compute.
        left: Why sites with exact attention keep the file's nodes, by path.
    """

    def __init__(self, source: SourceFile, replacements: Sequence[Replacement] = ()) -> None:
        """Take a file, and put the sites of its replacements at their paths."""
        super().__init__()
        self.source = source
        self.left: dict[str, str] = {}
        self._shared = _Shared(replacements=tuple(replacements), sessions={}, pieces={}, last=None)
        for item in replacements:
            for path, site in item.sites.items():
                _put(self, path, site)

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """The parts of the graph that sites may compute."""
        found: tuple[Replacement, ...] = self._shared["replacements"]
        return found

    @property
    def paths(self) -> list[str]:
        """The paths of the sites."""
        return [path for item in self.replacements for path in item.sites]

    @property
    def pieces(self) -> dict[str, onnx.ModelProto]:
        """Traced mechanisms, so that the timed pieces are also those written."""
        made: dict[str, onnx.ModelProto] = self._shared["pieces"]
        return made

    @property
    def replaces(self) -> bool:
        """Whether some of the file's nodes are replaced."""
        return any(path not in self.left for path in self.paths)

    @property
    def input_type(self) -> int:
        """Type of the input, as ONNX numbers it."""
        return int(_inputs(self.source.searched)[0].dtype or ir.DataType.FLOAT)

    def forward(self, image: Tensor) -> Tensor:
        """Return the output for an image.

        Raises:
            UnsupportedModelError: onnxruntime cannot compute the file.
        """
        on_meta, double = image.device.type == "meta", image.dtype == torch.float64
        given = torch.zeros(image.shape) if on_meta else image
        feed = as_value(given, self.input_type)
        planned = [item for item in self.replacements if self._is_changed(item)]
        if not planned and not (double and self._is_half):
            return self._result(self._whole(feed), on_meta=on_meta)
        name, result = (str(v.name) for v in (self._input, self.source.searched.graph.outputs[0]))
        run = self._planned(planned, result, double=double)
        if double and self._is_half:
            feed = as_value(given, onnx.TensorProto.FLOAT)

        def compute(path: str, values: Sequence[Tensor | None]) -> Tensor:
            site: Any = self.get_submodule(path)
            return compute_site(site, values, double=double, on_meta=on_meta)

        return self._result(run.run({name: feed}, compute)[result], on_meta=on_meta)

    def values(self, names: Sequence[str], image: Tensor) -> dict[str, onnxruntime.OrtValue]:
        """Return values of the unmodified file by name."""
        nodes = with_replacements(list(self.source.searched.graph), (), names)
        run = SitedRunner(PartRunner(self.source.searched), nodes, names, optimized=False)
        feed = as_value(image, self.input_type)
        return run.run({str(self._input.name): feed}, _no_site)

    @property
    def _input(self) -> ir.Value:
        return _inputs(self.source.searched)[0]

    def _whole(self, feed: onnxruntime.OrtValue) -> onnxruntime.OrtValue:
        sessions = self._shared["sessions"]
        if "" not in sessions:
            sessions[""] = session_of(self.source.model)
        session: onnxruntime.InferenceSession = sessions[""]
        last = self._shared["last"]
        if last is not None and _same(last[0], feed):  # an export asks for it several times
            known: onnxruntime.OrtValue = last[1]
            return known
        try:
            made = session.run_with_ort_values(None, {str(self._input.name): feed})
        except Exception as error:  # onnxruntime raises errors of several kinds
            reason = str(error).strip().partition("\n")[0]
            raise UnsupportedModelError(
                f"{self.source.path} cannot be computed: {reason}"
            ) from error
        first: onnxruntime.OrtValue = made[0]
        self._shared["last"] = feed, first
        return first

    @property
    def _is_half(self) -> bool:
        return has_half(self.source.model)

    def _planned(self, planned: Sequence[Replacement], result: str, *, double: bool) -> SitedRunner:
        sessions = self._shared["sessions"]
        key = (tuple(item.output.name for item in planned), double)
        if key not in sessions:
            model = self.source.searched
            nodes = with_replacements(list(model.graph), planned, [result])
            if double and self._is_half:
                model = widened(self.source.raised or self.source.model, nodes)
                nodes = list(model.graph)
            sessions[key] = SitedRunner(PartRunner(model), nodes, [result], optimized=not double)
        run: SitedRunner = sessions[key]
        return run

    def _is_changed(self, item: Replacement) -> bool:
        return any(not _is_exact(self.get_submodule(path)) for path in item.sites)

    def _result(self, value: onnxruntime.OrtValue, *, on_meta: bool) -> Tensor:
        made = torch.from_numpy(np.array(value.numpy()))
        made = made.float() if made.dtype in (torch.float16, torch.bfloat16) else made
        return made.to("meta") if on_meta else made


def _is_exact(site: Any) -> bool:
    """Return whether a site computes what the file's own nodes do."""
    if isinstance(as_trained(site), Full):
        return True
    mechanism = getattr(site.implementation, "mechanism", None)
    if not isinstance(mechanism, Full):
        return False
    masked = isinstance(site, WindowSite) and site.geometry.masked
    return mechanism.mask == "regions" or not masked


def as_value(tensor: Tensor, kind: int) -> onnxruntime.OrtValue:
    """Return a tensor as onnxruntime takes it, in a type as ONNX numbers it."""
    if kind == _BFLOAT16:
        array = tensor.detach().bfloat16().view(torch.int16).numpy().view(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)
    array = tensor.detach().numpy().astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _same(one: onnxruntime.OrtValue, other: onnxruntime.OrtValue) -> bool:
    """Return whether two tensors are equal."""
    if one.element_type() != other.element_type() or one.shape() != other.shape():
        return False
    if one.element_type() == _BFLOAT16:
        return False
    return bool(np.array_equal(one.numpy(), other.numpy()))


def _inputs(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.inputs if not value.is_initializer()]


def _no_site(path: str, values: Sequence[Tensor | None]) -> Tensor:
    raise UnsupportedModelError(f"{path} is no node of the file")


def _put(root: nn.Module, path: str, site: nn.Module) -> None:
    """Register a module under a path."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(name, site)
