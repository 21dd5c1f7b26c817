"""Token merging (ToMe, Bolya et al., 2023) in a trained classifier: accuracy, and time of files.

    python -m studies.vit.token_merging vit_cifar10_p4 cifar10/test

After the attention of each block the ``r`` most similar pairs of patches, by the mean of their keys
over the heads, become one token each, without training; a token weighs as many keys as it has
patches. Files of the same network and of one with 197 tokens and random weights (12 blocks of width
192) are timed on one thread, each relative to the file with exact attention: medians of
interleaved runs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.core.ports.preprocessing import Preprocessing
from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import resolve
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.site_graph import trace_network
from nystra.models import load
from nystra.models.facts import Facts
from nystra.models.pretrained import checkpoint_path
from nystra.models.vit.checkpoint import vit_facts
from nystra.models.vit.network import ViT
from nystra.runtime import Session
from nystra.runtime.timing.turns import median_ratio, time_interleaved
from studies.vit.networks import BACKENDS, OPSET, session_call
from studies.vit.study import Judge

LARGE: dict[str, Any] = {
    "image_size": (224, 224),
    "patch_size": 16,
    "hidden_size": 192,
    "intermediate_size": 768,
    "depth": 12,
    "num_heads": 3,
    "num_classes": 1000,
}


MERGED = {65: (0, 4, 8, 12), 197: (0, 8, 13, 16)}
"""Number of tokens -> pairs that are merged in a block."""


class Merging(nn.Module):
    """The blocks of a vision transformer with merging, in place of its encoder."""

    def __init__(self, blocks: Iterable[nn.Module], pairs: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.pairs = pairs

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens (B, fewer, C) that are left of tokens (B, N, C)."""
        sizes = torch.ones_like(tokens[..., :1])
        block: Any
        for block in self.blocks:
            attended, keys = attend(block.attention, block.layernorm_1(tokens), sizes)
            tokens, sizes = merge(tokens + attended, sizes, keys, self.pairs)
            tokens = tokens + block.mlp(block.layernorm_2(tokens))
        return tokens


def attend(attention: Any, tokens: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the attention of tokens of sizes (B, N, 1), and the mean key of each."""
    packed = attention.qkv_projection(tokens).unflatten(-1, (3, attention.heads, -1))
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    logits = (q * q.shape[-1] ** -0.5) @ k.mT + sizes.log().mT.unsqueeze(1)
    mixed = (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)
    out: Tensor = attention.output_projection(mixed)
    return out, k.mean(1)


def merge(tokens: Tensor, sizes: Tensor, keys: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Return tokens and sizes with the most similar pairs merged; the first is a class token."""
    keys = F.normalize(keys, dim=-1)
    best, partners = (keys[:, 1::2] @ keys[:, 2::2].mT).max(-1)
    order = best.topk(best.shape[1]).indices
    gone, stay = order[:, :pairs], order[:, pairs:]
    partners = partners.gather(1, gone)
    weighted = torch.cat([tokens * sizes, sizes], -1)
    first, others, taking = weighted[:, :1], weighted[:, 1::2], weighted[:, 2::2]
    taking = taking.scatter_add(1, places(partners, taking), others.gather(1, places(gone, others)))
    left = torch.cat([first, others.gather(1, places(stay, others)), taking], 1)
    return left[..., :-1] / left[..., -1:], left[..., -1:]


def places(indices: Tensor, like: Tensor) -> Tensor:
    """Return the indices (B, n) for all channels of a tensor (B, N, C)."""
    return indices.unsqueeze(-1).expand(-1, -1, like.shape[-1])


def trained(name: str) -> tuple[ViT, Facts]:
    """Return the network of a checkpoint, or of a shipped one's name, and its facts."""
    loaded = load(checkpoint_path(name))
    network: Any = loaded.network
    return network, loaded.facts


def large() -> tuple[ViT, Facts]:
    """Return the network with 197 tokens, with random weights, and its facts."""
    torch.manual_seed(0)
    network = ViT(**LARGE).eval()
    return network, vit_facts(network, {"num_channels": 3} | LARGE, "none", Preprocessing())


def write(network: ViT, facts: Facts, pairs: int, path: Path) -> Path:
    """Write the file of a network whose blocks merge so many pairs; 0: as it was trained."""
    encoder: Any = network.encoder
    resolved = resolve(Plan(mechanism("as_trained")), network)
    if pairs:
        network.encoder = Merging(encoder.blocks, pairs)
        resolved = {}
    model = trace_network(network, facts, OPSET).write_mechanisms(resolved)
    network.encoder = encoder
    attach_bodies(model)
    onnx.save(model, path)
    return path


def print_rows(
    network: ViT, facts: Facts, pairs: Sequence[int], judge: Judge | None, seconds: float
) -> None:
    """Print a row for each number of pairs: accuracy, and time relative to exact attention."""
    tokens = network.embedding.position_embeddings.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        paths = {
            number: write(network, facts, number, Path(folder, f"{number}.onnx"))
            for number in pairs
        }
        ratios = [times_of(engine, paths, network.image_size, seconds) for engine in BACKENDS]
        for number, path in paths.items():
            accuracy = ""
            if judge is not None:
                accuracy = f"{(judge.places(Session(path, threads=1), 1) == 0).mean():.2%}"
            cells = [f"{of[number]:.2f}" for of in ratios]
            print(f"| {tokens} | {number} | {accuracy} | {' | '.join(cells)} |", flush=True)


def times_of(
    engine: str, paths: Mapping[int, Path], side: Sequence[int], seconds: float
) -> dict[int, float]:
    """Return how many times as fast as exact attention each file classifies one image."""
    feeds = {"input": np.zeros((1, 3, *side), np.float32)}
    calls = {str(number): session_call(engine, path, feeds) for number, path in paths.items()}
    times = time_interleaved(calls, seconds, maximum=1000)
    return {number: median_ratio(times["0"], times[str(number)]) for number in paths}


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("images", type=Path, help="a sub-folder of images for each class")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| tokens | pairs | top-1 | {' | '.join(BACKENDS)} |")
    print("| ---: | ---: | ---: |" + " ---: |" * len(BACKENDS))
    network, facts = trained(options.checkpoint)
    judge = Judge.read(
        options.images, network.image_size[0], facts.preprocessing or Preprocessing()
    )
    print_rows(network, facts, MERGED[65], judge, options.seconds)
    print_rows(*large(), MERGED[197], None, options.seconds)


if __name__ == "__main__":
    main()
