"""Train the colorization network of section 4.3 with several attentions, and swap them at test.

Tables 4, 5 and 8 of the PSAL paper in small: crops of photographs instead of video, the reference
is an augmented view of the same place. With the library built::

    python -m studies.psal.colorization --train TRAIN_FOLDER --test TEST_FOLDER --separate \
        --steps 2000 --side 24 --seeds 0 1 2 --output build/psal_colorization

Trainings run one after the other; ``--only psal3`` runs one of them, so that several processes can
share the work. Each network is kept in the output folder and not trained again; ``--table`` tests
whatever is there.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from nystra.models.colorization.network import Colorization
from nystra.models.geometry import PatchGeometry
from nystra.models.layers.patches import exact_patches
from nystra.runtime.images.images import read_image
from studies.psal.competitors import COMPETITORS, Attention
from studies.psal.layer import LayerOptions, psal
from studies.psal.search import kernel_search

PATCH = 7
ATTENTIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "full-dot": {"metric": "dot"},
    **{f"psal{k}": {"neighbors": k} for k in (1, 3, 7, 15, 31)},
    "psal1-aggregated": {"neighbors": 1, "reconstruction": "aggregate"},
    "psal3-aggregated": {"neighbors": 3, "reconstruction": "aggregate"},
    "local": {"window": 9},
    "linear": {},
    "performer": {"features": 256},
    "reformer": {},
}
"""Name of an attention to its options; ``full`` ones are exact."""

SWAPS = ("full", "psal1", "psal3", "psal3-aggregated")
"""What each trained network is tested with besides its own attention."""

_COMPARED = ("full", "local", *SWAPS[1:], "psal1-aggregated")
"""What works for weights that were trained with another: those of the dot product do not."""


def network(name: str, *, shared: bool) -> Colorization:
    """Return a fresh network with that attention in its place."""
    metric = ATTENTIONS[name].get("metric", "l2")
    model = Colorization(channels=16, patch=PATCH, metric=metric, shared=shared)
    put(model, name)
    return model


def put(network: Colorization, name: str) -> None:
    """Set the attention of the network."""
    network.attention.implementation = exact_patches if name.startswith("full") else _site(name)


def _site(name: str) -> Any:
    """Return an attention other than ``full`` as the implementation of a site."""
    options = dict(ATTENTIONS[name])
    attend: Attention
    if name.startswith("psal"):
        layer = LayerOptions(patch_size=PATCH, **options)
        attend = partial(psal, options=layer, search=kernel_search)
    else:
        attend = partial(COMPETITORS[name], patch=PATCH, **options)

    def at_site(q: Tensor, k: Tensor, v: Tensor, _: Tensor | None, __: PatchGeometry) -> Tensor:
        return attend(q, k, v)

    return at_site


class Pairs:
    """Pairs of a gray crop and its colors, with a color reference of the same place."""

    def __init__(self, folder: Path, side: int, seed: int) -> None:
        """Read every photograph of a folder."""
        paths = sorted([*folder.glob("*.jpg"), *folder.glob("*.png")])
        self.photographs = [
            torch.from_numpy(read_image(path).pixels.astype(np.float32)).permute(2, 0, 1)
            for path in paths
        ]
        self.side = side
        self.random = np.random.default_rng(seed)

    def draw(self, photograph: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return gray (1, 1, s, s), reference (1, 3, s, s) and truth (1, 3, s, s).

        The reference is turned by up to 10 degrees, scaled by 0.9 to 1.1, shifted by up to a
        sixth of the side and brightened by up to 5 %.
        """
        random, side = self.random, self.side
        if photograph is None:
            photograph = self.photographs[random.integers(len(self.photographs))]
        _, height, width = photograph.shape
        top = random.integers(side // 4, height - side - side // 4)
        left = random.integers(side // 4, width - side - side // 4)
        truth = photograph[:, top : top + side, left : left + side].unsqueeze(0)
        angle, scale = np.deg2rad(random.uniform(-10, 10)), random.uniform(0.9, 1.1)
        shift = random.uniform(-side / 6, side / 6, 2)
        grid = (torch.arange(side) - (side - 1) / 2) * scale
        y, x = torch.meshgrid(grid, grid, indexing="ij")
        rows = np.cos(angle) * y - np.sin(angle) * x + shift[0] + top + (side - 1) / 2
        columns = np.sin(angle) * y + np.cos(angle) * x + shift[1] + left + (side - 1) / 2
        places = torch.stack((2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1), -1)
        view = F.grid_sample(
            photograph.unsqueeze(0), places.unsqueeze(0).float(), "bilinear", "border", True
        )
        reference = view * random.uniform(0.95, 1.05)
        weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
        return (truth * weights).sum(1, keepdim=True), reference.float(), truth


def train(name: str, folder: Path, options: argparse.Namespace, seed: int, path: Path) -> None:
    """Train a network and store it with its losses."""
    data = Pairs(folder, options.side, seed=1 + 1000 * seed)
    torch.manual_seed(seed)
    model = network(name, shared=not options.separate)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses, start = [], time.process_time()
    for step in range(options.steps):
        gray, reference, truth = data.draw()
        loss = F.mse_loss(model(gray, reference), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 100 == 99:
            mean, seconds = np.mean(losses[-100:]), time.process_time() - start
            print(f"{path.stem} {step + 1}: {mean:.5f}, {seconds:.0f} s", flush=True)
    save_file(model.state_dict(), path)
    record = {"steps": options.steps, "seconds": time.process_time() - start, "losses": losses}
    path.with_suffix(".json").write_text(json.dumps(record))


def stored(name: str, path: Path) -> Colorization:
    """Return a trained network, its attention in its place."""
    state = load_file(path)
    model = network(name, shared="embed_key.weight" not in state).eval()
    model.load_state_dict(state)
    return model


def test(model: Colorization, data: list[tuple[Tensor, Tensor, Tensor]]) -> float:
    """Return the mean squared error."""
    with torch.no_grad():
        errors = [
            F.mse_loss(model(gray, reference), truth).item() for gray, reference, truth in data
        ]
    return float(np.mean(errors))


def table(
    data: list[tuple[Tensor, Tensor, Tensor]], output: Path
) -> dict[str, dict[str, list[float]]]:
    """Return the errors of every stored network by attention at test time, one for each seed."""
    gray = float(np.mean([F.mse_loss(g.expand_as(t), t).item() for g, _, t in data]))
    print(f"gray, without any color: {gray:.5f}")
    results: dict[str, dict[str, list[float]]] = {"gray": {"none": [gray]}}
    for name in ATTENTIONS:
        paths = sorted(output.glob(f"{name}_[0-9]*.safetensors"))
        swaps = [name, *(swap for swap in SWAPS if name in _COMPARED and swap != name)]
        for swap in swaps if paths else ():
            errors = results.setdefault(name, {}).setdefault(swap, [])
            for path in paths:
                model = stored(name, path)
                put(model, swap)
                errors.append(test(model, data))
            each = ", ".join(f"{error:.5f}" for error in errors)
            print(f"trained {name:17} tested {swap:17} {np.mean(errors):.5f} ({each})", flush=True)
    return results


def sheet(data: Pairs, output: Path, path: Path) -> None:
    """Write the outputs of each trained network for a few photographs, one row each."""
    from nystra.runtime.images.sheet import comparison_sheet

    paths = {name: output / f"{name}_0.safetensors" for name in ATTENTIONS}
    rows: dict[str, list[Any]] = {}
    for photograph in data.photographs[3:6]:
        gray, reference, truth = data.draw(photograph)
        shown = {"gray": gray.expand_as(truth), "reference": reference, "truth": truth}
        for name in (name for name, path in paths.items() if path.exists()):
            with torch.no_grad():
                shown[name] = stored(name, paths[name])(gray, reference)
        for title, image in shown.items():
            rows.setdefault(title, []).append(image[0].clamp(0, 1).permute(1, 2, 0).numpy())
    columns = [(title, np.concatenate(images)) for title, images in rows.items()]
    comparison_sheet([columns], path)


def main() -> None:
    """Train and test."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("build/psal_colorization"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--separate", action="store_true", help="a convolution each for Q and K")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", choices=ATTENTIONS, action="append")
    parser.add_argument("--table", action="store_true", help="test what is there, train nothing")
    parser.add_argument("--sheet", type=Path, help="with --table: draw what the networks make")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.output.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        for seed in arguments.seeds:
            for name in arguments.only or ATTENTIONS:
                path = arguments.output / f"{name}_{seed}.safetensors"
                if not path.exists():
                    train(name, arguments.train, arguments, seed, path)
    if arguments.table or not arguments.only:
        held_out = Pairs(arguments.test, arguments.side, seed=2)
        photographs = held_out.photographs[: arguments.images]
        results = table([held_out.draw(photograph) for photograph in photographs], arguments.output)
        (arguments.output / "table.json").write_text(json.dumps(results, indent=1))
        if arguments.sheet:
            sheet(
                Pairs(arguments.test, 2 * arguments.side, seed=3), arguments.output, arguments.sheet
            )


if __name__ == "__main__":
    main()
