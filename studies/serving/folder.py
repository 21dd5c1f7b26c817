"""What ``nystra run`` takes for a folder: one step after the other, as it is, in processes.

    python -m studies.serving.folder model.onnx --pictures 200 --side 48 --rounds 3
    python -m studies.serving.folder model.onnx --before OLD/bin/python

Each round runs the ways one after the other on the same pictures, as programs of their own; the
median of the ratios counts. The bar: 200 small pictures 1.5 times as fast as before side by side,
which is what the Python of an environment with an older nystra does.
"""

from __future__ import annotations

import sys

from studies.serving.folder_runs import arguments, ratios

STEPS = """
import sys
from nystra.cli.main import main
from nystra.runtime.tasks.restoration import job, line

def steps(job, pairs, move):
    written = set()
    for index, pair in enumerate(pairs):
        yield index, line.attempt(job, pair, written)

job.most_pixels, job.one_by_one = lambda *_: 0, steps
sys.exit(main(sys.argv[1:]))
"""
NYSTRA = ["-m", "nystra.cli.main"]


def main() -> None:
    """Print a line a round, and how many times as fast as the first way each way is."""
    parser = arguments(__doc__.splitlines()[0], side=48)
    parser.add_argument("--before", metavar="PYTHON", help="with an older nystra: is compared with")
    args = parser.parse_args()
    ways = {
        "step by step": ([sys.executable, "-c", STEPS], []),
        "as it is": ([sys.executable, *NYSTRA], []),
        "--jobs 2": ([sys.executable, *NYSTRA], ["--jobs", "2"]),
    }
    if args.before is not None:
        ways = {"before": ([args.before, *NYSTRA], []), **ways}
    print({way: round(1 / ratio, 2) for way, ratio in ratios(ways, args).items()})


if __name__ == "__main__":
    main()
