"""Running a stage: each step in its own process, with a time limit; a failed step is a row."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .page import write_page
from .result import Row, load, merge, save

STAGE_SECONDS = 560.0
LEAST = 3.0
"""Seconds that must be left for a step to be started."""

GRACE = 2.0
"""Seconds that a step has after its limit to say itself what it was stopped at."""

TAIL = 1500
"""Letters of a failed step's output that its row has."""


class StepError(Exception):
    """A step failed; the text is the row's reason."""


@dataclass(frozen=True)
class Step:
    """One step of a stage.

    Attributes:
        name: In the report.
        limit: Seconds.
        work: ``module:function`` of what runs it, with a `Context`.
    """

    name: str
    limit: float
    work: str


@dataclass(frozen=True)
class Settings:
    """Where a stage runs.

    Attributes:
        store: A folder outside the checkout that lasts from stage to stage.
        out: Gets ``result.json``, ``result.md`` and ``logs.txt``.
        backend: Is run in place of the stage's own, on a machine without a GPU.
        library: A folder of the plugins and their host in place of those packed.
        quick: Small work, for a dry run.
    """

    store: Path
    out: Path
    backend: str | None = None
    library: Path | None = None
    quick: bool = False

    def as_arguments(self) -> list[str]:
        """The settings as arguments of the command line."""
        pairs = {"--backend": self.backend, "--library": self.library}
        given = [word for flag, value in pairs.items() if value for word in (flag, str(value))]
        return [*given, *["--quick"] * self.quick, "--store", str(self.store)]


@dataclass
class Context:
    """The settings and data of a step.

    Attributes:
        settings: Where it runs.
        deadline: When it is stopped, of `time.monotonic`.
        file: Where its data are kept.
        data: Its data; `keep` keeps them though the step be stopped.
    """

    settings: Settings
    deadline: float
    file: Path
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds until the step is stopped."""
        return self.deadline - time.monotonic()

    @property
    def work(self) -> Path:
        """A folder for files."""
        folder = self.settings.store / "work"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, **data: Any) -> None:
        """Add to the data, also in its file."""
        self.data.update(_finite(data))
        self.file.write_text(json.dumps(self.data, default=str))

    def command(
        self,
        words: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        limit: float = math.inf,
        codes: Sequence[int] = (0,),
    ) -> str:
        """Run a command; return what it printed.

        Raises:
            StepError: It is not there, took too long, or ended with another code than ``codes``.
        """
        text = [str(word) for word in words]
        env = {**os.environ, **(environment or {})}
        seconds = max(min(limit, self.left), 0.5)
        try:
            done = subprocess.run(
                text,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError as error:
            raise StepError(f"{text[0]} is not here") from error
        except subprocess.TimeoutExpired as error:
            tail = str(error.stdout or b"")[-TAIL:]
            raise StepError(f"{text[0]} took more than {seconds:.0f} s: {tail}") from error
        print(f"$ {' '.join(text)}\n{done.stdout}", flush=True)
        if done.returncode not in codes:
            raise StepError(f"{text[0]} ended with {done.returncode}: {done.stdout[-TAIL:]}")
        return done.stdout


def run_stage(
    stage: str, steps: Sequence[Step], settings: Settings, seconds: float = STAGE_SECONDS
) -> list[Row]:
    """Run the steps of a stage one after another; write the result after each.

    Returns:
        The stage's rows.
    """
    end = time.monotonic() + seconds
    kept = settings.store / "result.json"
    rows = []
    for step in steps:
        left = end - time.monotonic()
        if left < LEAST:
            row = Row(
                stage, step.name, False, 0.0, f"not run: the stage's {seconds:.0f} s are over"
            )
        else:
            row = _run_step(stage, step, settings, min(step.limit, left))
        rows.append(row)
        state = "ok" if row.ok else f"FAILED: {row.cause}"
        print(f"{stage} {step.name}: {row.seconds:.1f} s, {state}", flush=True)
        every = merge([*load(kept), row])
        for file in (kept, settings.out / "result.json"):
            save(file, every)
        write_page(every, settings.out / "result.md")
    _gather_logs(settings)
    return rows


def _run_step(stage: str, step: Step, settings: Settings, limit: float) -> Row:
    folder = settings.store / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    data, log = folder / f"{stage}.{step.name}.json", folder / f"{stage}.{step.name}.log"
    data.unlink(missing_ok=True)
    command = [
        *(
            sys.executable,
            "-m",
            "studies.device",
            "step",
            step.work,
            str(data),
            str(time.monotonic() + limit),
        ),
        *settings.as_arguments(),
    ]
    start = time.monotonic()
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OUT": str(settings.out)},
            start_new_session=True,
        )
        try:
            code: int | None = child.wait(limit + GRACE)
        except subprocess.TimeoutExpired:
            code = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    seconds = time.monotonic() - start
    found = json.loads(data.read_text()) if data.is_file() else {}
    tail = log.read_text(errors="replace")[-TAIL:]
    if code is None:
        reason: str | None = f"stopped after {limit:.0f} s: {tail}"
    elif code:
        reason = found.pop("reason", None) or f"ended with {code}: {tail}"
    else:
        reason = None
    return Row(stage, step.name, code == 0, round(seconds, 2), reason, found)


def run_work(work: str, file: Path, deadline: float, settings: Settings) -> int:
    """Run a step in this process until a time of `time.monotonic`; return its exit code."""
    module, _, name = work.partition(":")
    context = Context(settings, deadline, file)
    try:
        function: Callable[[Context], None] = getattr(importlib.import_module(module), name)
        function(context)
    except StepError as error:
        context.keep(reason=str(error))
        return 1
    except Exception as error:
        traceback.print_exc()
        context.keep(reason=f"{type(error).__name__}: {error}")
        return 1
    return 0


def _gather_logs(settings: Settings) -> None:
    """Put the logs of all steps into one file of the output, each at most 200,000 letters."""
    logs = sorted((settings.store / "steps").glob("*.log"), key=lambda log: log.stat().st_mtime)
    parts = [f"==== {log.name}\n{log.read_text(errors='replace')[-200_000:]}" for log in logs]
    (settings.out / "logs.txt").write_text("\n".join(parts))


def _finite(value: Any) -> Any:
    """The value with None in place of numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value


def which(name: str) -> Path | None:
    """The path of a program on the PATH or in CUDA's folder."""
    found = shutil.which(name) or next(
        (path for path in sorted(map(str, Path("/usr/local").glob(f"cuda*/bin/{name}")))), None
    )
    return Path(found) if found else None
