"""What changes the arithmetic of a graph: one row a transform.

A transform rewrites the traced graph, returns a rounded float32 copy that is validated too, and
names the fake-quantised PyTorch network that its tolerance is measured by. How far a file may
depart stands in `runtime.metrics.measures`, under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import onnx
from torch import nn

from ...core.errors import NystraError, UnsupportedModelError
from ...core.option import Options
from ...core.ports.port import Port
from ...models.architecture import PrecisionPolicy
from ...models.registry import row_named
from ...runtime.metrics.measures import measure_for
from ..load.images import Feeds
from ..validate.fake_quantised import quantised_network, rounded_network
from .int8.transform import quantise_model
from .precision.lowering import TENSORRT, lower_model
from .precision.policy import policy_for


@dataclass(frozen=True)
class TransformInputs:
    """What a transform gets besides the graph.

    Attributes:
        architecture: Of the network.
        feeds: Its inputs at each validation size.
        pictures: Its inputs for each calibration picture.
        output: Its first output.
        minimum: The least headline figure that the user accepts (``min_psnr``), or None.
        parameters: Of the transform; None where it has none.
    """

    architecture: str
    feeds: Sequence[Feeds]
    pictures: Sequence[Feeds]
    output: Port
    minimum: float | None = None
    parameters: Options | None = None


class TransformResult(Protocol):
    """What became of a graph.

    Attributes:
        rounded_copy: A float32 model that rounds where the transformed one does.
        exact: Modules that the transform, by what it measured, left in float32: the fake-quantised
            network does too.
    """

    @property
    def rounded_copy(self) -> onnx.ModelProto:
        """See the class."""

    @property
    def exact(self) -> tuple[str, ...]:
        """See the class."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, for the manifest."""

    def sentences(self) -> list[str]:
        """Return what the user should know, one sentence each."""


@dataclass(frozen=True)
class Transform:
    """One row.

    Attributes:
        name: What ``--precision`` takes; the row of its tolerance.
        apply: (model, inputs) -> result; the model, traced and tidied and without bodies,
            is changed in place. None leaves the graph as it is.
        fake_quantised: (the plain network, architecture, modules left in float32, parameters) -> a
            copy that rounds as the transform does, by other code.
        allow: Is called with the architecture; raises `UnsupportedModelError` where the transform
            is known not to be safe, before anything long is begun.
        target: The only program that takes the file, or None.
        calibrated: It measures the user's own pictures, which have to be inputs.
        parameters: Of the row, those by default; None where the transform has none.
    """

    name: str
    apply: Callable[[onnx.ModelProto, TransformInputs], TransformResult] | None = None
    fake_quantised: Callable[[nn.Module, str, Collection[str], Any], nn.Module] | None = None
    allow: Callable[[str], object] = lambda _: None
    target: str | None = None
    calibrated: bool = False
    parameters: Options | None = None

    @property
    def label(self) -> str:
        """What ``nystra.precision`` and the file's name say."""
        return self.name if self.target is None else f"{self.name}-{self.target}"

    @property
    def parameters_text(self) -> str:
        """The parameters that are not the default, as `with_parameters` takes them."""
        if self.parameters is None:
            return ""
        kinds = self.parameters.declared()
        changed = self.parameters.changed().items()
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
        kinds = {} if self.parameters is None else self.parameters.declared()
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


def _lower(
    precision: str, target: str | None, model: onnx.ModelProto, inputs: TransformInputs
) -> TransformResult:
    policy = policy_for(inputs.architecture, precision)
    return lower_model(model, precision, policy, inputs.feeds, tensorrt=target is not None)


def _rounded(precision: str, label: str, network: nn.Module, name: str, *_: object) -> nn.Module:
    return rounded_network(network, label, policy_for(name, precision))


def _precision(name: str, target: str | None = None) -> Transform:
    label = name if target is None else f"{name}-{target}"
    return Transform(
        name,
        partial(_lower, name, target),
        partial(_rounded, name, label),
        partial(policy_for, precision=name),
        target,
    )


def _int8_policy(name: str) -> PrecisionPolicy:
    """Return what an architecture keeps in float32; every export measures the rest.

    Raises:
        UnsupportedModelError: The architecture says that int8 does not do.
    """
    policy = row_named(name).architecture().precision or PrecisionPolicy()
    if "int8" in policy.refused:
        raise UnsupportedModelError(
            f"{name} in int8 is refused: {policy.refused['int8']}. Use `precision` fp32"
        )
    return policy


def _quantise(model: onnx.ModelProto, inputs: TransformInputs) -> TransformResult:
    measure = measure_for(inputs.output)
    budget = measure.tolerances["int8"].budget
    least = budget if inputs.minimum is None else inputs.minimum
    policy = _int8_policy(inputs.architecture)
    return quantise_model(model, policy, inputs.pictures, measure, least)


def _quantised(network: nn.Module, name: str, exact: Collection[str], _: object) -> nn.Module:
    return quantised_network(network, _int8_policy(name), exact)


UNCHANGED = Transform("fp32")
_INT8 = Transform("int8", _quantise, _quantised, _int8_policy, calibrated=True)
_ROWS = (UNCHANGED, _precision("fp16"), _precision("bf16"), _precision("bf16", TENSORRT), _INT8)

TRANSFORMS = {row.label: row for row in _ROWS}
"""By what ``nystra.precision`` says."""


def find_transform(precision: str, target: str | None = None) -> Transform:
    """Return the transform of a precision and a target.

    Args:
        precision: Its name, and parameters behind a colon where it has some: ``int4:block=32``.
        target: The only program that is to take the file, or None.

    Raises:
        NystraError: The precision is unknown, the target does not apply to it, or a parameter.
    """
    precision, _, parameters = precision.partition(":")
    names = list(dict.fromkeys(row.name for row in _ROWS))
    if precision not in names:
        raise NystraError(f"precision {precision!r} is none of {', '.join(names)}")
    targets = {str(row.target): row.name for row in _ROWS if row.target is not None}
    if target is not None and target not in targets:
        raise NystraError(f"target {target!r} is unknown: expected {', '.join(targets)}")
    for row in _ROWS:
        if (row.name, row.target) == (precision, target):
            return row.with_parameters(parameters)
    raise NystraError(
        f"`target` {target} does not apply to `precision` {precision}: such a file is for every "
        f"program anyway; it is for `precision` {targets[str(target)]}"
    )
