"""The overhead of ``nystra run --ray``, and the gain of a second worker.

    python -m studies.serving.ray_workers model.onnx --images 200 --side 128 --rounds 3

Each round runs the commands one after the other on the same images, one thread per worker; the
result is the median ratio of the rounds. The goal: one worker takes at most 1.15 times as long as
without Ray. With ``--ray HOST:PORT`` on a cluster that runs already, otherwise on one that every
run starts.
"""

from __future__ import annotations

import sys

from studies.serving.folder_runs import arguments, ratios

NYSTRA = [sys.executable, "-m", "nystra.cli.main"]
THREADS = ["--threads", "1"]


def main() -> None:
    """Print a line a round, and the median ratios."""
    parser = arguments(__doc__.splitlines()[0], side=128)
    parser.add_argument("--ray", default="local", metavar="local|HOST:PORT")
    args = parser.parse_args()
    spread = [*THREADS, "--ray", args.ray, "--workers"]
    ways = {
        "without Ray": (NYSTRA, THREADS),
        "1 worker": (NYSTRA, [*spread, "1"]),
        "2 workers": (NYSTRA, [*spread, "2"]),
    }
    print({way: round(ratio, 3) for way, ratio in ratios(ways, args).items()})


if __name__ == "__main__":
    main()
