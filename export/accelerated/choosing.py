"""Opens the file of a module in each backend, compares the results and takes the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from ... import __version__
from ...core.errors import NystraError, ValidationError, foreign_reason
from ...core.files.file_cache import file_of
from ...core.files.user_cache import key_of, read_figures, remember_figures
from ...models.own.fingerprint import hash_computation
from ...models.own.network import OwnNetwork
from ...models.own.plain_copy import state_sha256
from ...runtime.backends import list_timed_backends
from ...runtime.session import Session
from ...runtime.timing.rows import describe_machine, find_version
from ...runtime.timing.turns import measure_shortest
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


def choose(problem: Problem) -> tuple[Engine | None, Acceleration]:
    """Return the fastest engine for a module, None for the module itself, and the report.

    Raises:
        NystraError: The requested backend does not work; never with the backend ``auto``.
    """
    backend = problem.request.backend
    names = [backend]
    if backend == AUTO:
        on_cpu = all(tensor.device.type == "cpu" for tensor in problem.tensors)
        names = list_timed_backends() if on_cpu else []
    file, key = model_file(problem, names)
    seconds = read_figures(key) if backend == AUTO else {}
    remembered = {MODULE, *names} >= seconds.keys() >= {MODULE}
    if remembered:  # the others are opened only if the fastest one does not work any more
        quickest = min(seconds, key=seconds.__getitem__)
        fastest = [name for name in names if name == quickest]
        engines, reasons = _open(problem, file, fastest)
        remembered = engines.keys() == {*fastest}
    if not remembered:
        engines, reasons = _open(problem, file, names)
        seconds = _time(problem, engines)
        if backend == AUTO:
            remember_figures(key, f"a module at {problem.shapes}", seconds)
    usable = {name: seconds[name] for name in (MODULE, *engines)}
    way = min(usable, key=usable.__getitem__) if backend == AUTO else backend
    report = Acceleration(way, problem.shapes, seconds, remembered, reasons=reasons)
    if way == MODULE:
        return None, report
    engine, difference = engines[way]
    is_exact = problem.request.is_exact
    return engine, replace(report, difference=difference, equal=is_exact, file=file)


def _open(
    problem: Problem, file: Path, names: Sequence[str]
) -> tuple[dict[str, tuple[Engine, float]], dict[str, str]]:
    """Open the file in backends.

    Returns:
        Name -> engine and its difference from the module; and name -> why it does not work.
    """
    engines, reasons = {}, {}
    for name in names:
        try:
            engines[name] = _open_one(problem, file, name)
        except Exception as error:  # of any library: in `auto` another way remains
            if problem.request.backend != AUTO:
                raise
            reasons[name] = foreign_reason(error)
    return engines, reasons


def _open_one(problem: Problem, file: Path, name: str) -> tuple[Engine, float]:
    precision = problem.request.precision
    session = Session(file, name, torch.get_num_threads(), precision=precision)
    engine = Engine(session, problem.module.takes, problem.gives, problem.shapes)
    difference = relative_difference(engine.run(problem.tensors), problem.expected)
    types = {kind.dtype for kind in problem.gives.kinds}
    types.add(torch.bfloat16 if precision == "bf16" else torch.float32)
    allowed = max(_ALLOWED[kind] for kind in types)
    if problem.request.is_exact and not difference <= allowed:
        raise ValidationError(
            f"the result of {name} differs from that of the module by {difference:.0e} of its "
            f"largest value, expected at most {allowed:.0e}"
        )
    return engine, difference


def model_file(problem: Problem, names: Sequence[str]) -> tuple[Path, str]:
    """Return the model file of a module, and the key of the times of backends with it.

    The file is from the cache, exported now if it is not there: for any size, or, where there is no
    such file, for the sizes of the call.
    """
    inputs, outputs = problem.ports
    request = problem.request
    parts = {
        "code": hash_computation(problem.network, inputs, problem.inputs),
        "weights": state_sha256(problem.network.state_dict()),
        "plan": request.plan.as_dict(),
        "ports": str(problem.ports),
        "versions": {name: find_version(name) for name in _PACKAGES},
        "nystra": __version__,
    }

    def write(path: Path) -> None:
        network = OwnNetwork(problem.network, inputs, outputs, "Module")
        options = ExportOptions(request.plan, speed=False)
        try:
            export_module(network, path, options)
        except NystraError as error:
            fixed = []
            for port, tensor in zip(inputs, problem.inputs, strict=True):
                lengths = dict(zip(port.axes, tensor.shape, strict=True))
                fixed.append(replace(port, lengths=lengths))
            static = tuple(problem.inputs[0].shape)
            options = replace(options, static=static)
            try:
                export_module(replace(network, inputs=fixed), path, options)
            except NystraError as other:
                raise other from error

    file = file_of("accelerated", key_of(parts), write)
    of_times = {
        "ways": list(names),
        "precision": request.precision,
        "call": str((problem.shapes, problem.module.takes.kinds)),
        "machine": describe_machine(torch.get_num_threads()),
    }
    return file, key_of(parts | of_times)


def _time(problem: Problem, engines: dict[str, tuple[Engine, float]]) -> dict[str, float]:
    """Return the seconds of a call of the module and of each backend, called in turns."""
    functions: dict[str, Callable[[], object]] = {}
    for name, (engine, _) in engines.items():
        functions[name] = partial(engine.run, problem.tensors)
    inputs = [tensor.clone() for tensor in problem.tensors]
    functions[MODULE] = partial(problem.module.call, inputs)
    return measure_shortest(functions, rounds=2, most_rounds=10, seconds=4.0, drop=2.0)
