"""The stage ``kernels``: the plugins' kernels on the device, by the conformance host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from . import machine, pieces
from .running import Context, Step, StepError, which

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "plugins" / "enqueue_table.py"

TIGHT = "shared=26112,warps=2,blocks=3"
WAYS: dict[str, dict[str, str]] = {
    "default": {},
    "tight": {"NYSTRA_CUDA_LIMITS": TIGHT},
    "48 KiB": {"NYSTRA_CUDA_LIMITS": "shared=49152"},
}
"""The table is run once in each: the paths of other devices too."""

_OWN = "studies.device.kernels"
STEPS = (
    Step("machine", 30, "studies.device.machine:describe"),
    Step("unpack", 60, f"{_OWN}:unpack"),
    Step("host", 60, f"{_OWN}:host"),
    Step("first-table", 90, f"{_OWN}:first_table"),
    Step("first-times", 60, f"{_OWN}:first_times"),
    Step("table", 150, f"{_OWN}:table"),
    Step("times", 150, f"{_OWN}:times"),
    Step("counters", 60, f"{_OWN}:counters"),
    Step("sanitizer", 20, f"{_OWN}:sanitizer"),
)


def unpack(context: Context) -> None:
    """Unpack the bundle."""
    if context.settings.library is None:
        context.keep(facts={"bundle": str(bundle(context))})
    programs(context)


def bundle(context: Context, name: str = "kernels") -> Path:
    """The folder of a bundle."""
    try:
        return pieces.whole(name, context.settings.store)
    except pieces.PieceError as error:
        raise StepError(str(error)) from error


def programs(context: Context) -> tuple[Path, Path]:
    """The conformance host, and the library of the plugins."""
    own = context.settings.library
    folder = bundle(context) / "bin" if own is None else own
    library = folder / "libnystra_trt.so"
    if own is None:
        library = bundle(context) / "site" / "nystra" / "plugins" / library.name
    program = folder / "nystra_trt_host"
    for file in (program, library):
        if not file.is_file():
            raise StepError(f"no {file}")
    program.chmod(0o755)
    return program, library


def environment(context: Context) -> dict[str, str]:
    """The environment of a Python with the package and the tests' helpers."""
    helpers = [ROOT / "tests" / "plugins", ROOT / "tests" / "helpers"]
    if context.settings.library is not None:
        return machine.python(*helpers)
    expected = {"NYSTRA_EXPECTED": str(bundle(context) / "expected")}
    return machine.python(bundle(context) / "site", *helpers) | expected


def host(context: Context) -> None:
    """Checks without device data: fields, shapes, clones."""
    program, library = programs(context)
    words = context.command([program, library], codes=(0, 1))
    last = words.strip().splitlines()[-1]
    context.keep(facts={"checks": last, "device": words.splitlines()[0]}, failures=words[-4000:])
    if not last.endswith(" 0 failed"):
        raise StepError(words[-1500:])


def first_table(context: Context) -> None:
    """Every eighth row, for an early result."""
    _table(context, {"default": WAYS["default"]}, every=8 * _thin(context))


def table(context: Context) -> None:
    """All rows in all ways."""
    _table(context, WAYS, every=_thin(context))


def _thin(context: Context) -> int:
    return 12 if context.settings.quick else 1


def _table(context: Context, ways: dict[str, dict[str, str]], every: int) -> None:
    program, library = programs(context)
    env = environment(context)
    cases = context.work / f"cases-{every}"
    context.command([sys.executable, TABLE, "write", cases, "--every", str(every)], environment=env)
    outcomes = {}
    for way, more in ways.items():
        out = context.work / f"outputs-{every}"
        out.mkdir(exist_ok=True)
        for old in out.iterdir():
            old.unlink()
        context.command([program, library, "--enqueue", cases, out], environment=more, codes=(0, 1))
        judged = context.work / "judged.json"
        context.command([sys.executable, TABLE, "judge", cases, out, judged], environment=env)
        outcomes[way] = json.loads(judged.read_text())
        outcomes[way]["failures"] = outcomes[way]["failures"][:50]
        context.keep(conformance=outcomes)
    failed = {way: found["failed"] for way, found in outcomes.items() if found["failed"]}
    if failed:
        raise StepError(f"rows that are not as the reference: {failed}")


def first_times(context: Context) -> None:
    """Every case briefly, those in half precision first."""
    _times(context, 0.05)


def times(context: Context) -> None:
    """Both operators in every type."""
    _times(context, 0.05 if context.settings.quick else 1.0)


def _times(context: Context, seconds: float) -> None:
    program, library = programs(context)
    cases, found = context.work / "times", context.work / "times.json"
    found.unlink(missing_ok=True)
    small = ["--small"] * context.settings.quick
    context.command(
        [sys.executable, TABLE, "times", cases, *small], environment=environment(context)
    )
    try:
        context.command([program, library, "--time", cases, found, str(seconds)], codes=(0, 1))
    finally:  # what was timed before the time was up
        if found.is_file():
            context.keep(times=json.loads(found.read_text()))
    failed = [one["case"] for one in context.data["times"] if one.get("reason")]
    if failed:
        raise StepError(f"not timed: {', '.join(failed)}")


def script(context: Context, name: str, env: dict[str, str], *more: str) -> None:
    """Run a script of this folder, and store what it wrote before it ended or was stopped."""
    found = context.work / f"{name}.json"
    found.unlink(missing_ok=True)
    words: list[str | Path] = [sys.executable, "-m", f"studies.device.{name}", found, *more]
    try:
        context.command(words, environment=env)
    finally:
        if found.is_file():
            context.keep(facts=json.loads(found.read_text()))


def counters(context: Context) -> None:
    """Nsight Compute on a kernel of each kind."""
    program, library = programs(context)
    profiler = which("ncu")
    if profiler is None:
        raise StepError("ncu is not here")
    words: list[str | Path] = [
        profiler,
        "--clock-control",
        "none",
        "--set",
        "basic",
        "--launch-count",
        "12",
    ]
    cases = context.work / f"cases-{8 * _thin(context)}"
    out = context.work / "profiled"
    out.mkdir(exist_ok=True)
    text = context.command([*words, program, library, "--enqueue", cases, out], codes=(0, 1))
    context.keep(counters=text[-20000:])


def sanitizer(context: Context) -> None:
    """Start the sanitizer on some rows; it continues during the next steps."""
    program, library = programs(context)
    tool = which("compute-sanitizer")
    if tool is None:
        raise StepError("compute-sanitizer is not here")
    cases = context.work / f"cases-{8 * _thin(context)}"
    for kind in ("memcheck", "racecheck"):
        out = context.work / kind
        out.mkdir(exist_ok=True)
        with (context.settings.store / f"{kind}.log").open("wb") as log:
            subprocess.Popen(
                [
                    "timeout",
                    "1200",
                    tool,
                    "--tool",
                    kind,
                    program,
                    library,
                    "--enqueue",
                    cases,
                    out,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    context.keep(facts={"started": "memcheck, racecheck"})


def sanitized(context: Context) -> None:
    """The results of the sanitizer so far."""
    found = {}
    for kind in ("memcheck", "racecheck"):
        log = context.settings.store / f"{kind}.log"
        if not log.is_file():
            raise StepError("the sanitizer was not started: run kernels first")
        lines = log.read_text(errors="replace").splitlines()
        found[kind] = " / ".join(line for line in lines if "SUMMARY" in line) or (
            f"not ended, {len(lines)} lines: {' '.join(lines[-2:])}"
        )
        context.keep(facts=found)
    wrong = [
        kind for kind, text in found.items() if " 0 errors" not in text and "0 hazards" not in text
    ]
    if wrong:
        raise StepError(f"{', '.join(wrong)}: {found}")
