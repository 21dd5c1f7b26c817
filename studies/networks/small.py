"""Every architecture that spandrel lists, as small as possible, with random weights."""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Small:
    """How a small network is built and loaded.

    Attributes:
        kind: The class in the architecture's package.
        arguments: Of its constructor.
        hyper: What no tensor tells and nystra's own network and spandrel assume differently.
    """

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)
    hyper: dict[str, Any] = field(default_factory=dict)


_SWIN = {"depths": [2], "embed_dim": 24, "num_heads": [2], "window_size": 8}

SMALL = {
    "Compact": Small("Compact", {"num_feat": 16, "num_conv": 3}),
    "SwiftSRGAN": Small("SwiftSRGAN", {"num_channels": 16, "num_blocks": 2}),
    "HAT": Small(
        "HAT",
        _SWIN
        | {
            "window_size": 16,
            "compress_ratio": 2,
            "squeeze_factor": 4,
            "upscale": 2,
            "upsampler": "pixelshuffle",
        },
    ),
    "GRL": Small(
        "GRL",
        {
            "depths": [2, 2],
            "embed_dim": 32,
            "num_heads_window": [2, 2],
            "num_heads_stripe": [2, 2],
            "upscale": 2,
            "upsampler": "pixelshuffledirect",
            "mlp_ratio": 2.0,
        },
    ),
    "Swin2SR": Small("Swin2SR", _SWIN | {"upsampler": "pixelshuffledirect"}),
    "SwinIR": Small("SwinIR", _SWIN | {"upscale": 2, "upsampler": "pixelshuffledirect"}),
    "RestoreFormer": Small(
        "RestoreFormer", {"n_embed": 32, "embed_dim": 32, "z_channels": 32, "ch": 32}
    ),
    "LaMa": Small("LaMa", {"in_nc": 4}),
    "OmniSR": Small("OmniSR", {"num_feat": 16}),
    "SCUNet": Small("SCUNet", {"config": [2] * 7}),
    "FBCNN": Small("FBCNN", {"nb": 2}),
    "Uformer": Small(
        "Uformer",
        {"embed_dim": 8, "img_size": 256, "depths": [1] * 4 + [2] + [1] * 4},
        hyper={"img_size": 256},
    ),
    # the network of position biases has 1/32 of the channels of RGT and DAT
    "RGT": Small("RGT", {"embed_dim": 32, "depth": [2], "num_heads": [2]}),
    "DAT": Small("DAT", {"embed_dim": 32, "depth": [2], "num_heads": [2], "split_size": [4, 8]}),
    "CRAFT": Small("CRAFT", {"embed_dim": 48, "depths": [2], "num_heads": [2]}),
    "KBNet": Small(
        "KBNet_s",
        {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]},
    ),
    "DITN": Small("DITN", {"dim": 16, "ITL_blocks": 1, "SAL_blocks": 1}),
    "MMRealSR": Small(
        "MMRealSR", {"num_in_ch": 3, "num_out_ch": 3, "num_feat": 16, "num_block": 1}
    ),
    "SPAN": Small("SPAN", {"num_in_ch": 3, "num_out_ch": 3, "feature_channels": 16}),
    "RealCUGAN": Small("UpCunet2x"),
    "SAFMN": Small("SAFMN", {"dim": 16, "n_blocks": 2}),
    "SAFMNBCIE": Small("SAFMNBCIE", {"dim": 16, "n_blocks": 2, "num_layers": 2}),
    "DCTLSA": Small("DCTLSA", {"nf": 20, "num_modules": 6}),
    "FFTformer": Small(
        "FFTformer", {"dim": 16, "num_blocks": [1, 1, 1], "num_refinement_blocks": 1}
    ),
    "NAFNet": Small(
        "NAFNet",
        {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]},
    ),
    "ATD": Small(
        "ATD",
        _SWIN
        | {
            "category_size": 64,
            "num_tokens": 16,
            "upscale": 2,
            "upsampler": "pixelshuffledirect",
        },
    ),
    "MixDehazeNet": Small("MixDehazeNet", {"embed_dims": [8, 16, 32, 16, 8]}),
    "DRUNet": Small("DRUNet", {"in_nc": 4, "out_nc": 3, "nc": [8, 16, 16, 32], "nb": 2}),
    "DnCNN": Small("DnCNN", {"in_nc": 3, "out_nc": 3, "nc": 16, "nb": 20, "act_mode": "R"}),
    "IPT": Small("IPT", {"n_feats": 8, "num_layers": 1, "num_heads": 2, "patch_size": 24}),
    "DRCT": Small(
        "DRCT",
        {
            "embed_dim": 24,
            "depths": [6],
            "num_heads": [2],
            "gc": 8,
            "window_size": 8,
            "upscale": 2,
            "upsampler": "pixelshuffle",
        },
    ),
    "ESRGAN": Small("ESRGAN", {"num_filters": 16, "num_blocks": 2}),
    "PLKSR": Small("RealPLKSR", {"dim": 16, "n_blocks": 2}),
    "RetinexFormer": Small("RetinexFormer", {"n_feat": 8, "stage": 1}),
    "HVICIDNet": Small("HVICIDNet", {"channels": [8, 8, 16, 32], "heads": [1, 2, 4, 8]}),
    "SeemoRe": Small("SeemoRe", {"num_experts": 3, "num_layers": 2, "embedding_dim": 16}),
    "MoSR": Small("MoSR", {"n_block": 2, "dim": 16}),
    "MoESR": Small("MoESR", {"n_blocks": 2, "n_block": 2, "dim": 16}),
    "RCAN": Small("RCAN", {"n_resgroups": 1, "n_resblocks": 2, "n_feats": 16, "reduction": 4}),
    "FDAT": Small("FDAT", {"embed_dim": 24, "num_groups": 1, "depth_per_group": 2, "num_heads": 2}),
    "GFPGAN": Small(  # spandrel builds this size whatever the tensors say
        "GFPGAN",
        {
            "out_size": 512,
            "channel_multiplier": 2,
            "input_is_latent": True,
            "different_w": True,
            "sft_half": True,
        },
    ),
    "AuraSR": Small(
        "AuraSR",
        {
            "dim": 8,
            "image_size": 64,
            "input_image_size": 16,
            "style_network": {"dim_in": 16, "dim_out": 64, "depth": 2},
        },
    ),
}
"""spandrel's name -> the small network; one variant of each."""


def build(name: str, **changes: Any) -> nn.Module:
    """Return the small network of an architecture with random weights, the same every time."""
    small = SMALL[name]
    kind = getattr(importlib.import_module(f"spandrel.architectures.{name}"), small.kind)
    torch.manual_seed(0)
    network: nn.Module = kind(**small.arguments | changes)
    return network.eval()


def lively(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict whose parameters that start at nothing do something, contiguous."""
    random = torch.Generator().manual_seed(1)
    return {
        key: value + 0.02 * torch.randn(value.shape, generator=random)
        if value.is_floating_point() and not bool(value.any())
        else value.clone().contiguous()
        for key, value in state.items()
    }


def save_small(name: str, path: Path, **changes: Any) -> Path:
    """Write the small network of an architecture as a checkpoint; return the path."""
    torch.save({"params": lively(build(name, **changes).state_dict())}, path)
    return path
