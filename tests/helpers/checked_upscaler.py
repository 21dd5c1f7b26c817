"""An upscaler by 2 with references made by numpy, and the commands that check it."""

from pathlib import Path

import numpy as np

from nystra.cli.main import main
from nystra.runtime.model.references import ReferenceCase, write_references
from runtime_models import nystra_metadata, save_upscaler


def save_checked_upscaler(folder: Path) -> Path:
    """Write the file and its references, and return its path."""
    path = save_upscaler(folder / "model.onnx", metadata=nystra_metadata())
    rng = np.random.default_rng(1)
    cases = []
    for height, width in ((16, 16), (12, 20)):
        image = rng.random((1, 3, height, width)).astype(np.float32)
        cases.append(ReferenceCase({"input": image}, {"output": image.repeat(2, 2).repeat(2, 3)}))
    write_references(folder / "model.npz", cases, {"tolerances": [1e-4, 2e-4]})
    return path


def check(model: Path, *arguments: str) -> int:
    """Run ``nystra check`` with the baseline beside the file; return the exit code."""
    baseline = model.with_name("baseline.json")
    return main(["check", str(model), "--baseline", str(baseline), "--threads", "1", *arguments])


def damage(model: Path, gain: float) -> None:
    """Write the file again with another gain."""
    save_upscaler(model, metadata=nystra_metadata(), gain=gain)
