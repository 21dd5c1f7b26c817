"""Train a small inpainting generator with contextual attention.

The same command continues after a stop, and the result has the same bytes (same
machine, one thread)::

    python -m studies.psal.inpainting_train --data PHOTOGRAPHS --out inpaint.safetensors

The loss of the coarse and the refined image is L1, discounted with the distance to the border of
the hole. From ``--adversarial-from`` on a patch discriminator (hinge loss, spectral norm) is added
for the refined image: its gradient is scaled to a share of L1's. Convolutions run in bfloat16 where
the CPU has instructions for it; without them that takes six times as long as float32.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from nystra.core.errors import NystraError
from nystra.export.attention.psal.parameters import Psal
from nystra.export.attention.psal.patches import plan_geometry
from nystra.models.contextual_attention.network import InpaintingGenerator
from nystra.models.geometry import PatchGeometry
from nystra.models.layers.patches import exact_patches, usable_keys
from nystra.models.psal.search import patch_squares
from nystra.models.sites import PatchImplementation
from studies.psal.inpainting_data import SMALLEST, ImageData, discount, draw_crops, photographs
from studies.psal.layer import LayerOptions, matches, reconstruct
from studies.psal.search import kernel_search
from studies.training.loop import write_file

_SAVE_SECONDS = 60.0
_WARM_UP = 100  # steps
_KNOWN = 0.15  # weight of what is not in the hole
_DISCOUNT = 0.98
_AHEAD = 300  # steps that the discriminator learns before it counts
_AVERAGE = 0.998
_PATCH = 7


@dataclass(frozen=True)
class Recipe:
    """All settings that determine the result, besides the photographs.

    Attributes:
        seed: Of the start weights, the crops and the holes.
        steps: Optimizer steps.
        batch: Crops a step.
        side: Of a crop in pixels.
        width: ``ngf`` of the generator, from 6 on: each map carries three colors.
        rate: Highest learning rate.
        adversarial_from: Step from which the discriminator counts; ``steps`` for never.
        adversarial: Length of its gradient at the refined image over that of L1.
        attention: ``full``, or ``psal`` as in the paper's section 4.4: patches of 7 pixels at full
            size, the values of the central pixels.
    """

    seed: int = 0
    steps: int = 6000
    batch: int = 4
    side: int = 128
    width: int = 12
    rate: float = 6e-4
    adversarial_from: int = 4000
    adversarial: float = 0.5
    attention: str = "full"

    def __post_init__(self) -> None:
        """Refuse crops without room for a hole, and other attentions."""
        if self.side < SMALLEST or self.side % 8:
            raise NystraError(
                f"--side {self.side}: expected a multiple of 8 of at least {SMALLEST}, so that a "
                "crop holds the largest rectangle"
            )
        if self.attention not in ATTENTIONS:
            raise NystraError(f"--attention {self.attention}: expected {' or '.join(ATTENTIONS)}")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then a cosine."""
        return self.rate * min(
            (step + 1) / _WARM_UP, 0.02 + 0.49 * (1 + math.cos(math.pi * step / self.steps))
        )


def _convolutions() -> torch.autocast:
    """Return the context in which convolutions run: bfloat16 where the CPU computes in it."""
    return torch.autocast(
        "cpu", torch.bfloat16, enabled=torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _precise(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, geometry: PatchGeometry
) -> Tensor:
    """Return exact attention in float32: the scores are too large for bfloat16."""
    with torch.autocast("cpu", enabled=False):
        return exact_patches(q.float(), k.float(), v.float(), mask, geometry)


def _by_psal(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, geometry: PatchGeometry
) -> Tensor:
    """Return PSAL with a gradient, in the form that `--attn psal --patch-size 7 --full-size` has.

    Borders repeat the edge here.
    """
    geometry = plan_geometry(geometry, Psal(patch_size=_PATCH, full_size=True))
    options = LayerOptions(patch_size=_PATCH, metric="cosine", temperature=1 / geometry.scale)
    with torch.autocast("cpu", enabled=False):
        q, k, v = q.float(), k.float(), v.float()
        usable = None if mask is None else usable_keys(mask, geometry)
        index, score = matches(q, k, options, usable, search=kernel_search)
        score = score * patch_squares(q, _PATCH).clamp(min=1e-12).sqrt()
        return reconstruct(index, score, v, options, usable)


ATTENTIONS: dict[str, PatchImplementation] = {"full": _precise, "psal": _by_psal}


def generator(recipe: Recipe) -> InpaintingGenerator:
    """Return a generator that initially returns a blurred image.

    The network has neither normalization nor a skip, and from a random start learns little in
    half an hour. Here every convolution begins as the identity plus noise, without noise in the
    first three channels, which carry the colors plus 1, so that no activation bends them.
    """
    network = InpaintingGenerator(ngf=recipe.width)
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            _pass_on(module, last="17" in name)
            if name.split(".")[1] in ("conv1", "pmconv1"):
                torch.nn.init.constant_(_bias(module)[:3], 1.0)
            elif "17" in name:
                torch.nn.init.constant_(_bias(module), -1.0)
    network.fine_generator.contextul_attention.implementation = ATTENTIONS[recipe.attention]
    return network.to(memory_format=torch.channels_last)


def _bias(module: nn.Conv2d) -> Tensor:
    if module.bias is None:
        raise ValueError("a convolution without bias")
    return module.bias.data


def _pass_on(module: nn.Conv2d, last: bool) -> None:
    """Initialize output channel i to input channel i, averaged where the size is halved."""
    weight = module.weight.data
    nn.init.kaiming_normal_(weight)
    weight *= 0.03 if last else 0.3
    weight[:3] = 0.0
    nn.init.zeros_(_bias(module))
    middle = weight.shape[2] // 2
    taps = slice(middle, middle + module.stride[0])
    for channel in range(min(weight.shape[:2])):
        weight[channel, channel, taps, taps] += 1.0 / module.stride[0] ** 2


def discriminator() -> nn.Sequential:
    """Return a network from image and mask to one number per patch of 61 x 61 pixels."""
    layers: list[nn.Module] = []
    widths = (4, 24, 48, 96, 96)
    for before, after in pairwise(widths):
        layers += [spectral_norm(nn.Conv2d(before, after, 5, 2, 2)), nn.LeakyReLU(0.2)]
    layers.append(spectral_norm(nn.Conv2d(widths[-1], 1, 1)))
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


class Training:
    """Networks, optimizers and averages, from the state file if there is one."""

    def __init__(self, recipe: Recipe, images: list[ImageData], state: Path) -> None:
        """Build everything, or read it."""
        torch.manual_seed(recipe.seed)
        self.recipe, self.images, self.state, self.done = recipe, images, state, 0
        self.network, self.judge = generator(recipe), discriminator()
        self.unclamped: list[Tensor] = [torch.empty(0)] * 2
        generators = (self.network.coarse_generator.conv17, self.network.fine_generator.allconv17)
        for place, last in enumerate(generators):
            last.register_forward_hook(partial(self._keep, place))
        self.average = {k: v.detach().clone() for k, v in self.network.state_dict().items()}
        self.optimizer = torch.optim.Adam(self.network.parameters(), recipe.rate, (0.9, 0.99))
        self.judge_optimizer = torch.optim.Adam(self.judge.parameters(), 4e-4, (0.5, 0.99))
        if state.exists():
            self._read()

    def _keep(self, place: int, module: nn.Module, inputs: tuple[Tensor], image: Tensor) -> None:
        """Store an image before clamping, since a clamped pixel has no gradient."""
        self.unclamped[place] = image

    def _parts(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "judge": self.judge,
            "optimizer": self.optimizer,
            "judge_optimizer": self.judge_optimizer,
        }

    def _read(self) -> None:
        content = torch.load(self.state, weights_only=True)
        if json.loads(content["recipe"]) != asdict(self.recipe):
            raise SystemExit(f"{self.state} is of another training: {content['recipe']}")
        for name, part in self._parts().items():
            part.load_state_dict(content[name])
        self.average, self.done = content["average"], content["done"]

    def save(self) -> None:
        """Write the state file."""
        content = {name: part.state_dict() for name, part in self._parts().items()}
        content |= {"recipe": json.dumps(asdict(self.recipe)), "done": self.done}
        content["average"] = self.average
        write_file(self.state, lambda file: torch.save(content, file))

    def step(self) -> dict[str, float]:
        """Take one step and return what was measured on its crops."""
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.rate_at(self.done)
        drawn = draw_crops(self.images, recipe.side, recipe.batch, recipe.seed, self.done)
        weights = torch.from_numpy(np.stack([discount(mask, _DISCOUNT) for mask in drawn[1]]))
        truth, mask = (torch.from_numpy(array) for array in drawn)
        weights = weights / weights.sum() + _KNOWN * (1 - mask) / (1 - mask).sum()
        truth = truth.contiguous(memory_format=torch.channels_last)
        with _convolutions():
            self.network.stages(truth * (1 - mask), mask)
        coarse, refined = (output.float() for output in self.unclamped)
        losses = [
            ((tensor - truth).abs().mean(1, keepdim=True) * weights).sum()
            for tensor in (coarse, refined)
        ]
        figures = {"coarse": losses[0].item(), "refined": losses[1].item()}
        detached = refined.detach().requires_grad_()
        (pull,) = torch.autograd.grad(
            ((detached - truth).abs().mean(1, keepdim=True) * weights).sum(), detached
        )
        if self.done >= recipe.adversarial_from - _AHEAD:
            figures |= self._judged(truth, detached.detach(), mask)
        if self.done >= recipe.adversarial_from:
            pull = pull + self._adversarial(pull, detached, truth, mask)
        self.optimizer.zero_grad()
        torch.autograd.backward([losses[0], refined], [None, pull])
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.done += 1
        weight = 1.0 - min(_AVERAGE, self.done / (self.done + 9))
        for key, value in self.network.state_dict().items():
            self.average[key].lerp_(value, weight)
        return figures

    def _score(self, image: Tensor, mask: Tensor) -> Tensor:
        with _convolutions():
            score: Tensor = self.judge(torch.cat((image, mask), 1))
        return score.float()

    def _judged(self, truth: Tensor, refined: Tensor, mask: Tensor) -> dict[str, float]:
        """Train the discriminator and return its loss, 2 if it has learned nothing."""
        real, fake = self._score(torch.cat((truth, truth * (1 - mask) + refined * mask)),
                                 torch.cat((mask, mask))).chunk(2)  # fmt: skip
        loss = F.relu(1 - real).mean() + F.relu(1 + fake).mean()
        self.judge_optimizer.zero_grad()
        loss.backward()
        self.judge_optimizer.step()
        return {"judge": loss.item()}

    def _adversarial(self, pull: Tensor, refined: Tensor, truth: Tensor, mask: Tensor) -> Tensor:
        """Return the discriminator's gradient at the refined image, scaled to its share."""
        score = self._score(truth * (1 - mask) + refined * mask, mask)
        (gradient,) = torch.autograd.grad(-score.mean(), refined)
        inside = (pull * mask).norm()
        return gradient * (self.recipe.adversarial * inside / gradient.norm().clamp(min=1e-12))

    def write(self, path: Path) -> None:
        """Write the averaged weights as a checkpoint that nystra-export reads."""
        facts = {"architecture": "contextual_attention", "license": "Apache-2.0"}
        tensors = {key: self.average[key].contiguous() for key in sorted(self.average)}
        content = save(tensors, metadata={"nystra": json.dumps(facts)})
        write_file(path, lambda file: file.write(content))


def main() -> None:
    """Train until the steps are done or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--out", type=Path, required=True, help=".safetensors file")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then; go on later")
    recipe = Recipe()
    for name, value in asdict(recipe).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    arguments = vars(parser.parse_args())
    torch.set_num_threads(1)
    try:
        recipe = Recipe(**{name: arguments[name] for name in asdict(recipe)})
    except NystraError as error:
        parser.error(str(error))
    out: Path = arguments["out"]
    out.parent.mkdir(parents=True, exist_ok=True)
    training = Training(recipe, photographs(arguments["data"]), out.with_suffix(".state.pt"))
    start = saved = time.monotonic()
    sums: dict[str, float] = {}
    while training.done < recipe.steps and time.monotonic() - start < 60 * arguments["minutes"]:
        for key, value in training.step().items():
            sums[key] = sums.get(key, 0.0) + value
        if training.done == recipe.adversarial_from:
            training.write(out.with_suffix(".l1.safetensors"))
        if training.done % 100 == 0:
            shown = ", ".join(f"{key} {value / 100:.4f}" for key, value in sums.items())
            print(f"{training.done}: {shown}, {time.monotonic() - start:.0f} s", flush=True)
            sums = {}
        if time.monotonic() - saved > _SAVE_SECONDS:
            training.save()
            saved = time.monotonic()
    training.save()
    training.write(out)
    print(f"{out}: {training.done} of {recipe.steps} steps")


if __name__ == "__main__":
    main()
