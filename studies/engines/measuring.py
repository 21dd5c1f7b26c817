"""One network in the engines of one group, in interleaved rounds."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from studies.engines.engines import ENGINES, Engine
from studies.engines.environments import NoEnvironmentError, interpreter
from studies.engines.process import ROOT, EngineError, Process

MOST = 160  # characters of a reason
FILE_SECONDS = 1200
FILES = {
    "image": "image.npy",
    "calibration": "calibration",
    "reference": "reference.npy",
    "checkpoint": "network.pth",
    "plain": "plain.onnx",
    "full": "full.onnx",
    "cluster": "cluster.onnx",
    "int8": "int8.onnx",
    "portable": "portable.onnx",
}
"""Names of the files that `studies.engines.files` makes."""


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        folder: Of files and environments.
        threads: Of every engine.
        rounds: In which each engine runs once.
        seconds: That a conversion, opening, or the first run may take.
        run_seconds: That a later run may take.
    """

    folder: Path
    threads: int = 2
    rounds: int = 5
    seconds: float = 600.0
    run_seconds: float = 120.0


@dataclass
class Contender:
    """An engine that takes part: its process, and what is known of it."""

    engine: Engine
    process: Process
    outcome: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def measure(network: str, names: Sequence[str], settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the outcome of each engine by name; one that does not run has a ``reason``."""
    outcomes: dict[str, dict[str, Any]] = {}
    folder = settings.folder / network
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        running: dict[str, Contender] = {}
        for name in names:
            say(f"{network}: {name}")
            try:
                running[name] = _opened(network, ENGINES[name], folder, settings, stack)
            except (EngineError, NoEnvironmentError) as error:
                outcomes[name] = {"reason": short(str(error))}
                say(f"    {outcomes[name]['reason']}")
        _take_turns(running, settings, outcomes)
        for name, contender in running.items():
            if name not in outcomes:
                contender.outcome |= contender.process.ask("memory")
                outcomes[name] = contender.outcome | {"threads": settings.threads}
    return outcomes


def _opened(
    network: str,
    engine: Engine,
    folder: Path,
    settings: Settings,
    stack: contextlib.ExitStack,
) -> Contender:
    """Return an engine that has run twice.

    Raises:
        EngineError: It cannot do that.
        NoEnvironmentError: Its environment cannot be made.
    """
    python = interpreter(engine.environment, settings.folder / "environments")
    for form in ("image", "reference"):
        file(network, form, folder)
    request = {
        "threads": settings.threads,
        "precision": "f32",
        "image": str(folder / FILES["image"]),
        "network": network,
        **engine.request,
    }
    source = None if engine.file == "module" else file(network, engine.file, folder)
    outcome: dict[str, Any] = {}
    if engine.converted is not None:
        request["path"] = str(folder / engine.converted)
        if not Path(request["path"]).exists():
            request["images"] = str(file(network, "calibration", folder))
            request["target"] = request["path"]
            with _process(python, engine, settings) as process:
                outcome["convert"] = process.ask("convert", request | {"source": str(source)})
    else:
        request["path"] = str(source)
    process = stack.enter_context(_process(python, engine, settings))
    try:
        return Contender(engine, process, outcome | _first(process, request, folder, settings))
    except EngineError:
        process.close()  # its memory is wanted by the others
        raise


def _process(python: Path, engine: Engine, settings: Settings) -> Process:
    return Process(python.absolute(), engine.worker, settings.threads, settings.seconds)


def _first(
    process: Process, request: dict[str, Any], folder: Path, settings: Settings
) -> dict[str, Any]:
    """Return the times of opening and of the first run, and the difference from float32."""
    begun = time.perf_counter()
    answer = process.ask("open", request)
    opened = time.perf_counter() - begun
    output = folder / "output.npy"
    first = process.ask("first", {"output": str(output)})["seconds"]
    expected = np.load(folder / FILES["reference"]).astype(np.float64)
    got = np.load(output).astype(np.float64)
    output.unlink()
    if got.shape != expected.shape:
        raise EngineError(f"got an output of shape {got.shape}, expected {expected.shape}")
    process.ask("run", seconds=settings.run_seconds)
    process.ask("forget")
    return {
        "open": opened,
        "first": first,
        "version": answer["version"],
        "psnr": psnr(got, expected),
    }


def psnr(got: np.ndarray, expected: np.ndarray) -> float | None:
    """Return the PSNR in dB over the range of the expected output; None if both are equal."""
    error = float(np.mean((got - expected) ** 2))
    return None if error == 0 else 10 * float(np.log10(np.ptp(expected) ** 2 / error))


def _take_turns(
    running: dict[str, Contender], settings: Settings, outcomes: dict[str, dict[str, Any]]
) -> None:
    """Run every engine once per round; add the times, or the reason why it stopped."""
    begun, busy = time.perf_counter(), busy_seconds()
    for turn in range(settings.rounds):
        order = list(running.items())
        for name, contender in order if turn % 2 == 0 else reversed(order):
            if name in outcomes:
                continue
            try:
                answer = contender.process.ask("run", seconds=settings.run_seconds)
            except EngineError as error:
                outcomes[name] = {"reason": short(str(error))}
                continue
            contender.seconds.append(answer["seconds"])
            contender.processor.append(answer["processor"])
    own = sum(sum(contender.processor) for contender in running.values())
    wall = max(time.perf_counter() - begun, 1e-9)
    others = max(0.0, (busy_seconds() - busy - own) / wall)
    for contender in running.values():
        contender.outcome |= {
            "seconds": contender.seconds,
            "processor": contender.processor,
            "others": round(others, 2),
        }


def busy_seconds() -> float:
    """Return the seconds that all processors have worked since the machine started (proc(5))."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, first[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def file(network: str, form: str, folder: Path) -> Path:
    """Return a file of a network, which is made in a process of its own where it is missing.

    Raises:
        EngineError: It cannot be made; a reason of its own is kept, and it is tried once.
    """
    path = folder / FILES[form]
    failure = folder / f"{form}.failed"
    if failure.exists():
        raise EngineError(failure.read_text())
    if path.exists():
        return path
    if form in ("full", "cluster", "int8", "portable"):
        file(network, "checkpoint", folder)
    command = [sys.executable, "-m", "studies.engines.files", network, form, str(folder)]
    say(f"{network}: {FILES[form]}")
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=FILE_SECONDS
        )
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        text = "" if done.returncode == 0 else reason[0]
    except subprocess.TimeoutExpired:
        raise EngineError(f"{FILES[form]}: longer than {FILE_SECONDS} s") from None
    if text and done.returncode < 0:  # by a signal: of whoever wants the machine
        raise EngineError(f"{FILES[form]}: ended by signal {-done.returncode}")
    if text:
        failure.write_text(f"{FILES[form]}: {short(text)}")
        raise EngineError(failure.read_text())
    return path


def short(reason: str) -> str:
    """Return a reason in one line without paths and colors."""
    plain = re.sub(r"\x1b\[[\d;]+m", "", " ".join(reason.split()))
    text = re.sub(r"(?<![\w.])/\S*/(?=\S)", "", plain)
    return text if len(text) <= MOST else f"{text[:MOST]} ..."


def say(what: str) -> None:
    """Print what is going on, in a line."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()
