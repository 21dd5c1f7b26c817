"""The accuracy of a trained classifier with other attention: top-1 and top-5 per mechanism.

To run it::

    python -m studies.vit.accuracy vit.safetensors cifar10/test --attn nystromformer cluster

The network is exported as it was trained and with each mechanism instead of its attention, and
every file is measured on the same labeled images (one sub-folder per class). Prints a table in
Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.runtime import Accuracy, Session, classifier_for, measure_accuracy

AS_TRAINED = "as_trained"


def model_file(checkpoint: Path, plan: Plan, folder: Path, name: str) -> tuple[Path, float]:
    """Return the file of a plan, and its mean relative error against exact attention."""
    target = folder / f"{checkpoint.stem}_{name}.onnx"
    result = export_model(checkpoint, target, ExportOptions(plan, speed=False, overwrite=True))
    return result.model, result.fidelity.mean


def accuracy_of(file: Path, images: Path, threads: int | None) -> Accuracy:
    """Return the accuracy of a file."""
    return measure_accuracy(classifier_for(Session(file, threads=threads)), images)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Accuracy of a classifier by attention.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("images", type=Path, help="a sub-folder of images for each class")
    parser.add_argument("--attn", nargs="*", default=["nystromformer", "nystra", "cluster"])
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    print("| attention | error of the logits | top-1 | top-5 | lost top-1 |")
    print("| --- | ---: | ---: | ---: | ---: |")
    trained = None
    with tempfile.TemporaryDirectory() as folder:
        for attention in (AS_TRAINED, *args.attn):
            plan = Plan(default=mechanism(attention))
            file, error = model_file(args.checkpoint, plan, Path(folder), attention)
            judged = accuracy_of(file, args.images, args.threads)
            trained = trained or judged
            print(
                f"| {attention} | {error:.1%} | {judged.top1:.2%} | {judged.top5:.2%} | "
                f"{trained.top1 - judged.top1:+.2%} |",
                flush=True,
            )
    print(
        f"\n{judged.images} images in {len(judged.classes)} classes, matched by {judged.matched_by}"
    )


if __name__ == "__main__":
    main()
