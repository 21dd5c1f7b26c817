"""Measure accuracy and speed of plans: the tables of studies/measurements/quality_tables.md.

Data is not shipped: give folders of small images and their ground truth::

    python -m studies.quality \\
        --set Set5 Set5/LR_bicubic/X2 Set5/HR --set Set14 Set14/image_SRF_2 Set14/image_SRF_2 \\
        --json results.json > results.txt

Quality is computed by PyTorch with the plan's mechanisms swapped in, or, for the tables ``plans``
and ``masks`` and three times as fast, by the exported files with ``--engine files``; the table
``files`` shows that both give the same. ``--engine kernels`` stays in PyTorch, with the operators'
CPU kernels at every site. ``times`` needs the operator library and a quiet machine.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nystra.core.json_text import stable_json
from nystra.core.ports.port import image_size
from nystra.models import load
from nystra.runtime.timing.rows import describe_machine
from studies.quality.files import files_table, session_engine, times_table
from studies.quality.measure import ImageSet, planned, with_kernels
from studies.quality.tables import (
    Engine,
    Row,
    Study,
    bias_table,
    masks_table,
    plans_table,
    settings_table,
    sharp_table,
)
from studies.quality.text import markdown

MODELS = ("swinir_x2_w16", "swinir_x2_w32_nobias")
TABLES = ("plans", "masks", "bias", "settings", "sharp", "files", "times")


def main() -> None:
    """Print each table as Markdown; write all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--model",
        action="append",
        metavar="FILE",
        help=f"checkpoint or shipped name; may be repeated (default: {' and '.join(MODELS)})",
    )
    parser.add_argument("--window", type=int, help="run them at another window than trained")
    parser.add_argument(
        "--set",
        action="append",
        required=True,
        nargs=3,
        metavar=("NAME", "INPUTS", "TRUTHS"),
        help="images with ground truth; may be repeated; some tables take the first only",
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="default: all, %(default)s")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="TEXT", help="plans that start so: 'cluster 16'"
    )
    parser.add_argument("--sizes", default="128,256", help="sides of times (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch and onnxruntime (2)")
    parser.add_argument(
        "--engine",
        choices=("torch", "kernels", "files"),
        default="torch",
        help="of plans, masks and sharp: plain PyTorch, PyTorch with the operators' CPU kernels, "
        "or, of the first two, the files in onnxruntime with the operator library (torch)",
    )
    parser.add_argument(
        "--channel", choices=("y", "rgb"), default="y", help="luma, or all three channels (y)"
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="sites that a mechanism has no form for keep full attention, as with --attn",
    )
    parser.add_argument("--files", type=Path, help="folder that keeps the exported files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    hyper = {"window_size": options.window} if options.window else {}
    loaded = [load(model, **hyper) for model in options.model or MODELS]
    models = {model.checkpoint.path.stem: model for model in loaded}
    sets = [
        ImageSet(name, Path(low), Path(high), options.channel) for name, low, high in options.set
    ]
    sizes = [image_size(int(side), int(side)) for side in options.sizes.split(",")]
    document: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
        "machine": describe_machine(options.threads) | {"torch": version("torch")},
        "models": {name: model.checkpoint.sha256 for name, model in models.items()},
    }

    def progress(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.files or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        engine: Engine = functools.partial(planned, partial=options.partial)
        if options.engine == "kernels":
            engine = functools.partial(with_kernels, partial=options.partial)
        elif options.engine == "files":
            engine = session_engine(folder, options.threads)
        study = Study(models, sets, progress, engine, options.only)
        tables: dict[str, Callable[[], list[Row]]] = {
            "plans": lambda: plans_table(study),
            "masks": lambda: masks_table(study),
            "bias": lambda: bias_table(study),
            "settings": lambda: settings_table(study),
            "sharp": lambda: sharp_table(study),
            "files": lambda: files_table(models, sets, progress, folder),
            "times": lambda: times_table(models, sizes, progress, folder, options.threads),
        }
        for name in options.tables.split(","):
            document[name] = tables[name]()
            print(f"\n### {name}\n\n{markdown(document[name])}", flush=True)
            if options.json is not None:
                options.json.write_bytes(stable_json(document))


if __name__ == "__main__":
    main()
