"""The time of ``nystra run`` for a folder: step by step, with threads, and with processes.

    python -m studies.serving.folder model.onnx --images 200 --side 48 --rounds 3
    python -m studies.serving.folder model.onnx --before OLD/bin/python

Each round runs these variants one after the other on the same images, as separate programs; the
result is the median of the ratios. *Before* is the Python of an environment with an older nystra.
"""

from __future__ import annotations

import sys

from studies.serving.folder_runs import arguments, ratios

NYSTRA = ["-m", "nystra.cli.main"]


def main() -> None:
    """Print one line per round, and the speedup of each variant over the first."""
    parser = arguments(__doc__.splitlines()[0], side=48)
    parser.add_argument("--before", metavar="PYTHON", help="with an older nystra: is compared with")
    args = parser.parse_args()
    ways = {
        "step by step": ([sys.executable, "-m", "studies.serving.step_by_step"], []),
        "as it is": ([sys.executable, *NYSTRA], []),
        "--jobs 2": ([sys.executable, *NYSTRA], ["--jobs", "2"]),
    }
    if args.before is not None:
        ways = {"before": ([args.before, *NYSTRA], []), **ways}
    print({way: round(1 / ratio, 2) for way, ratio in ratios(ways, args).items()})


if __name__ == "__main__":
    main()
