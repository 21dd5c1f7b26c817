"""The table of networks of measurements: every architecture that spandrel lists, tried.

Each is built small with random weights, written as a checkpoint, exported for any size, run in
plain onnxruntime at three sizes and compared with spandrel's own call; then exported once more
with linear attention where it has sites. Each in a process of its own, with a limit of memory and
time. Results are kept, so that it goes on where it stopped:

    python -m studies.networks measure --minutes 3
    python -m studies.networks measure DAT GRL       # these, whatever is known of them
    python -m studies.networks table                 # the page, and its count in README
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE, README = ROOT / "studies" / "measurements" / "networks.md", ROOT / "README.md"
BEGIN, END = "<!-- table: studies/networks/__main__.py -->\n", "<!-- end of the table -->\n"

MEMORY = 8 << 30
MOST = 200  # characters of a reason
AGREES = 1e-4  # of outputs in 0..1
ONE_SIZE = {
    "IPT": "it cuts the picture into as many patches as its sides say",
    "RGT": "it chooses its number of recursions by the sides",
    "RestoreFormer": "sides up to 32, one cell after its strides, go another way through PyTorch",
    "RetinexFormer": "from 3000 pixels on it computes another way, chosen by the sides",
}  # why a network has no file for any size, where the tracer's words do not tell
SEEN = 0.01  # the share of pixels that clipping must leave for a comparison to see anything


def measure(names: list[str], minutes: float, seconds: int) -> None:
    """Try the networks that have no result yet, or those that are named, within a time."""
    from studies.networks.small import SMALL

    begun = time.monotonic()
    _warm()
    for name in names or [name for name in SMALL if name not in read()]:
        if time.monotonic() - begun > 60 * minutes:
            break
        outcome = _in_child(name, seconds)
        RESULTS.write_text(json.dumps(read() | {name: outcome}, indent=1, sort_keys=True) + "\n")
        sys.stdout.write(f"{name} {json.dumps(outcome)}\n")
        sys.stdout.flush()


def read() -> dict[str, Any]:
    """Return the results so far, by name."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _warm() -> None:
    """Import and read once, for all children, what every export needs."""
    import torch

    import nystra.export.pipeline  # noqa: F401
    from nystra.export.tracing.trace import trace
    from nystra.models.loading import load
    from studies.networks.small import save_small

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(save_small("Compact", Path(folder, "small.pth")))
    trace(loaded.network, loaded.facts, 20)


def _in_child(name: str, seconds: int) -> dict[str, Any]:
    """Return what comes of a network in a process of its own, ended after that processor time."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(sender, name, seconds))
    child.start()
    sender.close()
    try:
        outcome: dict[str, Any] = receiver.recv()
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGXCPU
        reason = f"memory above {MEMORY >> 30} GiB perhaps"
        outcome = {"failed": f"longer than {seconds} s" if late else f"its process ended: {reason}"}
    child.join()
    return outcome


def _send(connection: Any, name: str, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    warnings.simplefilter("ignore")
    connection.send(outcome_of(name))


def outcome_of(name: str) -> dict[str, Any]:
    """Return what comes of one network."""
    from nystra.core.errors import NystraError
    from nystra.models.loading import load
    from studies.networks.small import SMALL, save_small

    outcome: dict[str, Any] = {"versions": {key: version(key) for key in ("spandrel", "torch")}}
    with tempfile.TemporaryDirectory() as folder:
        try:
            checkpoint = save_small(name, Path(folder, "small.pth"))
            hyper = SMALL[name].hyper
            outcome |= {"told": hyper} if hyper else {}
            loaded = load(checkpoint, **hyper)
            facts = loaded.facts
            outcome |= {"read_by": facts.architecture, "multiple": facts.size_multiple}
            outcome |= {"minimum": facts.size_minimum, "warnings": list(loaded.warnings)}
            outcome |= _exported(checkpoint, facts, hyper)
        except NystraError as error:
            outcome["failed"] = _short(error)
        except Exception as error:  # a fault of ours: it is to stand in the table
            outcome["failed"] = f"{type(error).__name__}: {_short(error)}"
    return outcome


def _exported(checkpoint: Path, facts: Any, hyper: dict[str, Any]) -> dict[str, Any]:
    from nystra.core.errors import NystraError
    from nystra.export import ExportOptions, export_model

    outcome: dict[str, Any] = {}
    static = None
    if facts.sides is not None:
        static = facts.inputs[0].shape({})
    target = checkpoint.with_name("model.onnx")
    options = ExportOptions(speed=False, static=static, hyper=hyper)
    try:
        result = export_model(checkpoint, target, options, _say)
    except NystraError as error:
        if static is not None:
            raise
        outcome["dynamic"] = _short(error)
        side = 2 * facts.cell
        static = (1, facts.input_channels, side, side)
        result = export_model(checkpoint, target, replace(options, static=static), _say)
    outcome |= {"static": static, "nodes": result.nodes, "sites": len(result.source.resolved)}
    reports = result.validation.reports.values()
    outcome["difference"] = max(size["max_abs"] for report in reports for size in report["sizes"])
    outcome["compared"] = _compared(checkpoint, target, facts, static)
    if outcome["sites"]:
        outcome["linear"] = _linear(checkpoint, static, hyper)
    return outcome


def _say(step: str) -> None:
    sys.stderr.write(f"{time.process_time():6.1f} s  {step}\n")


def _linear(checkpoint: Path, static: Any, hyper: dict[str, Any]) -> str:
    """Return at how many sites the kernel Nystrom form stands in a second export."""
    from nystra.core.errors import NystraError
    from nystra.export import ExportOptions, Plan, export_model, mechanism

    plan = Plan(default=mechanism("nystra", landmarks=(2, 2)))
    options = ExportOptions(plan, speed=False, static=static, hyper=hyper)
    try:
        result = export_model(checkpoint, checkpoint.with_name("linear.onnx"), options, _say)
    except NystraError as error:
        return _short(error)
    served = [site.name for site in result.source.resolved.values()]
    return f"{served.count('nystra')} of {len(served)}"


def _compared(checkpoint: Path, model: Path, facts: Any, static: Any) -> list[dict[str, Any]]:
    """Return the differences between plain onnxruntime and spandrel's own call, size by size."""
    import numpy as np
    import onnxruntime as ort
    import torch
    from spandrel import ModelLoader

    from nystra.export.load.images import feeds_of, photographs, validation_sizes
    from nystra.models.checkpoints.checkpoint import read_checkpoint
    from nystra.runtime.images.images import read_picture

    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    own = ModelLoader().load_from_state_dict(dict(read_checkpoint(checkpoint).state)).eval()
    pixels = read_picture(next(iter(photographs().values()))).pixels
    sizes = validation_sizes(facts) if static is None else [{}]
    if own.size_requirements.square:  # it pads to squares, we do not
        sizes = [dict.fromkeys(size, max(size.values(), default=0)) for size in sizes]
    compared = []
    for size in sizes:
        feeds = feeds_of(facts if static is None else facts.fixed(static), pixels, size)
        got = session.run(None, feeds)[0]
        with torch.no_grad():
            images = [torch.from_numpy(array) for array in feeds.values()]
            expected = _own_call(own, images).clamp(0, 1).numpy()
        seen = float(np.mean((expected > 0) & (expected < 1)))
        shape = "x".join(map(str, next(iter(feeds.values())).shape[2:]))
        difference = float(np.max(np.abs(np.clip(got, 0, 1) - expected)))
        compared.append({"size": shape, "difference": difference, "seen": seen})
    return compared


def _own_call(own: Any, images: list[Any]) -> Any:
    """Return what spandrel makes of images, below its least side too, up to which it enlarges.

    Sorts are stable: what is equal would have another order on every kind of processor (ATD).
    """
    from nystra.models.spandrel.adapters.atd import StableSorts

    with StableSorts():
        if min(images[0].shape[2:]) < own.size_requirements.minimum:
            return own._call_fn(own.model, *images)
        return own(*images)


def _short(error: Exception) -> str:
    plain = re.sub(r"\x1b\[\d+m", "", " ".join(str(error).split()))  # without colours
    text = re.sub(r"\S*/(?=\w+\.\w+)", "", plain).removeprefix("small.pth: ")
    return text if len(text) <= MOST else f"{text[:MOST]} ..."


def table() -> None:
    """Write the table into the page, between its marks, and its count into README."""
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")


def texts() -> dict[Path, str]:
    """Return what the page and README say of the results so far."""
    from studies.networks.small import SMALL

    results = read()
    exported = [outcome for outcome in results.values() if "nodes" in outcome]
    dynamic = sum(outcome["static"] is None for outcome in exported)
    agreeing = sum(map(_agrees, exported))
    listed = len(SMALL)
    counts = (
        f"{listed} architectures, {len(results)} of them tried: {dynamic} export for any "
        f"size, {len(exported) - dynamic} for one size, {len(results) - len(exported)} do not; "
        f"{agreeing} agree with spandrel.\n"
    )
    missing = sorted(SMALL.keys() - results.keys(), key=str.lower)
    if missing:
        counts += f"Not tried yet: {', '.join(missing)}.\n"
    head = "| architecture | read by | exports | linear attention | against spandrel |\n"
    texts = {name: _row(name, result) for name, result in results.items()}
    rows = "".join(texts[name] for name in sorted(texts, key=str.lower))
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    page = f"{before}{BEGIN}{counts}\n{head}| --- | --- | --- | --- | --- |\n{rows}{END}"
    readme, places = re.subn(
        r"\d+ of \d+ export and agree",
        f"{agreeing} of {listed} export and agree",
        README.read_text(encoding="utf-8"),
    )
    if places != 1:
        raise ValueError(f"{README}: expected 'N of M export and agree' once, found it {places}x")
    return {PAGE: page + rest.split(END)[1], README: readme}


def _row(name: str, outcome: dict[str, Any]) -> str:
    reader = str(outcome.get("read_by", "spandrel:"))
    reader = "spandrel" if reader.startswith("spandrel:") else f"nystra ({reader})"
    reader += "".join(f", `--set {key}={value}`" for key, value in outcome.get("told", {}).items())
    if "nodes" not in outcome:
        cells = (reader, f"no: {outcome['failed']}", "-", "-")
    else:
        why = ONE_SIZE.get(name, outcome.get("dynamic", ""))
        size = "any size" if outcome["static"] is None else f"one size: {why}"
        linear = outcome.get("linear", "as trained: no site")
        cells = (reader, size, linear, _agreement(outcome))
    return f"| {' | '.join((name, *(cell.replace('|', '/') for cell in cells)))} |\n"


def _agrees(outcome: dict[str, Any]) -> bool:
    """Tell whether a file agrees with spandrel at every size, where there is something to see."""
    return all(
        size["difference"] <= AGREES and size["seen"] >= SEEN for size in outcome["compared"]
    )


def _agreement(outcome: dict[str, Any]) -> str:
    compared = outcome["compared"]
    sizes = ", ".join(size["size"] for size in compared)
    if min(size["seen"] for size in compared) < SEEN:
        return f"clipped to nothing at {sizes}; against PyTorch only"
    worst = max(size["difference"] for size in compared)
    return f"{worst:.0e} at {sizes}" + ("" if _agrees(outcome) else " (**differs**)")


def main() -> None:
    """Carry out what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("names", nargs="*")
    measuring.add_argument("--minutes", type=float, default=3.0)
    measuring.add_argument("--seconds", type=int, default=120, help="of processor time, for each")
    commands.add_parser("table")
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.names, args.minutes, args.seconds)
    else:
        table()


if __name__ == "__main__":
    main()
