"""Opens the file of a module in each backend, compares the results and takes the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ... import __version__
from ...core.errors import NystraError, ValidationError, foreign_reason
from ...core.files.file_cache import file_of
from ...core.files.user_cache import key_of, remember_times, remembered_times
from ...models.own.plain_copy import state_sha256
from ...runtime.backends import find_backend, timed_backends
from ...runtime.session import Session
from ...runtime.timing.rows import describe_machine, installed_version
from ...runtime.timing.turns import least_seconds
from ..differences import relative_difference
from ..options import ExportOptions
from ..pipeline import export_module
from .engine import Engine
from .problem import AUTO, Problem
from .report import MODULE, Acceleration

_ALLOWED = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference from the module in float32, relative to the largest value, by the type that
is computed in."""

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "openvino")

_ROUNDS, _MOST_ROUNDS, _SECONDS, _DROP = 2, 10, 4.0, 2.0


@dataclass(frozen=True)
class _Opened:
    engine: Engine
    difference: float


def choose(problem: Problem) -> tuple[Engine | None, Acceleration]:
    """Return the fastest engine for a module, None for the module itself, and the report.

    Raises:
        NystraError: The requested backend does not work; never with the backend ``auto``.
    """
    backend = problem.request.backend
    names: tuple[str, ...]
    if backend == AUTO and problem.on_cpu:
        names = tuple(timed_backends())
    else:
        names = () if backend == AUTO else (backend,)
    file = model_file(problem)
    key = _times_key(problem, names)
    seconds = remembered_times(key)
    is_remembered = {MODULE, *names} >= seconds.keys() >= {MODULE}
    candidates = names
    if is_remembered:  # the others are opened only if the fastest one does not work any more
        candidates = tuple(name for name in names if name == min(seconds, key=seconds.__getitem__))
    opened, reasons = _open(problem, file, candidates)
    if not is_remembered or opened.keys() != {*candidates}:
        is_remembered = False
        more, more_reasons = _open(problem, file, set(names) - set(candidates))
        opened, reasons = opened | more, reasons | more_reasons
        seconds = _time(problem, opened)
        if backend == AUTO:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in problem.tensors)
            remember_times(key, f"a module at {shapes}", seconds)
    usable = {name: seconds[name] for name in (MODULE, *opened)}
    way = min(usable, key=usable.__getitem__) if backend == AUTO else backend
    used = opened.get(way)
    report = Acceleration(
        way,
        tuple(tuple(tensor.shape) for tensor in problem.tensors),
        seconds,
        is_remembered,
        0.0 if used is None else used.difference,
        used is None or problem.request.is_exact,
        None if used is None else file,
        reasons,
    )
    return None if used is None else used.engine, report


def _open(
    problem: Problem, file: Path, names: Sequence[str] | set[str]
) -> tuple[dict[str, _Opened], dict[str, str]]:
    """Open the file in backends; in ``auto`` a fault is a reason not to use one."""
    opened, reasons = {}, {}
    for name in names:
        try:
            opened[name] = _open_one(problem, file, name)
        except Exception as error:  # of any library: in `auto` another way remains
            if problem.request.backend != AUTO:
                if isinstance(error, NystraError):
                    raise
                reason = foreign_reason(error)
                raise NystraError(f"{name} does not work for this module: {reason}") from error
            reasons[name] = foreign_reason(error)
    return opened, reasons


def _open_one(problem: Problem, file: Path, name: str) -> _Opened:
    usable, reason = find_backend(name).available()
    if not usable:
        raise NystraError(reason)
    precision = problem.request.precision
    session = Session(file, name, torch.get_num_threads(), precision=precision)
    engine = Engine(session, problem.returned)
    if refusal := engine.limits.refusal(problem.tensors):
        raise NystraError(refusal)
    difference = relative_difference(engine.compute(problem.tensors), problem.expected)
    allowed = _ALLOWED[torch.bfloat16 if precision == "bf16" else torch.float32]
    allowed = max(allowed, *(_ALLOWED[tensor.dtype] for tensor in problem.returned))
    if problem.request.is_exact and not difference <= allowed:
        raise ValidationError(
            f"the result of {name} differs from that of the module by {difference:.0e} of its "
            f"largest value, expected at most {allowed:.0e}"
        )
    return _Opened(engine, difference)


def model_file(problem: Problem) -> Path:
    """Return the model file of a module from the cache, exported now if it is not there."""

    def write(path: Path) -> None:
        anywhere, here = problem.networks()
        plan = problem.request.plan
        try:
            export_module(anywhere, path, ExportOptions(plan, speed=False))
        except NystraError as error:
            shape = tuple(problem.inputs[0].shape)
            try:
                export_module(here, path, ExportOptions(plan, static=shape, speed=False))
            except NystraError as other:
                raise other from error

    return file_of("accelerated", _key(problem), write)


def _times_key(problem: Problem, names: Sequence[str]) -> str:
    """Return what the times of backends depend on, as a SHA-256."""
    return key_of(
        {
            "module": _key(problem),
            "ways": list(names),
            "precision": problem.request.precision,
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
            "plan": problem.request.plan.as_dict(),
            "ports": str(problem.ports),
            "versions": {name: installed_version(name) for name in _PACKAGES},
            "nystra": __version__,
        }
    )


def _time(problem: Problem, opened: dict[str, _Opened]) -> dict[str, float]:
    """Return the seconds of a call of the module and of each backend, called in turns."""

    def calling(engine: Engine) -> Callable[[], object]:
        return lambda: engine.compute(problem.tensors)

    functions = {name: calling(one.engine) for name, one in opened.items()}
    functions[MODULE] = problem.call
    return least_seconds(
        functions, rounds=_ROUNDS, most_rounds=_MOST_ROUNDS, seconds=_SECONDS, drop=_DROP
    )
