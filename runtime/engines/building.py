"""Building an engine; runs in the process of `worker` only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ...core.files.writing import atomic_write_bytes
from ..workers.child import Progress
from .network import Log, Network
from .toolkit import RTX, Toolkit, by_number


class RefusedError(Exception):
    """The builder refused the network."""


def configure(
    network: Network,
    profile: Mapping[str, Sequence[Sequence[int]]],
    level: int | None = None,
    threads: int | None = None,
) -> Any:
    """Return a builder configuration without TF32 and with one optimization profile.

    Args:
        network: What was parsed.
        profile: Input name -> smallest, best and largest shape.
        level: Level of optimization, or None for the builder's own.
        threads: Threads of the builder, or None for its own.

    Raises:
        NystraError: The profile is not one of this network.
    """
    config = network.builder.create_builder_config()
    config.clear_flag(network.toolkit.module.BuilderFlag.TF32)  # on by default
    if level is not None:
        config.builder_optimization_level = level
    if threads is not None:
        network.builder.max_threads = threads
    if profile:
        shapes = network.builder.create_optimization_profile()
        for name, (least, best, largest) in profile.items():
            shapes.set_shape(name, tuple(least), tuple(best), tuple(largest))
        if config.add_optimization_profile(shapes) < 0:
            raise NystraError(f"{network.toolkit.name} does not accept the profile {dict(profile)}")
    return config


def set_targets(toolkit: Toolkit, config: Any, targets: Sequence[str]) -> None:
    """Set the GPUs that TensorRT-RTX builds for; no target: the GPU of this machine.

    Raises:
        NystraError: A target is not one that this TensorRT-RTX knows.
    """
    known = toolkit.module.ComputeCapability
    names = [target.upper() for target in targets] or ["CURRENT"]
    wrong = [name.lower() for name in names if not hasattr(known, name)]
    if wrong:
        offered = sorted(
            (name.lower() for name in dir(known) if name.startswith("SM")), key=by_number
        )
        raise NystraError(
            f"TensorRT-RTX {toolkit.version} has no target {', '.join(wrong)}; expected one or "
            f"more of {', '.join(offered)}"
        )
    config.num_compute_capabilities = len(names)
    for index, name in enumerate(names):
        config.set_compute_capability(getattr(known, name), index)


def build(
    network: Network,
    log: Log,
    config: Any,
    *,
    seconds: float | None,
    timing_cache: Path | None,
    progress: Progress,
) -> bytes:
    """Build the engine and return its bytes.

    Args:
        network: What was parsed.
        log: The log of its builder.
        config: As `configure` made it.
        seconds: Time limit of the build, or None.
        timing_cache: A file that is read if it exists, and written.
        progress: Is called at every step.

    Raises:
        RefusedError: The builder refused the network.
        ExportError: The time limit was reached.
        BackendUnavailableError: It cannot build on this machine.
    """
    toolkit = network.toolkit
    monitor = _monitor(toolkit, seconds, progress)
    config.progress_monitor = monitor
    cache = None
    if timing_cache is not None and toolkit.name != RTX:
        data = timing_cache.read_bytes() if timing_cache.is_file() else b""
        cache = config.create_timing_cache(data) or config.create_timing_cache(b"")
        config.set_timing_cache(cache, ignore_mismatch=False)
    engine = network.builder.build_serialized_network(network.definition, config)
    if monitor.late:
        raise ExportError(
            f"the engine was not built in {seconds:.0f} s: allow more time (`seconds`) or fewer "
            "shapes; see docs/gpu.md"
        )
    if engine is None:
        reason = log.errors[0] if log.errors else "no reason was logged"
        if any("CPU-only builder" in line for line in log.errors):
            raise BackendUnavailableError(
                f"TensorRT {toolkit.version} builds engines only on a machine with an NVIDIA GPU "
                f"({reason}); see docs/gpu.md"
            )
        raise RefusedError(reason)
    if cache is not None and timing_cache is not None:
        atomic_write_bytes(timing_cache, bytes(config.get_timing_cache().serialize()))
    return bytes(engine)


def start_build(network: Network, log: Log, config: Any, passed: Callable[[], None]) -> None:
    """Begin a build and call ``passed`` after the checks that precede the kernel timing.

    TensorRT checks the profile and asks the plugins for formats only there. Without a GPU the
    timing itself fails, and may end the process, so ``passed`` should not return.
    """

    def watch(line: str) -> None:
        if "Computing costs for" in line:
            passed()

    log.watch = watch
    network.builder.build_serialized_network(network.definition, config)


def _monitor(toolkit: Toolkit, seconds: float | None, progress: Progress) -> Any:
    deadline = None if seconds is None else time.monotonic() + seconds
    base: Any = toolkit.module.IProgressMonitor

    class Monitor(base):  # type: ignore[misc]  # the class is of a module
        def __init__(self) -> None:
            base.__init__(self)
            self.late = False
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, _parent: str | None, num_steps: int) -> None:
            self._steps[phase_name] = num_steps
            progress(phase_name, 0, num_steps)

        def phase_finish(self, phase_name: str) -> None:
            steps = self._steps.pop(phase_name, 0)
            progress(phase_name, steps, steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            progress(phase_name, step + 1, self._steps.get(phase_name, 0))
            self.late = self.late or (deadline is not None and time.monotonic() > deadline)
            return not self.late

    return Monitor()
