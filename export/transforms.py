"""Transforms, which change the arithmetic of a graph: one row per transform.

A transform rewrites the traced graph, returns a rounded float32 copy that is validated too, and
names the fake-quantized PyTorch network from which its tolerance is measured. The tolerances are in
`runtime.metrics.measures`, under its name. Importing this module imports none of them: the command
line lists them without torch and onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..core.errors import NystraError
from ..core.lazy import Lazy
from ..core.option import Options
from ..core.ports.port import Port
from .targets import TENSORRT, find_target

if TYPE_CHECKING:
    import onnx
    from torch import nn

    from ..core.arrays import Array


@dataclass(frozen=True)
class TransformInputs:
    """The inputs of a transform other than the graph.

    Attributes:
        architecture: Architecture of the network.
        feeds: Its inputs at each validation size, or of every kind, where ranges are measured.
        images: Its inputs for each calibration image.
        output: Its first output.
        minimum: The least headline figure that the user accepts (``min_psnr``), or None.
        parameters: Parameters of the transform; None if it has none.
    """

    architecture: str
    feeds: Sequence[Mapping[str, Array]]
    images: Sequence[Mapping[str, Array]]
    output: Port
    minimum: float | None = None
    parameters: Options | None = None


class TransformResult(Protocol):
    """The result of a transform.

    Attributes:
        rounded_copy: A float32 model that rounds where the transformed one does.
        exact: Modules that the transform left in float32 after its measurements; the fake-quantized
            network does the same.
    """

    @property
    def rounded_copy(self) -> onnx.ModelProto:
        """See the class."""

    @property
    def exact(self) -> tuple[str, ...]:
        """See the class."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, for the manifest."""

    def notes(self) -> list[str]:
        """Return what was done, one sentence each."""

    def warnings(self) -> list[str]:
        """Return what the user should act on, one sentence each."""


Apply: TypeAlias = "Callable[[onnx.ModelProto, TransformInputs], TransformResult]"
FakeQuantized: TypeAlias = "Callable[[nn.Module, str, Collection[str], Any], nn.Module]"


@dataclass(frozen=True)
class Transform:
    """One row; its functions are imported on use.

    Attributes:
        name: Its value of ``--precision``, also the row of its tolerance.
        apply: Returns (model, inputs) -> result; the model, traced and tidied and without bodies,
            is changed in place. None leaves the graph as it is.
        fake_quantized: Returns (the plain network, architecture, modules left in float32,
            parameters) -> a copy that rounds as the transform does, by other code.
        allow: Returns a function of the architecture that raises `UnsupportedModelError` if the
            transform is known not to be safe, before any long step; None: it is always safe.
        target: The only program that supports the file, or None.
        calibrated: It measures the user's own images, which have to be like the later inputs.
        parameters: The default parameters; None if the transform has none.
        remedy: What helps if a file fails its validation, in one sentence, or "".
    """

    name: str
    apply: Callable[[], Apply] | None = None
    fake_quantized: Callable[[], FakeQuantized] | None = None
    allow: Callable[[], Callable[[str], object]] | None = None
    target: str | None = None
    calibrated: bool = False
    parameters: Options | None = None
    remedy: str = ""

    @property
    def label(self) -> str:
        """The value of ``nystra.precision`` and in the file's name."""
        if self.target is None:
            return self.name
        return f"{self.name}-{self.target}"

    @property
    def parameters_text(self) -> str:
        """The parameters that differ from the defaults, as `with_parameters` takes them."""
        if self.parameters is None:
            return ""
        kinds = self.parameters.list_options()
        changed = self.parameters.list_changes().items()
        return ",".join(f"{name}={kinds[name].show(value)}" for name, value in changed)

    def with_parameters(self, text: str) -> Transform:
        """Return the transform with the parameters of a text such as ``block=32``.

        Args:
            text: Parts ``NAME=VALUE`` with commas between; "" changes nothing.

        Raises:
            NystraError: There is no such parameter, or a value is out of range.
        """
        if not text:
            return self
        kinds = {} if self.parameters is None else self.parameters.list_options()
        values: dict[str, Any] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in kinds:
                raise NystraError(
                    f"`precision` {self.name} has no parameter {name!r:.40}; it has "
                    f"{', '.join(kinds) or 'none'}"
                )
            values[name] = kinds[name].read(name, value)
        return replace(self, parameters=replace(self.parameters, **values))  # type: ignore[type-var]


def _part(module: str, name: str) -> Lazy[Any]:
    return Lazy(__package__, module, name)


def _precision(name: str, target: str | None = None) -> Transform:
    lower = _part("graph.precision.lowering", "apply_precision")
    rounded = _part("validate.fake_quantized", "round_as_file")
    policy = _part("graph.policies", "find_precision_policy")
    return Transform(
        name,
        lambda: partial(lower(), precision=name, target=target),
        lambda: partial(rounded(), name, target),
        lambda: partial(policy(), precision=name),
        target,
    )


UNCHANGED = Transform("fp32")
_INT8 = Transform(
    "int8",
    _part("graph.int8.transform", "quantize_within"),
    _part("validate.fake_quantized", "quantize_as_file"),
    _part("graph.policies", "find_int8_policy"),
    calibrated=True,
    remedy="the ranges of int8 are those of the images of `calibrate`: give more of them, unlike "
    "each other, dark and bright ones too; with a higher `min_psnr`, such as 60, more layers "
    "return to float32; bf16 needs no images. On CPUs without VNNI onnxruntime's sums may saturate",
)
_ROWS = (
    UNCHANGED,
    _precision("fp16"),
    _precision("bf16"),
    _precision("bf16", TENSORRT),
    _INT8,
)

TRANSFORMS = {row.label: row for row in _ROWS}
"""By what ``nystra.precision`` says."""


PRECISIONS = tuple(dict.fromkeys(row.name for row in _ROWS))
"""Names of the transforms, the values of ``--precision``."""


def parameters_help() -> str:
    """Return the parameters after the colon of a precision, as half a sentence for each."""
    texts = []
    for row in _ROWS:
        if row.parameters is not None:
            kinds = row.parameters.list_options()
            form = ",".join(f"{name}={kind.placeholder}" for name, kind in kinds.items())
            meanings = ", ".join(f"{name}: {kind.help}" for name, kind in kinds.items())
            texts.append(f"; {row.name}:{form} sets {meanings}")
    return "".join(texts)


def find_transform(precision: str, target: str | None = None) -> Transform:
    """Return the transform of a precision and a target.

    Args:
        precision: Its name, with parameters after a colon if it has any: ``NAME:block=32``.
        target: The target, a name in `TARGETS`, or None.

    Raises:
        NystraError: The precision is unknown, the target does not apply to it, or a parameter.
    """
    precision, _, parameters = precision.partition(":")
    if precision not in PRECISIONS:
        raise NystraError(
            f"unknown `precision` {precision!r}: expected one of {', '.join(PRECISIONS)}"
        )
    find_target(target, precision)
    rows = {(row.name, row.target): row for row in _ROWS}
    row = rows.get((precision, target)) or rows[precision, None]
    return row.with_parameters(parameters)
