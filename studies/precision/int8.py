"""Measure the accuracy drop of int8 and bfloat16 in the shipped networks.

The tables are in studies/measurements/precision.md.

    python -m studies.precision.int8 CALIBRATION LOW HIGH [NETWORK ...]

CALIBRATION holds the images that ranges are measured on, LOW the images that the networks run
on, HIGH the ground truth of the same order, larger by the scale. PSNR in dB, peak 1, all channels,
mean of the images and, against float32, the lowest. A border of the scale is left out. bfloat16
is the float32 file computed in it by OpenVINO with the library, emulated where the CPU has none,
``int8 in bf16`` the int8 file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from nystra.export import Plan, mechanism
from nystra.export.attention.site import resolve
from nystra.export.graph.int8.transform import quantize_model
from nystra.export.load.images import calibration_feeds, calibration_images, sample_side
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.site_graph import trace_network
from nystra.models import load, pretrained_path
from nystra.models.architecture import PrecisionPolicy
from nystra.runtime import Session
from nystra.runtime.images.images import read_image
from nystra.runtime.metrics.measures import MEASURES, clip_and_measure_psnr

Array = npt.NDArray[Any]
NETWORKS = ("swinir_x2_w16", "swinir_x2_w32_nobias")
IMAGE = MEASURES["picture"]


def planes(path: Path) -> Array:
    """Return an image as (1, 3, H, W) in 0..1; gray ones are repeated three times."""
    pixels = read_image(path).pixels.transpose(2, 0, 1)[None]
    return np.ascontiguousarray(pixels.repeat(3 // pixels.shape[1], axis=1), np.float32)


def outputs(
    model: onnx.ModelProto,
    images: list[Array],
    backend: str = "ort-cpu",
    precision: str | None = None,
) -> list[Array]:
    """Return the outputs of a model without bodies."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    attach_bodies(whole)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        path.write_bytes(whole.SerializeToString())
        session = Session(path, backend, threads=1, precision=precision)
        return [next(iter(session.run({"input": image}).values())) for image in images]


def against(got: list[Array], wanted: list[Array], border: int) -> list[float]:
    """Return the PSNR of each image without a border."""
    inside = (..., slice(border, -border), slice(border, -border))
    return [clip_and_measure_psnr(a[inside], b[inside]) for a, b in zip(got, wanted, strict=True)]


def figures(got: list[Array], exact: list[Array], high: list[Array], border: int) -> list[str]:
    """Return the columns of PSNR: against float32, of float32 against truth, and the drop."""
    kept = against(got, exact, border)
    truth, reached = (float(np.mean(against(one, high, border))) for one in (exact, got))
    return [f"{np.mean(kept):.1f} ({np.min(kept):.1f})", f"{truth:.2f}", f"{truth - reached:.3f}"]


def print_row(columns: list[str]) -> None:
    """Print a row of the table."""
    print("| " + " | ".join(columns) + " |", flush=True)


def measure(name: str, folder: Path, low: list[Array], high: list[Array]) -> None:
    """Print the rows of one network."""
    loaded = load(pretrained_path(name))
    facts = loaded.facts
    graph = trace_network(loaded.network, facts, 20)
    for attention in ("full", "nystra"):
        resolved = resolve(Plan(mechanism(attention)), loaded.network)
        model = graph.write_mechanisms(resolved)
        exact = outputs(model, low)
        rounded = figures(outputs(model, low, "openvino", "bf16"), exact, high, facts.scale)
        print_row([name, attention, "bf16", "-", "-", "-", *rounded, "-"])
        feeds = list(calibration_feeds(facts, folder, sample_side(facts)).values())
        for budget in (40.0, IMAGE.tolerances["int8"].budget):
            work = onnx.ModelProto.FromString(model.SerializeToString())
            done = quantize_model(work, PrecisionPolicy(), feeds, IMAGE, budget)
            what = [
                f"{len(done.selection.layers)} of {len(done.selection.layers) + len(done.exact)}",
                ", ".join(done.exact) or "-",
                f"{done.share:.0%}",
            ]
            size = f"{model.ByteSize() / 1e3:.0f} to {work.ByteSize() / 1e3:.0f}"
            for precision, got in (
                ("int8", outputs(work, low)),
                ("int8 in bf16", outputs(work, low, "openvino", "bf16")),
            ):
                columns = figures(got, exact, high, facts.scale)
                print_row([name, attention, f"{precision}, {budget:g}", *what, *columns, size])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("calibration", "low", "high"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=list(NETWORKS))
    options = parser.parse_args()
    images, truth = (
        [planes(path) for path in calibration_images(folder)]
        for folder in (options.low, options.high)
    )
    truth = [
        large[:, :, : 2 * small.shape[2], : 2 * small.shape[3]]
        for small, large in zip(images, truth, strict=True)
    ]
    print(
        "| network | plan | precision, budget in dB | int8 layers | returned | products in int8 "
        "| against float32, mean (lowest) | float32 against truth | lost | kB without bodies |"
    )
    print("|" + " --- |" * 10)
    for name in options.networks:
        measure(name, options.calibration, images, truth)


if __name__ == "__main__":
    main()
