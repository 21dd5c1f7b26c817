"""Builds the ways to compute a module, compares their results with it and takes the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from ... import __version__
from ...core.errors import NystraError, ValidationError, foreign_reason
from ...core.files.user_cache import key_of, remember_times, remembered_times
from ...core.ports.port import Port
from ...models.own.network import OwnNetwork
from ...models.own.plain_copy import state_sha256
from ...runtime.backends import find_backend, timed_backends
from ...runtime.session import Session
from ...runtime.timing.rows import describe_machine, installed_version
from ...runtime.timing.turns import least_seconds
from ..attention.full.parameters import Full
from ..attention.plan import Plan
from ..differences import relative_difference
from .file_cache import file_of
from .forms import Replaced, replaced, write_file
from .report import MODULE, Acceleration
from .ways import InEngine, InTorch, Limits, Outputs

AUTO, TORCH = "auto", "torch"

_ALLOWED = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference from the module in float32, relative to the largest value, by the type that
is computed in."""

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "openvino")

_ROUNDS, _MOST_ROUNDS, _SECONDS, _DROP = 2, 10, 4.0, 2.0

Way: TypeAlias = InTorch | InEngine
Made = TypeVar("Made")


@dataclass(frozen=True)
class Wanted:
    """What `accelerate` was asked for.

    Attributes:
        plan: The mechanism of each site.
        backend: ``auto``, ``torch`` or the name of a backend.
        precision: The arithmetic of the session, or None.
    """

    plan: Plan
    backend: str
    precision: str | None

    @property
    def exact(self) -> bool:
        """Whether the result is that of the module."""
        return all(isinstance(m, Full) for m in (self.plan.default, *self.plan.sites.values()))


@dataclass(frozen=True)
class Problem:
    """A module to compute, and a call of it.

    Attributes:
        network: The module in float32 on the CPU: tensors in, a tuple of tensors out.
        tensors: The tensors of the call, as they were passed.
        inputs: The same in float32 on the CPU.
        expected: What the network returns for them.
        returned: What the module returned for them.
        call: Calls the module as it is.
        ports: Inputs and outputs of the network.
        code: What the network computes, from `computed_by`.
        wanted: What is wanted.
    """

    network: nn.Module
    tensors: Sequence[Tensor]
    inputs: Sequence[Tensor]
    expected: Sequence[Tensor]
    returned: Sequence[Tensor]
    call: Callable[[], object]
    ports: tuple[tuple[Port, ...], tuple[Port, ...]]
    code: str
    wanted: Wanted

    @property
    def on_cpu(self) -> bool:
        """Whether its tensors are on the CPU."""
        return all(tensor.device.type == "cpu" for tensor in self.tensors)

    def networks(self) -> list[tuple[OwnNetwork, tuple[int, ...] | None]]:
        """Return the network for any shape (None), and for the shapes of the call alone."""
        inputs, outputs = self.ports
        fixed = tuple(
            replace(port, lengths=dict(zip(port.axes, tensor.shape, strict=True)))
            for port, tensor in zip(inputs, self.inputs, strict=True)
        )
        shape = tuple(self.inputs[0].shape)
        return [
            (OwnNetwork(self.network, inputs, outputs, "Module"), None),
            (OwnNetwork(self.network, fixed, outputs, "Module"), shape),
        ]


@dataclass
class _Candidates:
    problem: Problem
    ways: dict[str, Way] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    torch_form: Replaced | None = None
    file: Path | None = None

    def add(self, name: str) -> None:
        """Make a way and compare its result; in ``auto`` a fault is a reason not to use it."""
        try:
            way, allowed = self._torch() if name == TORCH else self._engine(name)
            self.differences[name] = self._difference(name, way, allowed)
            self.ways[name] = way
        except Exception as error:  # of any library: in `auto` another way remains
            if self.problem.wanted.backend == AUTO:
                self.reasons[name] = foreign_reason(error)
            elif isinstance(error, NystraError):
                raise
            else:
                raise NystraError(
                    f"{name} does not work for this module: {foreign_reason(error)}"
                ) from error

    def _torch(self) -> tuple[Way, float]:
        problem = self.problem
        if problem.wanted.precision not in (None, "fp32"):
            raise NystraError(
                f"`precision` {problem.wanted.precision} does not apply to torch: expected None; "
                "convert the module (`.half()`, `.bfloat16()`) or use torch.autocast around it"
            )
        made = self.torch_form = first_that_works(
            problem, lambda own, static: replaced(own, problem.wanted.plan, static)
        )
        dtype = torch.float32
        if not problem.on_cpu:
            dtype = problem.tensors[0].dtype
            made.network.to(problem.tensors[0].device, dtype)
        limits = Limits(made.inputs, made.minimum)
        way = InTorch(made.network, dtype, Outputs(problem.returned), limits)
        return way.eval(), _ALLOWED[dtype]

    def _engine(self, name: str) -> tuple[Way, float]:
        problem, precision = self.problem, self.problem.wanted.precision
        usable, reason = find_backend(name).available()
        if not usable:
            raise NystraError(reason)
        if self.file is None:
            self.file = model_file(problem)
        session = Session(self.file, name, torch.get_num_threads(), precision=precision)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return InEngine(session, Outputs(problem.returned)), _ALLOWED[dtype]

    def _difference(self, name: str, way: Way, allowed: float) -> float:
        """Return the difference of a way from the module; raise ValidationError if it is wrong."""
        problem = self.problem
        if refusal := way.limits.refusal(problem.tensors):
            raise NystraError(refusal)
        with torch.no_grad():
            given = way(*problem.tensors)
        from_module = relative_difference(given, problem.expected)
        apart = from_module
        if not problem.wanted.exact:
            if self.torch_form is None:  # the file was compared with this form when it was made
                return from_module
            with torch.no_grad():
                planned = self.torch_form.plain()(*problem.inputs)
            apart = relative_difference(given, _tuple(planned))
        rounded = max(_ALLOWED.get(tensor.dtype, 0.0) for tensor in problem.returned)
        if not apart <= max(allowed, rounded):
            raise ValidationError(
                f"the result of {name} differs from that of the module by {apart:.0e} of its "
                f"largest value, expected at most {allowed:.0e}"
            )
        return from_module


def choose(problem: Problem) -> tuple[Way | None, Acceleration]:
    """Return the fastest way to compute a module, None for the module itself, and the report.

    Raises:
        NystraError: The wanted way does not work; never with the backend ``auto``.
    """
    wanted, found = problem.wanted, _Candidates(problem)
    names: tuple[str, ...] = (wanted.backend,)
    if wanted.backend == AUTO:
        names = (TORCH, *(timed_backends() if problem.on_cpu else ()))
    key = times_key(problem, names)
    seconds = remembered_times(key)
    remembered = {MODULE, *names} >= seconds.keys() >= {MODULE}
    first = names
    if remembered:  # the others are made only if the fastest one does not work any more
        fastest = min(seconds, key=lambda name: seconds[name])
        first = tuple(name for name in names if name == fastest)
    for name in first:
        found.add(name)
    if not remembered or not found.ways.keys() >= {*first}:
        for name in names:
            if name not in first:
                found.add(name)
        seconds, remembered = _timed(problem, found.ways), False
        if wanted.backend == AUTO:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in problem.tensors)
            remember_times(key, f"a module at {shapes}", seconds)
    able = {MODULE: seconds[MODULE], **{name: seconds[name] for name in found.ways}}
    way = wanted.backend if wanted.backend != AUTO else min(able, key=lambda name: able[name])
    apart = found.differences.get(way, 0.0)
    report = Acceleration(
        way,
        tuple(tuple(tensor.shape) for tensor in problem.tensors),
        seconds,
        remembered,
        apart,
        way == MODULE or wanted.exact,
        found.torch_form.sites if way == TORCH and found.torch_form else None,
        found.file if way not in (MODULE, TORCH) else None,
        found.reasons,
    )
    return found.ways.get(way), report


def model_file(problem: Problem) -> Path:
    """Return the model file of a module from the cache, exported now if it is not there."""

    def write(path: Path) -> None:
        first_that_works(
            problem, lambda own, static: write_file(own, path, problem.wanted.plan, static)
        )

    return file_of(_key(problem), write)


def first_that_works(problem: Problem, make: Callable[..., Made]) -> Made:
    """Return what is made of a network for any shape; where that fails, for one shape."""
    anywhere, here = problem.networks()
    try:
        return make(*anywhere)
    except NystraError as error:
        try:
            return make(*here)
        except NystraError as other:
            raise other from error


def times_key(problem: Problem, names: Sequence[str]) -> str:
    """Return what the times of ways depend on, as a SHA-256."""
    return key_of(
        {
            "module": _key(problem),
            "ways": list(names),
            "precision": problem.wanted.precision,
            "shapes": [list(tensor.shape) for tensor in problem.tensors],
            "kinds": [f"{tensor.dtype} {tensor.device}" for tensor in problem.tensors],
            "machine": describe_machine(torch.get_num_threads()),
        }
    )


def _key(problem: Problem) -> str:
    """Return everything that the file of a module depends on, as a SHA-256."""
    return key_of(
        {
            "code": problem.code,
            "weights": state_sha256(problem.network.state_dict()),
            "plan": problem.wanted.plan.as_dict(),
            "ports": str(problem.ports),
            "versions": {name: installed_version(name) for name in _PACKAGES},
            "nystra": __version__,
        }
    )


def _timed(problem: Problem, ways: Mapping[str, Way]) -> dict[str, float]:
    """Return the seconds of a call of the module and of each way, called in turns."""

    def calling(way: Way) -> Callable[[], object]:
        return _finished(problem, lambda: way(*problem.tensors))

    functions = {name: calling(way) for name, way in ways.items()}
    functions[MODULE] = _finished(problem, problem.call)
    return least_seconds(
        functions, rounds=_ROUNDS, most_rounds=_MOST_ROUNDS, seconds=_SECONDS, drop=_DROP
    )


def _finished(problem: Problem, call: Callable[[], object]) -> Callable[[], object]:
    """Return a call that waits for the device."""
    if problem.on_cpu:
        return call

    def run() -> None:
        call()
        torch.cuda.synchronize()

    return run


def _tuple(returned: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (returned,) if isinstance(returned, Tensor) else tuple(returned)
