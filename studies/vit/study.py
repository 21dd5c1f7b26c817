"""The study's table: vision transformers trained alike, one for each attention.

To run it::

    for a in full linformer performer; do
      python -m studies.training --network vit --data cifar10 --steps 3900 --attention $a \
        --threads 1 --out study/vit_$a.safetensors
    done
    python -m studies.vit.study study/vit_*.safetensors --images cifar10/test
    python -m studies.vit.study --plot vit_accuracy.png

Every network is exported as it was trained, the one with exact attention also with each mechanism
instead, without training; the file is measured, on labeled images (one sub-folder per class).
Times are those of one image on one thread, interleaved. Figures are stored in ``--kept``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nystra.core.ports.preprocessing import Preprocessing
from nystra.export import Plan, mechanism
from nystra.export.attention.site import resolve, swap
from nystra.models import load
from nystra.models.vit.network import ViT
from nystra.runtime import Session
from nystra.runtime.tasks.classification.classifier import prepare
from nystra.runtime.timing.turns import time_interleaved
from studies.training.labeled import read_labeled
from studies.vit.accuracy import model_file
from studies.vit.networks import ENGINES, in_torch, operations, session_call

SWAPS: dict[str, dict[str, Any]] = {
    "nystromformer": {"landmarks": (4, 4)},
    "nystra": {"landmarks": (4, 4)},
    "cluster": {"clusters": (4, 4), "block": 2},
    "psal": {"neighbors": 16},
    "performer": {"features": 64},
}
"""What takes the place of exact attention, at 64 tokens with numbers well below them."""

AS_TRAINED = "as trained"

BATCH = 100
SLOW = 10
"""Of the images, which part a mechanism sees that takes thirty times as long: every tenth."""

Row = dict[str, Any]
Calls = dict[str, dict[str, Callable[[], object]]]


def plans(trained: str) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of a network: as trained, and for exact attention also the others."""
    yield AS_TRAINED, Plan(mechanism("as_trained"))
    if trained == "full":
        for name, parameters in SWAPS.items():
            yield name, Plan(mechanism(name, **parameters))


def title(network: ViT, hyper: dict[str, Any]) -> str:
    """Return the attention of the training: ``linformer k=32``."""
    kind = hyper["attention"]
    key, letter = {
        "linformer": ("linformer_k", "k"),
        "performer": ("rp_dim", "r"),
        "nystromformer": ("num_landmarks", "m"),
    }.get(kind, ("", ""))
    words = f"{kind} {letter}={hyper[key]}" if key else kind
    return words if hyper["stem"] == "patches" else f"{hyper['stem']} + {words}"


@dataclass(frozen=True)
class Judge:
    """Prepared images, (N, 3, H, W), and their classes, (N)."""

    inputs: np.ndarray
    classes: np.ndarray

    @classmethod
    def read(cls, folder: Path, side: int, preprocessing: Preprocessing) -> Judge:
        """Read a folder and prepare its images as the networks' files require."""
        labeled = read_labeled(folder, side)
        prepared = [prepare(pixels / 255.0, preprocessing, 3) for pixels in labeled.pixels]
        return cls(np.concatenate(prepared), labeled.classes)

    def places(self, session: Session, every: int) -> np.ndarray:
        """Return the rank of the class among the logits of every n-th image, from 0."""
        name = session.inputs[0].name
        inputs, classes = self.inputs[::every], self.classes[::every, None]
        places = []
        for first in range(0, len(inputs), BATCH):
            part = slice(first, first + BATCH)
            (logits,) = session.run({name: np.ascontiguousarray(inputs[part])}).values()
            own = np.take_along_axis(logits, classes[part], 1)
            places.append((logits > own).sum(1))
        return np.concatenate(places)


def measure(checkpoints: Sequence[Path], images: Path, seconds: float) -> list[Row]:
    """Return a row for each file: its plan, accuracy and time."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    calls: Calls = {engine: {} for engine in ENGINES}
    judge: Judge | None = None
    with tempfile.TemporaryDirectory() as folder:
        for checkpoint in checkpoints:
            loaded = load(checkpoint)
            network: Any = loaded.network
            trained = title(network, dict(loaded.hyper))
            size = network.image_size
            if judge is None:
                assert loaded.facts.preprocessing is not None
                judge = Judge.read(images, size[0], loaded.facts.preprocessing)
            for runs, plan in plans(trained):
                file, error = model_file(checkpoint, plan, Path(folder), runs.replace(" ", "_"))
                every = SLOW if runs == "psal" else 1
                places = judge.places(Session(file, "ort-cpu", 1), every)
                swapped: Any = swap(network, resolve(plan, network), "plain")
                row = {
                    "trained": trained,
                    "runs": runs,
                    "error": error,
                    "top1": float((places < 1).mean()),
                    "top5": float((places < 5).mean()),
                    "images": len(places),
                    "parameters": sum(value.numel() for value in network.parameters()),
                    "gflops": operations(swapped, size) / 1e9,
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
                name, image = f"{trained}/{runs}", torch.rand(1, 3, *size)
                calls["PyTorch"][name] = in_torch(swapped, image)
                for engine in ENGINES[1:]:
                    feeds = {"input": image.numpy()}
                    calls[engine][name] = session_call(engine, file, feeds)
        for engine, each in calls.items():
            times = time_interleaved(each, seconds, maximum=3000)
            for row in rows:
                row[engine] = 1e3 * statistics.median(times[f"{row['trained']}/{row['runs']}"])
    return rows


def table(rows: Sequence[Row]) -> None:
    """Print the networks as trained, and the accuracy drop of replacing exact attention."""
    exact = next((row for row in rows if row["trained"] == "full"), rows[0])
    print("\n| attention | parameters | GFLOPs | top-1 | top-5 | " + " | ".join(ENGINES) + " |")
    print("| --- |" + " ---: |" * (4 + len(ENGINES)))
    for row in rows:
        if row["runs"] == AS_TRAINED:
            times = " | ".join(f"{row[engine]:.2f} ms" for engine in ENGINES)
            print(
                f"| {row['trained']} | {row['parameters']:,} | {row['gflops']:.4f} | "
                f"{row['top1']:.2%} | {row['top5']:.2%} | {times} |"
            )
    print("\n| replacement | error of the logits | images | top-1 | lost | onnxruntime |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        if row["runs"] != AS_TRAINED:
            words = ", ".join(f"{key} {value}" for key, value in SWAPS[row["runs"]].items())
            print(
                f"| {row['runs']} ({words}) | {row['error']:.1%} | {row['images']:,} | "
                f"{row['top1']:.2%} | "
                f"{exact['top1'] - row['top1']:.2%} | {row['onnxruntime']:.2f} ms |"
            )


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracy over latency: filled marks as trained, hollow ones as replacements."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for row in rows:
        as_trained = row["runs"] == AS_TRAINED
        label = row["trained"] if as_trained else f"{row['runs']}, replacing exact"
        face = None if as_trained else "none"
        axes.plot(row["onnxruntime"], 100 * row["top1"], "o", markerfacecolor=face, label=label)
    axes.set(
        xscale="log",
        xlabel="ms an image of 32x32, onnxruntime, one thread",
        ylabel="top-1 on CIFAR-10's test images, %",
    )
    axes.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Parse the command line; measure, print, store or draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoints", type=Path, nargs="*")
    parser.add_argument("--images", type=Path, help="a sub-folder of images for each class")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each engine's timing (20)")
    parser.add_argument("--kept", type=Path, default=Path("build/vit/study.json"))
    parser.add_argument("--plot", type=Path, help="draw what was kept")
    args = parser.parse_args()
    if args.plot is not None:
        if not args.kept.exists():
            parser.error(f"{args.kept} is not there: --plot draws what a run without it has kept")
        plot(json.loads(args.kept.read_text()), args.plot)
        return
    rows = measure(args.checkpoints, args.images, args.seconds)
    args.kept.parent.mkdir(parents=True, exist_ok=True)
    args.kept.write_text(json.dumps(rows, indent=1) + "\n")
    table(rows)


if __name__ == "__main__":
    main()
