"""The time of a network in onnxruntime by node type.

With the library built; any name of a file of `networks`::

    python -m studies.performance.node_times hat-group-plain hat-group-full hat-group-cluster

One thread, onnxruntime's profiler, the minimum of the runs for every node. Missing files are
exported, which takes a minute each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import onnxruntime as ort

from nystra.core.arrays import Array
from nystra.plugins.library import library_path
from studies.performance import networks


def node_times(model: Path, image: Array, runs: int, *, library: bool) -> dict[str, float]:
    """Return the milliseconds of each node type, summed over its nodes.

    Args:
        model: Takes one image.
        image: (1, 3, H, W).
        runs: Of which the least counts, node by node; the first one is not counted.
        library: Whether the file is run on nystra's.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        if library:
            options.register_custom_ops_library(str(library_path()))
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        for _ in range(runs + 1):
            session.run(None, {"input": image})
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name, kind, milliseconds in _kernels(events):
        nodes[name, kind].append(milliseconds)
    totals: dict[str, float] = defaultdict(float)
    for (_, kind), times in nodes.items():
        totals[kind] += min(times[1:])
    return dict(totals)


def _kernels(events: list[dict[str, object]]) -> Iterator[tuple[str, str, float]]:
    for event in events:
        name, options = str(event["name"]), event.get("args")
        if (
            event.get("cat") == "Node"
            and name.endswith("_kernel_time")
            and isinstance(options, dict)
        ):
            yield name, str(options["op_name"]), float(str(event["dur"])) / 1e3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+", choices=networks.FILES)
    parser.add_argument("--models", type=Path, default=Path("build/bars"), metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    columns = {
        name: node_times(
            networks.file(name, options.models),
            networks.make_image(name).numpy(),
            options.runs,
            library=name in networks.ON_LIBRARY,
        )
        for name in options.names
    }
    kinds = sorted({kind for times in columns.values() for kind in times})
    most = {kind: max(times.get(kind, 0.0) for times in columns.values()) for kind in kinds}
    print(f"| node | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
    for kind in sorted(kinds, key=lambda kind: -most[kind]):
        cells = (f"{times.get(kind, 0.0):.0f}" for times in columns.values())
        print(f"| {kind} | {' | '.join(cells)} |")
    print(f"| all | {' | '.join(f'{sum(times.values()):.0f}' for times in columns.values())} |")


if __name__ == "__main__":
    main()
