"""The stages ``ort`` and ``tensorrt``: exported files in onnxruntime and TensorRT on the device."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import kernels, machine
from .running import Context, Step, StepError

_OWN = "studies.device.engines"
ORT_STEPS = (
    Step("unpack", 120, f"{_OWN}:unpack_ort"),
    Step("probe", 60, f"{_OWN}:probe_ort"),
    Step("validate", 120, f"{_OWN}:validate_ort"),
    Step("bench", 180, f"{_OWN}:bench_ort"),
    Step("bodies", 60, f"{_OWN}:bodies_ort"),
    Step("torch", 120, f"{_OWN}:bench_torch"),
    Step("sanitizer", 10, "studies.device.kernels:sanitized"),
)
TENSORRT_STEPS = (
    Step("unpack", 120, f"{_OWN}:unpack_tensorrt"),
    Step("probe", 60, f"{_OWN}:probe_tensorrt"),
    Step("build", 240, f"{_OWN}:build_tensorrt"),
    Step("validate", 60, f"{_OWN}:validate_tensorrt"),
    Step("bench", 120, f"{_OWN}:bench_tensorrt"),
)

TILE = 256


def models(context: Context, mark: str = "") -> list[Path]:
    """The exported files with ``mark`` in their names, those in half precision first."""
    folder = kernels.bundle(context) / "models"
    marked = [file for file in folder.glob("*.onnx") if mark in file.name]
    found = sorted(marked, key=lambda file: ("fp16" not in file.name, file))
    if not found:
        raise StepError(f"no files in {folder}")
    return found[:2] if context.settings.quick else found


def sites(context: Context, *bundles: str) -> list[Path]:
    """Folders of packages, in order of precedence."""
    return [kernels.bundle(context, name) / "site" for name in (*bundles, "kernels")]


def environment(context: Context, *bundles: str) -> dict[str, str]:
    """The environment of a Python with the bundles' packages, or its own without a GPU."""
    if context.settings.backend is not None:
        return {}
    env = machine.python(*sites(context, *bundles))
    libraries = kernels.bundle(context).parent / "tensorrt" / "lib"
    if "tensorrt" in bundles:
        env["LD_LIBRARY_PATH"] = f"{libraries}:{env['LD_LIBRARY_PATH']}"
    return env | {"NYSTRA_CACHE_DIR": str(context.settings.store / "engines")}


def backend(context: Context, usual: str) -> str:
    """The backend of a stage."""
    return context.settings.backend or usual


def nystra(
    context: Context,
    words: Iterable[str | Path],
    env: dict[str, str],
    limit: float,
    codes: Sequence[int] = (0,),
) -> str:
    """Run a command of nystra."""
    command = [sys.executable, "-c", "from nystra.cli.main import main; raise SystemExit(main())"]
    return context.command([*command, *words], environment=env, limit=limit, codes=codes)


def _unpack(context: Context, *bundles: str) -> None:
    if context.settings.backend is None:
        context.keep(facts={"sites": list(map(str, sites(context, *bundles)))})
    kernels.bundle(context)


def unpack_ort(context: Context) -> None:
    """Unpack the bundle."""
    _unpack(context, "ort")


def unpack_tensorrt(context: Context) -> None:
    """Unpack the bundle."""
    _unpack(context, "ort", "tensorrt")


def probe_ort(context: Context) -> None:
    """Check that onnxruntime loads and that its provider runs a small file."""
    code = "import onnxruntime as o; print(o.__version__, o.get_available_providers())"
    env = environment(context, "ort")
    context.keep(
        facts={"onnxruntime": context.command([sys.executable, "-c", code], environment=env)}
    )
    nystra(context, ["inspect", models(context)[0]], env, 30)


def validate_ort(context: Context) -> None:
    """Validate every file against its recorded outputs."""
    _validate(context, backend(context, "ort-cuda"), environment(context, "ort"))


def validate_tensorrt(context: Context) -> None:
    """Validate engines against the recorded outputs."""
    _validate(context, backend(context, "tensorrt"), environment(context, "ort", "tensorrt"))


def _validate(context: Context, name: str, env: dict[str, str]) -> None:
    files: dict[str, list[str | Path]] = {
        model.name: ["validate", model, "--backend", name] for model in models(context)
    }
    _each(context, files, env, 60)


def _each(
    context: Context,
    commands: Mapping[str, Sequence[str | Path]],
    env: dict[str, str],
    limit: float,
    spare: float = 0,
) -> None:
    """Run commands of nystra and store the last output of each; a failure stops no other.

    Args:
        context: Of the step.
        commands: By name.
        env: Of all of them.
        limit: Seconds of each.
        spare: Seconds of the step that the last one leaves.

    Raises:
        StepError: Some failed.
    """
    outcomes, failed = {}, []
    for name, words in commands.items():
        try:
            text = nystra(context, words, env, min(limit, context.left - spare))
            outcomes[name] = " / ".join(text.strip().splitlines()[-3:])
        except StepError as error:
            failed.append(name)
            outcomes[name] = f"FAILED: {str(error)[-400:]}"
        context.keep(facts=outcomes)
    if failed:
        raise StepError(f"{', '.join(failed)}: {outcomes[failed[0]]}")


def bench_ort(context: Context) -> None:
    """The CUDA provider beside the CPU."""
    names = ["ort-cpu", "ort-cpu-bodies", backend(context, "ort-cuda")]
    _bench(context, names, environment(context, "ort"), models(context))


def bodies_ort(context: Context) -> None:
    """The bodies of standard operators on the GPU, as the baseline of the kernels."""
    env = environment(context, "ort")
    name = backend(context, "ort-cuda")
    files: dict[str, list[str | Path]] = {
        model.name: ["validate", model, "--backend", name, "--library", "none"]
        for model in models(context, "fp32")
    }
    _each(context, files, env, 40)


def bench_torch(context: Context) -> None:
    """PyTorch: eager, in half precision, compiled."""
    env = environment(context, "ort")
    names = ["torch-cuda", "torch-cuda-fp16", "torch-cuda-compile"]
    if context.settings.backend is not None:
        names = ["torch-cpu"]
    checkpoint = ["--checkpoint", "swinir_x2_w16"]
    _bench(context, names, env, models(context, "fp32")[:1], *checkpoint)


def probe_tensorrt(context: Context) -> None:
    """Check that TensorRT loads and builds an engine of two layers on this device."""
    kernels.script(context, "probe", environment(context, "ort", "tensorrt"))


def build_tensorrt(context: Context) -> None:
    """Engines with plugins, and without."""
    env = environment(context, "ort", "tensorrt")
    more = ["--tile", str(TILE), "--level", "2"]
    commands: dict[str, list[str | Path]] = {
        f"{model.name}, library {library}": ["build", model, *more, "--library", library]
        for model in models(context)
        for library in ("auto", "none")
    }
    _each(context, commands, env, 100, spare=2)


def bench_tensorrt(context: Context) -> None:
    """Engines with plugins against those of bodies."""
    names = ["tensorrt", "tensorrt-bodies", "ort-cuda"]
    if context.settings.backend is not None:
        names = [context.settings.backend]
    env = environment(context, "ort", "tensorrt")
    _bench(context, names, env, models(context), *["--sizes", f"{TILE}x{TILE}"])


def _bench(
    context: Context, names: list[str], env: dict[str, str], files: list[Path], *more: str
) -> None:
    """Time each file in a separate run, so that one that hangs costs only its own row."""
    rows, failed = [], []
    size = ["--sizes", "64x64" if context.settings.quick else "256x256"]
    sizes = [] if "--sizes" in more else size
    seconds = "0.3" if context.settings.quick else "2"
    for model in files:
        words: list[str | Path] = [
            "bench",
            model,
            "--backend",
            ",".join(names),
            "--seconds",
            seconds,
            "--json",
        ]
        try:
            text = nystra(context, [*words, *sizes, *more], env, context.left / 2, (0, 2, 3))
        except StepError as error:
            failed.append(f"{model.name}: {str(error)[-300:]}")
            continue
        if "{" not in text:
            failed.append(f"{model.name}: {text[-300:]}")
            continue
        rows += json.loads(text[text.index("{") :])["rows"]  # also where every row has a reason
        context.keep(bench=rows)
    without = [f"{row['backend']}: {row['reason']}" for row in rows if not row["measured"]]
    if failed or without:
        raise StepError("; ".join([*failed, *dict.fromkeys(without)])[:1500])
