"""The module that `accelerate` returns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

# PyTorch has no public name for the mode in use.
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...core.errors import NystraError, UnsupportedModelError, foreign_reason
from ...models.own.plain_copy import copy_with, tensors_of, unwrapped
from .call import Caller, Parameters, Structure, call_directly, refuse_objects, tensors_in
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

_OF_COMPILE = ("_is_torch_compile", "_compiled_call_impl")


@dataclass(frozen=True)
class _Form:
    """How calls like the first one are computed.

    Attributes:
        takes: The arguments.
        gives: What is returned.
        kinds: Device, type and layout of each tensor, and PyTorch's own default type.
        shapes: The only shapes that are taken, or None.
        engine: What computes them, or None for the copy.
    """

    takes: Structure
    gives: Structure
    kinds: tuple[Any, ...]
    shapes: tuple[Any, ...] | None
    engine: Engine

    def refusal(self, structure: Structure, tensors: Sequence[Tensor]) -> str:
        """Return why a call is not one of those that are taken, or ""."""
        if structure.key != self.takes.key:
            return "the arguments other than tensors are not those of the first call"
        if _kinds(tensors) != self.kinds:
            own, others = (
                ", ".join(str(kind[0]) for kind in kinds) for kinds in (_kinds(tensors), self.kinds)
            )
            return f"the tensors are {own}, those of the first call {others}"
        if self.shapes not in (None, _shapes(tensors)):
            return "the module returns values beside tensors, which are known for one size only"
        return self.engine.limits.refusal(tensors)


class _Frozen:
    """A copy of a module, and how it is computed."""

    def __init__(self, module: nn.Module, request: Request, caller: Caller) -> None:
        if not isinstance(module, nn.Module):
            raise NystraError(
                f"got a {type(module).__name__}, expected a torch.nn.Module with its weights or a "
                "descriptor of spandrel"
            )
        module = unwrapped(module)
        if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
            raise NystraError("got a scripted module: pass the module that it was made from")
        self.module = _copy(module)
        self.request, self.caller = request, caller
        self.parameters = Parameters(self.module, caller)
        self.form: _Form | None = None
        self.report: Acceleration | None = None
        self.has_warned = False

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy keeps: its file is opened again."""
        return vars(self) | {"form": None, "report": None}

    def compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the module returned when it was frozen."""
        arranged = self.parameters.arranged(args, kwargs)
        try:
            outcome = self._by_file(arranged, tensors_in(arranged))
        except UnsupportedModelError as error:
            if self.report is None and self.request.backend != AUTO:
                raise
            outcome = str(error)
        if not isinstance(outcome, str):
            return outcome[0]
        if outcome:
            self._warn(outcome)
        with torch.no_grad():
            return self.caller(self.module, *args, **kwargs)

    def _by_file(self, arranged: Any, tensors: Sequence[Tensor]) -> tuple[Any] | str:
        """Return the result by the file, or why the copy has to compute it."""
        if reason := _unusual(tensors):
            return reason
        refuse_objects(arranged)
        structure, tensors = Structure.of(arranged)
        if self.report is None:
            self._build(structure, tensors)
        form = self.form
        if form is None:
            return ""
        if reason := form.refusal(structure, tensors):
            return reason
        try:
            return (form.gives.filled(form.engine.compute(tensors)),)
        except (NystraError, RuntimeError) as error:
            return foreign_reason(error)

    def _warn(self, reason: str) -> None:
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"the unchanged module computes this call, which is slower: {reason}", stacklevel=5
            )

    def _build(self, takes: Structure, tensors: Sequence[Tensor]) -> None:
        """Decide how calls like this one are computed."""
        with _BUILDING, torch.inference_mode(False), torch.no_grad():
            if self.report is None:
                tensors = [tensor.detach().clone() for tensor in tensors]  # of no inference mode
                self.form, self.report = self._built(takes, tensors)

    def _built(
        self, takes: Structure, tensors: Sequence[Tensor]
    ) -> tuple[_Form | None, Acceleration]:
        copied = _copy(self.module)  # a run may change it

        def call(given: Sequence[Tensor]) -> Any:
            return self.parameters.call(self.caller, copied, takes.filled(given))

        call([tensor.clone() for tensor in tensors])  # an error of the module is the caller's
        try:
            gives, problem = problem_of(
                _copy(self.module), self.caller, self.parameters, takes, tensors, call, self.request
            )
            engine, report = choose(problem)
        except NystraError as error:
            if self.request.backend != AUTO:
                raise
            engine, report = None, Acceleration(MODULE, reasons={AUTO: str(error)})
        if engine is None:
            if report.reasons and report.seconds.keys() <= {MODULE}:
                self._warn("; ".join(dict.fromkeys(report.reasons.values())))
            return None, report
        shapes = _shapes(tensors) if gives.has_values else None
        return _Form(takes, gives, _kinds(tensors), shapes, engine), report


class Accelerated(nn.Module):
    """Computes what a module did when it was frozen, by its model file.

    It has no parameters, buffers or submodules, and no training mode; a call has no gradients.
    """

    def __init__(self, module: nn.Module, request: Request, caller: Caller = call_directly) -> None:
        """Freeze a module.

        Raises:
            NystraError: It cannot be copied.
        """
        super().__init__()
        self.__dict__["training"] = False
        self.__dict__["_frozen"] = _Frozen(module, request, caller)

    @property
    def report(self) -> Acceleration | None:
        """How it is computed and what that gained; None before the first call."""
        report: Acceleration | None = self._frozen.report
        return report

    def refresh(self, module: nn.Module) -> Accelerated:
        """Freeze a module instead of the one before, and return itself; the next call builds.

        Raises:
            NystraError: It cannot be copied.
        """
        before: _Frozen = self._frozen
        self.__dict__["_frozen"] = _Frozen(module, before.request, before.caller)
        return self

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module returned for these arguments when it was frozen.

        Raises:
            NystraError: A tensor requires a gradient; or, at the first call, the backend does not
                work.
        """
        if torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in tensors_in((args, kwargs))
        ):
            raise NystraError(
                "an accelerated module has no gradients, and an input requires one: call it in "
                "torch.no_grad(), detach the input, or use the module itself"
            )
        return self._frozen.compute(args, kwargs)

    def train(self, mode: bool = True) -> Accelerated:
        """Return itself, which is in evaluation mode.

        Raises:
            NystraError: The training mode is requested.
        """
        if mode:
            _refuse()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Accelerated:
        """Return itself; raise NystraError if gradients are requested."""
        return self.train(requires_grad)

    def load_state_dict(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NystraError."""
        _refuse()

    def _load_from_state_dict(self, state: Any, prefix: str, *_: Any) -> None:
        if any(name.startswith(prefix) for name in state):  # of a module that contains this one
            _refuse()

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> Accelerated:
        """Return itself; raise NystraError if the weights would get another type or device."""
        for kind in {(t.dtype, t.device) for t in tensors_of(self._frozen.module)}:
            converted = function(torch.empty(0, dtype=kind[0], device=kind[1]))
            if (converted.dtype, converted.device) != kind:
                _refuse()
        return self

    def __setattr__(self, name: str, value: object) -> None:
        """Raise NystraError but for what torch.compile sets."""
        if name in _OF_COMPILE:
            object.__setattr__(self, name, value)
        elif name != "training" or value:
            _refuse()

    def _refuse_change(self, *_: Any, **__: Any) -> NoReturn:
        _refuse()

    __delattr__ = _refuse_change
    register_parameter = register_buffer = add_module = register_module = _refuse_change

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
    if traced or _get_current_dispatch_mode() is not None:
        return "PyTorch records the operators"
    if any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors):
        return "torch.func transforms the call"
    if any(_has_tangent(tensor) for tensor in tensors):
        return "an input has a derivative in forward mode"
    if any(tensor.layout != torch.strided for tensor in tensors):
        return "a tensor is sparse"
    return ""


def _has_tangent(tensor: Tensor) -> bool:
    is_open = forward_ad._current_level >= 0
    return is_open and forward_ad.unpack_dual(tensor).tangent is not None


def _kinds(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    default = torch.get_default_dtype()
    return tuple((f"{tensor.dtype} on {tensor.device}", default) for tensor in tensors)


def _shapes(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)
