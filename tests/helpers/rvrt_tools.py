"""RVRT from golden cases, and small ones of random weights."""

from typing import Any

import torch
from torch import Tensor, nn

from golden_cases import compare
from nystra.core.option_kinds import squarest_grid
from nystra.export.attention.landmark_tokens import make_pooling
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite
from nystra.plugins.operators.attention_torch import nystrom_attention
from nystra.plugins.operators.windows_torch import merge, partition

_SAME = ("upscale", "num_blocks", "depths", "num_heads", "inputconv_groups", "deformable_groups")


def published(constructor: dict[str, Any]) -> dict[str, Any]:
    """Return our arguments for those of the published constructor."""
    return {key: constructor[key] for key in (*_SAME, "attention_heads", "window_size")} | {
        "embed_dim": constructor["embed_dims"][0],
        "in_chans": 4 if constructor.get("nonblind_denoising") else 3,
    }


def filled(module: nn.Module, case: Any) -> nn.Module:
    """A module with the weights of a golden case."""
    weights = {key: torch.from_numpy(value) for key, value in case.weights().items()}
    loaded = module.load_state_dict(weights, strict=False)
    assert not loaded.unexpected_keys
    assert set(loaded.missing_keys) <= {"spynet.mean", "spynet.std", "mean", "std"}
    return module.eval()


def check(run: Any, outputs: list[Tensor], expected: dict[str, Any]) -> None:
    """Compare the outputs of a run with the golden ones, within 1e-5 of the largest value.

    Runs with random weights are that exact.
    """
    for got, (name, values) in zip(outputs, expected.items(), strict=True):
        output = next(output for output in run["outputs"] if output["name"] == name)
        unit = output.get("max_abs_f32_minus_f64") or 0.0
        tolerance = max(10 * unit, 1e-5 * output["absmax"])
        assert compare(run, name, got.detach().numpy(), values) <= tolerance, run["name"]


def paper_windows(landmarks: int, iterations: int) -> Any:
    """The kernel Nystrom as the paper's authors run it in RVRT.

    The tokens of a window, one after the other, fill a rectangle that is unrelated to their
    positions in the image; that is pooled.
    """

    def attend(qkv: Tensor, _: Tensor | None, geometry: WindowGeometry) -> Tensor:
        q, k, v = partition(qkv, geometry)
        pool = make_pooling(squarest_grid(geometry.tokens), squarest_grid(landmarks), qkv)
        out = nystrom_attention(
            q,
            k,
            v,
            pool @ q,
            pool @ k,
            scale=geometry.scale,
            iterations=iterations,
            batch_init=True,
            threshold=0.0,
            guard=0.0,
        )
        return merge(out, qkv.shape[1:-1], geometry)

    return attend


def attending(network: nn.Module, mechanism: Any) -> nn.Module:
    """The network with a mechanism at every site, in place."""
    for module in network.modules():
        if isinstance(module, WindowSite):
            module.implementation = mechanism
    return network
