"""``nystra bench``: compares models and backends in interleaved runs.

Each configuration (model, backend, size) has a child process of its own; the children of one
size stay alive together and run one at a time, in turns, so that a drift of the machine meets
all of them alike. Times are taken in the child around the run alone. A backend on a device runs
a second time in each turn, without the copies to and from it: the time on the device.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.ports.port import Size, size_text
from ..backends import artifact_of, backend_names, find_backend
from ..model.onnx_header import read_onnx_header
from ..session_spec import SessionSpec
from ..workers.child import Child, ChildError
from .rows import Row
from .turns import turns

BODIES_BACKEND = "ort-cpu-bodies"
"""The name for ``ort-cpu`` with the operators' bodies, even if the library is installed."""

MIN_RUNS = 3
"""Fewest timed runs of a configuration, however long one takes."""

_SLOW = 0.2
"""Share of the timing budget: a run that takes longer is the only warm-up run."""

WORKER = f"{__package__}.worker"


@dataclass(frozen=True)
class Configuration:
    """One timed configuration: a model in a backend.

    Attributes:
        model: The model file.
        backend: Name of the backend in the report.
        worker: The module whose process runs it.
        request: The arguments of its ``load``.
    """

    model: str
    backend: str
    worker: str
    request: Mapping[str, Any] = field(default_factory=dict)


def session_spec(
    model: str | os.PathLike[str], name: str, threads: int | None = None
) -> SessionSpec:
    """Return how a benchmark runs a model under a name.

    Args:
        model: A model file.
        name: Name of a backend; of one with a library of operators also with ``-bodies``, for the
            operators' bodies; and with a precision that it can choose: ``openvino-bf16``.
        threads: As in `SessionSpec`.
    """
    settings: dict[str, Any] = {"backend": name}
    backend, _, suffix = name.rpartition("-")
    if backend in backend_names():
        kind = find_backend(backend)
        if suffix == "bodies" and kind.library_name is not None:
            settings = {"backend": backend, "library": "none"}
        elif suffix in kind.arithmetic:
            settings = {"backend": backend, "precision": suffix}
    return SessionSpec(Path(model), threads=threads, **settings)


def session_configuration(
    model: str | os.PathLike[str],
    backend: str,
    threads: int | None = None,
    library: str | None = None,
    ep_library: Path | None = None,
) -> Configuration:
    """Return the configuration of a model in one of the runtime's backends.

    Args:
        model: A model file.
        backend: As `session_spec` takes it.
        threads: As in `SessionSpec`.
        library: The operator library instead of that of the name.
        ep_library: As in `SessionSpec`, for backends with plug-ins.

    Raises:
        NystraError: The name is unknown, or the model is missing or not ONNX.
    """
    spec = session_spec(model, backend, threads)
    if library is not None:
        spec = replace(spec, library=library)
    kind = find_backend(spec.backend_name)
    if kind.plugs_in:
        spec = replace(spec, ep_library=ep_library)
    if artifact_of(spec.model) == "onnx":
        read_onnx_header(model)
    request = {"session": spec.as_dict(), "device": kind.device != "cpu"}
    return Configuration(str(model), backend, WORKER, request)


def bench(
    configurations: Sequence[Configuration],
    sizes: Sequence[Size],
    *,
    seconds: float = 3.0,
    runs: int = 100,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Time configurations at several sizes.

    Args:
        configurations: The configurations; ratios are to the first one that runs at a size.
        sizes: Sizes of the inputs, by axis, in pixels.
        seconds: A configuration is done when its timed runs took this time,
        runs: Or when it has this number of runs; at least `MIN_RUNS` in any case.
        progress: Called with progress messages.

    Returns:
        One row per size and configuration, size by size. A configuration that cannot run, or whose
        process dies, has a row with the reason.

    Raises:
        NystraError: There is nothing to time, or a number is not positive.
    """
    if not configurations or not sizes:
        raise NystraError("got no configurations or no sizes to time, expected one or more")
    if seconds <= 0 or runs < 1 or any(min(size.values()) < 1 for size in sizes):
        listed = ", ".join(size_text(size) for size in sizes)
        raise NystraError(
            f"got {seconds:g} seconds, {runs} runs and the sizes {listed}, expected numbers above 0"
        )
    rows = []
    for size in sizes:
        rows += _one_size(configurations, size, seconds, runs, progress)
    return rows


@dataclass
class _Contender:
    row: Row
    child: Child
    min_runs: int = MIN_RUNS

    def ask(self, what: str, request: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        try:
            return self.child.ask(what, request)
        except ChildError as error:
            self.row.fail(str(error), error.exit_code)
            return None

    def needs_more_runs(self, seconds: float, runs: int) -> bool:
        times = self.row.times
        if self.row.reason is not None:
            return False
        return len(times) < self.min_runs or (sum(times) < seconds and len(times) < runs)


def _one_size(
    configurations: Sequence[Configuration],
    size: Size,
    seconds: float,
    runs: int,
    progress: Callable[[str], None],
) -> list[Row]:
    with contextlib.ExitStack() as stack:
        contenders = []
        for configuration in configurations:
            row = Row(configuration.model, configuration.backend, size)
            progress(f"{row.label}: load")
            child = stack.enter_context(Child(configuration.worker))
            contender = _Contender(row, child, min(MIN_RUNS, runs))
            contenders.append(contender)
            _warm_up(contender, configuration, seconds)
        progress(f"measure {size_text(size)}")
        for contender in turns(lambda: [c for c in contenders if c.needs_more_runs(seconds, runs)]):
            answer = contender.ask("run")
            if answer is not None:
                contender.row.times.append(answer["seconds"])
                if answer["device_seconds"] is not None:
                    contender.row.device_times.append(answer["device_seconds"])
        for contender in contenders:
            if contender.row.reason is None:
                contender.row.memory = contender.ask("memory") or {}
    rows = [contender.row for contender in contenders]
    first = next((row for row in rows if row.reason is None), None)
    for row in rows:
        if first is not None and row.reason is None:
            row.compare(first)
    return rows


def _warm_up(contender: _Contender, configuration: Configuration, seconds: float) -> None:
    notes = contender.ask("load", configuration.request)
    if notes is None:
        return
    contender.row.note = notes.get("library_reason", "")
    contender.row.operators = notes.get("operators", "")
    contender.row.assignment = notes.get("assignment")
    if contender.ask("prepare", {"size": dict(contender.row.size)}) is None:
        return
    first = contender.ask("run")
    if first is not None and first["seconds"] < _SLOW * seconds:
        contender.ask("run")
    if contender.row.reason is None:
        # Before the next child loads: runtimes keep the GPU memory that they allocated.
        contender.row.device_memory = (contender.ask("device") or {}).get("above")
