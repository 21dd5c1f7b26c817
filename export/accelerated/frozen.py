"""The module that `accelerate` returns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ...core.errors import NystraError
from ...models.own.network import OwnNetwork
from ...models.own.plain_copy import copy_with, tensors_of, unwrap_module
from ...models.torch_internals import is_observed, is_transformed
from .call import OfTensors, Structure, arrange, may_hold_more, tensors_in
from .choosing import choose
from .engine import Engine
from .problem import AUTO, Request, problem_of
from .report import MODULE, Acceleration

_BUILDING = threading.RLock()
"""Files are made one after another: PyTorch's tracers are for one thread, and times are those of a
machine that does nothing else."""

_FROZEN = (
    "an accelerated module is frozen: it has the weights and settings that the module had; change "
    "the module that it was made from, then call `refresh(module)`"
)


class _Frozen:
    """A copy of a module, and how it is computed."""

    def __init__(self, module: nn.Module, request: Request) -> None:
        module = unwrap_module(OwnNetwork(module).module)
        if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
            raise NystraError("got a scripted module: pass the module that it was made from")
        self.module = _copy(module)
        self.request = request
        self.engine: Engine | None = None
        self.report: Acceleration | None = None
        self.has_warned = False
        self.descriptor: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy keeps: its file is opened again."""
        return vars(self) | {"engine": None, "report": None}

    def compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the module returned when it was frozen."""
        arguments = arrange(self.module, args, kwargs)
        reason = _unusual(tensors_in(arguments))
        if not reason:
            try:
                takes, tensors = Structure.of(arguments, is_leaf=may_hold_more)
                if self.report is None:
                    self._build(takes, tensors)
                if self.engine is not None:
                    return self.engine.compute(takes, tensors)
            except NystraError as error:
                if self.report is None and self.request.backend != AUTO:
                    raise
                reason = str(error)
        if reason:
            self._warn(reason)
        with torch.no_grad():
            return self.module(*args, **kwargs)

    def _warn(self, reason: str) -> None:
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"the unchanged module computes this call, which is slower: {reason}", stacklevel=5
            )

    def _build(self, takes: Structure, tensors: Sequence[Tensor]) -> None:
        """Decide how calls like this one are computed."""
        with _BUILDING, torch.inference_mode(False), torch.no_grad():
            if self.report is not None:  # another thread has decided
                return
            tensors = [tensor.detach().clone() for tensor in tensors]  # of no inference mode
            try:
                module = OfTensors(_copy(self.module), takes)
                problem = problem_of(module, tensors, self.request)
                self.engine, report = choose(problem)
            except NystraError as error:
                if self.request.backend != AUTO:
                    raise
                report = Acceleration(MODULE, reasons={AUTO: str(error)})
            if report.reasons and report.seconds.keys() <= {MODULE}:
                reasons = dict.fromkeys(report.reasons.values())
                self._warn("; ".join(reasons))
            self.report = report


class Accelerated(nn.Module):
    """Computes what a module did when it was frozen, by its model file.

    It has no parameters, buffers or submodules, and no training mode; a call has no gradients.
    """

    _frozen: _Frozen

    def __init__(self, module: nn.Module, request: Request) -> None:
        """Freeze a module.

        Raises:
            NystraError: It cannot be copied.
        """
        super().__init__()
        vars(self).update(training=False, _frozen=_Frozen(module, request))

    @property
    def report(self) -> Acceleration | None:
        """How it is computed and what that gained; None before the first call."""
        return self._frozen.report

    def refresh(self, module: nn.Module) -> Accelerated:
        """Freeze a module instead of the one before, and return itself; the next call builds.

        Raises:
            NystraError: It cannot be copied.
        """
        accelerated = type(self)(module, self._frozen.request)
        vars(self)["_frozen"] = accelerated._frozen
        return self

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returned for these arguments when it was frozen.

        Raises:
            NystraError: A tensor requires a gradient; or, at the first call, the backend does not
                work.
        """
        inputs = tensors_in((args, kwargs))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
            raise NystraError(
                "an accelerated module has no gradients, and an input requires one: call it in "
                "torch.no_grad(), detach the input, or use the module itself"
            )
        return self._frozen.compute(args, kwargs)

    def requires_grad_(self, requires_grad: bool = True) -> Accelerated:
        """Return itself; raise NystraError if gradients are requested."""
        if requires_grad:
            _refuse()
        return self

    def _load_from_state_dict(self, state: Any, prefix: str, *_: Any) -> None:
        """Raise NystraError if a state has weights for it; `load_state_dict` calls this."""
        if any(name.startswith(prefix) for name in state):
            _refuse()

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> Accelerated:
        """Return itself; raise NystraError if the weights would get another type or device."""
        tensors = tensors_of(self._frozen.module)
        for dtype, device in {(tensor.dtype, tensor.device) for tensor in tensors}:
            empty = torch.empty(0, dtype=dtype, device=device)
            converted = function(empty)
            if (converted.dtype, converted.device) != (dtype, device):
                _refuse()
        return self

    def __setattr__(self, name: str, value: object) -> None:
        """Raise NystraError but for the evaluation mode, and for what torch.compile sets."""
        if name in ("_is_torch_compile", "_compiled_call_impl"):
            object.__setattr__(self, name, value)
        elif name != "training" or value:
            _refuse()

    def _refuse_change(self, *_: Any, **__: Any) -> NoReturn:
        _refuse()

    __delattr__ = register_parameter = register_buffer = add_module = _refuse_change

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: there is no such attribute."""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r:.80}: {_FROZEN}")


def _refuse() -> NoReturn:
    raise NystraError(_FROZEN)


def _copy(module: nn.Module) -> nn.Module:
    """Return a copy with weights of its own, in evaluation mode."""
    own = {tensor: tensor.detach().clone() for tensor in tensors_of(module)}
    return copy_with(module, own, "the module")


def _unusual(tensors: Sequence[Tensor]) -> str:
    """Return what makes PyTorch compute more than the values of a call, or ""."""
    if any(torch.is_autocast_enabled(tensor.device.type) for tensor in tensors):
        return "torch.autocast is on"
    traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if traced or is_observed():
        return "PyTorch records the operators"
    if any(is_transformed(tensor) for tensor in tensors):
        return "torch.func transforms the call"
    is_forward = forward_ad._current_level >= 0
    if is_forward and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        return "an input has a derivative in forward mode"
    if any(tensor.layout != torch.strided for tensor in tensors):
        return "a tensor is sparse"
    if any(type(tensor) not in (Tensor, nn.Parameter) for tensor in tensors):
        return "a tensor is of a class of its own"
    return ""
