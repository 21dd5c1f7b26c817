"""The module that `accelerate` returns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import NystraError, foreign_reason
from ...models.own.network import OwnNetwork
from ...models.own.plain_copy import copy_with, plain_copy, unwrapped
from ...models.sizes.plain_run import plain_run
from ...models.spandrel.adapters import adapt
from .call import (
    Caller,
    OfTensors,
    Parameters,
    Structure,
    call_directly,
    ports_of,
)
from .choosing import AUTO, Problem, Wanted, Way, choose
from .fingerprint import computed_by
from .report import MODULE, Acceleration
from .ways import untraced

_BUILDING = threading.RLock()
"""Modules are built one after another: PyTorch's tracers are for one thread, and times are those of
a machine that does nothing else."""

_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Where a module keeps tensors and submodules; another module with these objects has them too."""


class _Form:
    """How calls like one call are computed, for the weights that the module had then."""

    def __init__(
        self,
        takes: Structure,
        gives: Structure,
        kinds: Sequence[tuple[torch.device, torch.dtype]],
        way: Way | None,
        weights: Sequence[Tensor],
    ) -> None:
        self.takes, self.gives, self.kinds, self.way = takes, gives, kinds, way
        self._weights, self._state = weights, _state(weights)
        self.has_warned = False

    def is_current(self) -> bool:
        """Return whether the weights are those that it was made with."""
        return _state(self._weights) == self._state

    def tensors(self, arranged: Any) -> list[Tensor] | str:
        """Return the tensors of a call, or why it is not one of those that are taken."""
        tensors = self.takes.tensors_of(arranged)
        if tensors is None:
            return "the arguments other than tensors are not those of the first call"
        kinds = [(tensor.device, tensor.dtype) for tensor in tensors]
        if kinds != self.kinds:
            return f"the tensors are {_kinds(kinds)}, those of the first call {_kinds(self.kinds)}"
        if self.way is None:
            return ""
        return self.way.limits.refusal(tensors) or tensors

    @untraced
    def warn(self, reason: str) -> None:
        """Warn, once, that the module as it is computes a call."""
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"the unchanged module computes this call, which is slower: {reason}", stacklevel=4
            )


class Accelerated(nn.Module):
    """Computes what another module does, faster; always in evaluation mode, without gradients.

    Submodules, parameters, buffers, ``state_dict`` and other attributes are those of the module.
    The first call, or the example, decides how it is computed; weights that change later
    (``load_state_dict``, ``.to``) are noticed, and it is built anew at the next call.
    """

    def __init__(self, module: nn.Module, wanted: Wanted, caller: Caller = call_directly) -> None:
        """Take a module and what is wanted; it is copied, and the copy shares its weights.

        Raises:
            NystraError: It cannot be copied.
        """
        super().__init__()
        module = unwrapped(module)
        if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
            raise NystraError("got a scripted module: pass the module that it was made from")
        # Other tensors of the same memory: `.to` of one does not change the other.
        held = {tensor: tensor.detach() for tensor in _tensors(module)}
        own = copy_with(module, held, "the module")
        self.training = False
        self.__dict__.update({name: vars(own)[name] for name in _SHARED})
        self.__dict__.update(_own=own, _wanted=wanted, _caller=caller, _form=None, _report=None)
        self.__dict__["_arguments"] = Parameters(own, caller)

    @property
    def report(self) -> Acceleration | None:
        """How it is computed and what that gained; None before the first call."""
        report: Acceleration | None = self._report
        return report

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returns for these arguments.

        Raises:
            NystraError: A tensor requires a gradient; or, at the first call, the backend does not
                work.
        """
        compiling = torch.compiler.is_compiling()
        arranged = self._arguments.arranged(args, kwargs)
        tensors = _refuse_gradients(arranged)
        if any(torch.is_autocast_enabled(kind) for kind in {t.device.type for t in tensors}):
            return self._as_it_is(args, kwargs, "torch.autocast is on")
        form: _Form | None = self._form
        if form is None or not (compiling or form.is_current()):
            form = self._build(args, kwargs)
        taken = form.tensors(arranged)
        if isinstance(taken, str):
            return self._as_it_is(args, kwargs, taken)
        way: Any = form.way
        with torch.no_grad():
            if compiling:
                return form.gives.filled(way(*taken))
            try:
                return form.gives.filled(way(*taken))
            except (NystraError, RuntimeError) as error:
                reason = foreign_reason(error)
        return self._as_it_is(args, kwargs, reason)

    def train(self, mode: bool = True) -> Accelerated:
        """Return itself, which is in evaluation mode.

        Raises:
            NystraError: The training mode is requested.
        """
        if mode:
            raise NystraError(
                "an accelerated module has no gradients and no training mode: train the module "
                "itself, then accelerate it again"
            )
        super().train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module."""
        if name in vars(type(self)) or "_own" not in self.__dict__:
            return super().__getattr__(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._own, name)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy keeps: it is built anew."""
        return self.__dict__ | {"_form": None, "_report": None}

    def _as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str) -> Any:
        form: _Form | None = self._form
        if reason and form is not None:
            form.warn(reason)
        with torch.no_grad():
            return self._caller(self._own, *args, **kwargs)

    @untraced
    def _build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Form:
        """Decide how calls like this one are computed."""
        with _BUILDING, torch.inference_mode(False), torch.no_grad():
            form: _Form | None = self._form
            if form is None or not form.is_current():
                form = self._built(args, kwargs)
                self.__dict__["_form"] = form
            return form

    def _built(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Form:
        takes, tensors = Structure.of(self._arguments.arranged(args, kwargs))
        tensors = [tensor.detach().clone() for tensor in tensors]  # of no inference mode
        kinds = [(tensor.device, tensor.dtype) for tensor in tensors]

        def call() -> Any:
            filled = takes.filled([tensor.clone() for tensor in tensors])
            return self._arguments.call(self._caller, self._own, filled)

        returned = call()  # an error of the module itself is that of the caller
        gives, outputs = Structure.of(returned)
        weights = _tensors(self._own)
        way: Way | None = None
        try:
            problem = self._problem(takes, tensors, outputs, call, weights)
            way, report = choose(problem)
        except NystraError as error:
            if self._wanted.backend != AUTO:
                raise
            report = Acceleration(MODULE, reasons={AUTO: str(error)})
        self.__dict__["_report"] = report
        form = _Form(takes, gives, kinds, way, weights)
        if way is None and report.reasons and report.seconds.keys() <= {MODULE}:
            form.warn("; ".join(dict.fromkeys(report.reasons.values())))
        return form

    def _problem(
        self,
        takes: Structure,
        tensors: Sequence[Tensor],
        outputs: Sequence[Tensor],
        call: Any,
        weights: Sequence[Tensor],
    ) -> Problem:
        of_tensors = OfTensors(self._own, self._caller, self._arguments, takes)
        network = plain_copy(OwnNetwork(of_tensors))
        adapt(network)
        inputs = [
            tensor.to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype)
            for tensor in tensors
        ]
        with plain_run() as skipped:
            expected: Sequence[Tensor] = outputs
            if skipped or any(not _is_plain(tensor) for tensor in (*weights, *tensors)):
                expected = network(*(tensor.clone() for tensor in inputs))
        ports = ports_of(inputs, expected)
        code = computed_by(network, ports[0], inputs)
        return Problem(network, tensors, inputs, expected, outputs, call, ports, code, self._wanted)


def _refuse_gradients(arranged: Any) -> list[Tensor]:
    """Return the tensors of a call; raise NystraError if one requires a gradient."""
    tensors = Structure.of(arranged)[1]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise NystraError(
            "an accelerated module has no gradients, and an input requires one: call it in "
            "torch.no_grad(), detach the input, or use the module itself"
        )
    return tensors


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _state(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Return where tensors are and how often PyTorch saw them change."""
    return [
        (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors
    ]


def _is_plain(tensor: Tensor) -> bool:
    wide = tensor.dtype == torch.float32 or not tensor.is_floating_point()
    return wide and tensor.device.type == "cpu"


def _kinds(kinds: Sequence[tuple[torch.device, torch.dtype]]) -> str:
    return ", ".join(f"{dtype} on {device}" for device, dtype in kinds)
