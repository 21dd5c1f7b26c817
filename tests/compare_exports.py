"""Whether a change of the code changes what is exported, node by node.

    export PYTHONPATH=.:tests/helpers
    python tests/compare_exports.py checkpoints CHECKPOINTS   # once, with either version
    python tests/compare_exports.py export CHECKPOINTS BEFORE # with the version before
    python tests/compare_exports.py export CHECKPOINTS AFTER  # with the version after
    python tests/compare_exports.py compare BEFORE AFTER      # exit 1 where they differ

Every network with every mechanism that serves it, and each option of an export once.
Needs spandrel.
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import onnx

MECHANISMS = ("full", "cluster", "nystra", "nystromformer", "psal")
SHIPPED = (
    "swinir_x2_w16",
    "swinir_x2_w32_nobias",
    "sst_x2_w64",
    "hat_x2_w16",
    "uformer_denoise25_w16",
    "vit_cifar10_p4",
)
PHOTOGRAPHS = str(Path(__file__).parents[1] / "export" / "photographs")
OPTIONS = (
    ("--attn", "nystra", "--precision", "fp16"),
    ("--attn", "nystra", "--precision", "bf16"),
    ("--attn", "full", "--precision", "bf16", "--target", "tensorrt"),
    ("--attn", "cluster", "--precision", "int8", "--calibrate", PHOTOGRAPHS),
    ("--attn", "nystra", "--opset", "18"),
    ("--attn", "nystra", "--static", "1x3x40x56"),
    ("--attn", "nystromformer", "--inline"),
    ("--attn", "full", "--no-functions"),
    ("--attn", "nystra", "--window", "8", "--landmarks", "2x4", "--iterations", "3"),
)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def make_checkpoints(folder: Path) -> None:
    """Write small networks with random weights, one of each kind."""
    import torch
    from safetensors.torch import save_file

    from nystra.models.swinir.network import SwinIR
    from patch_networks import BUILDERS, HYPER, network_of
    from studies.networks.small import save_small as save_foreign
    from studies.precision.small import save_rvrt

    folder.mkdir(parents=True, exist_ok=True)
    for name in BUILDERS:
        metadata = {"nystra": json.dumps(HYPER.get(name, {}))}
        save_file(network_of(name).state_dict(), folder / f"{name}.safetensors", metadata)
    small = {"embed_dim": 12, "depths": [2], "num_heads": [2], "mlp_ratio": 2.0}
    forms = {
        "swinir_w8_direct_x3": {"upsampler": "pixelshuffledirect", "upscale": 3, "window_size": 8},
        "swinir_w8_nearest_x4": {"upsampler": "nearest+conv", "upscale": 4, "window_size": 8},
        "swinir_w7_gray": {"upsampler": "", "upscale": 1, "window_size": 7, "in_chans": 1},
        "swinir_3conv": {"resi_connection": "3conv", "upsampler": "", "upscale": 1},
    }
    for name, form in forms.items():
        torch.manual_seed(3)
        hyper = {"window_size": 8, "img_size": 16, **small, **form}
        save_file(SwinIR(**hyper).state_dict(), folder / f"{name}.safetensors")
    save_rvrt(folder / "rvrt.safetensors")
    save_foreign("DAT", folder / "dat.pth")


def exports(checkpoints: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield a name and the arguments of every export."""
    sources = [*SHIPPED, *(str(path) for path in sorted(checkpoints.glob("*.*")))]
    for source in sources:
        for mechanism in MECHANISMS:
            yield f"{Path(source).stem}-{mechanism}", [source, "--attn", mechanism]
    for options in OPTIONS:
        words = [word for word in options if word != PHOTOGRAPHS]
        yield "-".join(words).replace("--", ""), [SHIPPED[0], *options]


def export_all(checkpoints: Path, folder: Path) -> None:
    """Export everything, or leave a text file that says why it was refused."""
    (command,) = entry_points(group="console_scripts", name="nystra")
    main = command.load()
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in exports(checkpoints):
        target = folder / f"{name}.onnx"
        code = main(["export", *arguments, "-o", str(target), "--no-speed", "--quiet"])
        if code != 0:
            (folder / f"{name}.refused").write_text(f"exit {code}\n")
        say(f"{name}: exit {code}")


def differences(before: Path, after: Path) -> list[str]:
    """Return what differs between two model files but for the version of nystra."""
    models = [onnx.load(str(path)) for path in (before, after)]
    parts: list[dict[str, list[bytes]]] = []
    for model in models:
        model.producer_version = ""
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        for free in ("nystra.version", "nystra.psnr_vs_torch"):
            metadata.pop(free, None)
        parts.append(
            {
                "nodes": [node.SerializeToString(deterministic=True) for node in model.graph.node],
                "initializers": [
                    tensor.SerializeToString(deterministic=True)
                    for tensor in model.graph.initializer
                ],
                "inputs": [value.SerializeToString() for value in model.graph.input],
                "outputs": [value.SerializeToString() for value in model.graph.output],
                "functions": [
                    function.SerializeToString(deterministic=True) for function in model.functions
                ],
                "metadata": [f"{key}={metadata[key]}".encode() for key in sorted(metadata)],
            }
        )
    texts = []
    for part, first in parts[0].items():
        second = parts[1][part]
        if first != second:
            where = next(
                (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
                min(len(first), len(second)),
            )
            shown = (
                f" {first[where : where + 1]} became {second[where : where + 1]}"
                if part == "metadata"
                else ""
            )
            texts.append(f"{part}: {len(first)} and {len(second)}, first at {where}{shown}")
    return texts


def compare(before: Path, after: Path) -> int:
    """Print what differs; return 1 if anything does."""
    names = sorted({path.name for folder in (before, after) for path in folder.glob("*.onnx")})
    wrong = 0
    for name in names:
        if not (before / name).exists() or not (after / name).exists():
            texts = [f"missing {'before' if (after / name).exists() else 'after'}"]
        else:
            texts = differences(before / name, after / name)
        wrong += bool(texts)
        for text in texts:
            say(f"{name}: {text}")
    say(f"{len(names) - wrong} of {len(names)} files are equal")
    return int(bool(wrong))


if __name__ == "__main__":
    command, *folders = sys.argv[1:]
    paths = [Path(folder) for folder in folders]
    if command == "checkpoints":
        make_checkpoints(*paths)
    elif command == "export":
        export_all(*paths)
    else:
        sys.exit(compare(*paths))
