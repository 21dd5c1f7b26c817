"""Networks of other libraries for the search of attention, and their small forms."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from nystra.core.ports.port import Port
from nystra.models.own.network import OwnNetwork
from studies.networks import encoders
from studies.networks.small import SMALL, build

TOYS = Path(__file__).resolve().parents[2] / "tests" / "helpers" / "found_toys.py"


@dataclass(frozen=True)
class Other:
    """A network that is handed over as a module of the user's own.

    Attributes:
        build: Returns it, with random weights.
        side: Of its image, where it takes one size.
        mask: It takes a mask besides.
        batch: Of images, where it takes no other.
    """

    build: Callable[[], nn.Module]
    side: int | None = None
    mask: bool = False
    batch: int | None = None

    def network(self) -> OwnNetwork:
        """Return it with random weights, and what it takes."""
        torch.manual_seed(0)
        module = sharpened(self.build())
        lengths = {} if self.side is None else {"height": self.side, "width": self.side}
        lengths |= {} if self.batch is None else {"batch": self.batch}
        ports: tuple[Port, ...] = ()
        if lengths or self.mask:
            ports = (Port("image", "image", lengths={"channels": 3, **lengths}),)
        if self.mask:
            ports += (Port("mask", "mask", lengths={"channels": 1, **lengths}, range=(0, 1)),)
        return OwnNetwork(module, ports)


def sharpened(module: nn.Module) -> nn.Module:
    """Give a network, in place, random weights with which it matters what attends to what."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, (nn.Linear, nn.Conv2d)) and part.weight.numel() > len(part.weight):
                fan = part.weight[0].numel()
                part.weight.copy_(torch.randn(part.weight.shape, generator=random) / fan**0.5)
        for name, parameter in module.named_parameters():
            if "bias_table" in name or "relative_position" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=random))
            elif parameter.is_floating_point() and not bool(parameter.any()):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    return module.eval()


def _kind(path: str, **arguments: Any) -> nn.Module:
    module, _, name = path.rpartition(".")
    made: nn.Module = getattr(importlib.import_module(module), name)(**arguments)
    return made


def _timm(name: str, **arguments: Any) -> nn.Module:
    made: nn.Module = importlib.import_module("timm").create_model(name, **arguments)
    return made


class First(nn.Module):
    """The first of what a network returns."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the image."""
        image: Tensor = self.network(x)[0]
        return image


class Restorer(nn.Module):
    """The attention of a toy in a network of images."""

    def __init__(self, toy: nn.Module) -> None:
        super().__init__()
        self.body, self.last = toy, nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return an image."""
        restored: Tensor = x + 0.1 * self.last(self.body(x))
        return restored


def _toys() -> ModuleType:
    spec = importlib.util.spec_from_file_location("found_toys", TOYS)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(TOYS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _toy(name: str) -> nn.Module:
    kinds = _toys()
    return Restorer(kinds.lively(getattr(kinds, name)()))


def _extra(name: str, kind: str, **arguments: Any) -> Callable[[], nn.Module]:
    return partial(_kind, f"spandrel_extra_arches.architectures.{name}.{kind}", **arguments)


def _first(name: str, kind: str, **arguments: Any) -> Callable[[], nn.Module]:
    return lambda: First(_extra(name, kind, **arguments)())


_SWIN = "torchvision.models.swin_transformer."
_SMALL_SWIN = {"patch_size": [4, 4], "embed_dim": 24, "window_size": [7, 7], "num_classes": 10}
_DEEP = [2, 2, 18, 2]
_BLOCKS = {"dim": 16, "num_refinement_blocks": 1}
_CODES = {"codebook_params": [[32, 64, 32]], "LQ_stage": True, "scale_factor": 2}
_PATCHES = {"patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 10}
_STAGES = {"embed_dims": (32, 64, 64, 64), "num_heads": (2, 2, 2, 2), "num_classes": 10}
_VIT = {"image_size": 64, "patch_size": 16, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}

OTHERS = {
    "spandrel_extra_arches/SRFormer": Other(
        _extra(
            "SRFormer",
            "SRFormer",
            img_size=48,
            depths=(2,),
            embed_dim=24,
            num_heads=(2,),
            window_size=12,
            upscale=2,
            upsampler="pixelshuffledirect",
        )
    ),
    "spandrel_extra_arches/Restormer": Other(
        _extra("Restormer", "Restormer", **_BLOCKS, num_blocks=[1] * 4, heads=[1, 2, 2, 2])
    ),
    "spandrel_extra_arches/M3SNet": Other(
        _extra(
            "M3SNet",
            "M3SNet",
            width=16,
            middle_blk_num=1,
            enc_blk_nums=[1, 1],
            dec_blk_nums=[1, 1],
        )
    ),
    "spandrel_extra_arches/MPRNet": Other(
        _first("MPRNet", "MPRNet", n_feat=16, scale_unetfeats=8, scale_orsnetfeats=8, num_cab=1)
    ),
    "spandrel_extra_arches/MIRNet2": Other(
        _extra("MIRNet2", "__arch.mirnet_v2_arch.MIRNet_v2", n_feat=16, chan_factor=1.5)
    ),
    "spandrel_extra_arches/CodeFormer": Other(_first("CodeFormer", "CodeFormer", n_layers=2), 512),
    "spandrel_extra_arches/DDColor": Other(
        _extra(
            "DDColor", "DDColor", encoder_name="convnext-t", nf=512, num_queries=16, dec_layers=3
        ),
        256,
    ),
    "spandrel_extra_arches/FeMaSR": Other(
        _extra("FeMaSR", "__arch.femasr.FeMaSRNet", **_CODES), 64
    ),
    "spandrel_extra_arches/AdaCode": Other(
        _extra("AdaCode", "__arch.adacode_contrast_arch.AdaCodeSRNet_Contrast", **_CODES), 64
    ),
    "spandrel_extra_arches/MAT": Other(_extra("MAT", "MAT"), 512, mask=True, batch=1),
    "torchvision/swin_t": Other(
        partial(
            _kind,
            f"{_SWIN}SwinTransformer",
            **_SMALL_SWIN,
            depths=[2, 2, 6, 2],
            num_heads=[2, 2, 4, 4],
        ),
        224,
    ),
    "torchvision/swin_s": Other(
        partial(
            _kind, f"{_SWIN}SwinTransformer", **_SMALL_SWIN, depths=_DEEP, num_heads=[2, 2, 4, 4]
        ),
        224,
    ),
    "torchvision/swin_b": Other(
        partial(
            _kind, f"{_SWIN}SwinTransformer", **_SMALL_SWIN, depths=_DEEP, num_heads=[4, 4, 8, 8]
        ),
        224,
    ),
    "torchvision/swin_v2_t": Other(
        partial(
            _kind,
            f"{_SWIN}_swin_transformer",
            patch_size=[4, 4],
            embed_dim=24,
            depths=[2, 2, 6, 2],
            num_heads=[2, 2, 4, 4],
            window_size=[8, 8],
            stochastic_depth_prob=0.0,
            weights=None,
            progress=False,
            num_classes=10,
        ),
        256,
    ),
    "torchvision/maxvit_t": Other(
        partial(
            _kind,
            "torchvision.models.maxvit.MaxVit",
            input_size=(112, 112),
            stem_channels=16,
            partition_size=7,
            block_channels=[16, 32],
            block_layers=[1, 1],
            head_dim=8,
            stochastic_depth_prob=0.0,
            num_classes=10,
        ),
        112,
    ),
    "torchvision/vit_b_16": Other(
        partial(_kind, "torchvision.models.VisionTransformer", **_VIT, num_layers=12), 64
    ),
    "timm/swin_tiny": Other(
        partial(
            _timm,
            "swin_tiny_patch4_window7_224",
            embed_dim=24,
            num_heads=(2, 2, 4, 4),
            num_classes=10,
        ),
        224,
    ),
    "timm/swinv2_tiny": Other(
        partial(
            _timm,
            "swinv2_tiny_window8_256",
            embed_dim=24,
            num_heads=(2, 2, 4, 4),
            num_classes=10,
        ),
        256,
    ),
    "timm/maxvit_nano": Other(partial(_timm, "maxvit_nano_rw_256", num_classes=10), 256),
    "timm/vit_tiny": Other(
        partial(_timm, "vit_tiny_patch16_224", embed_dim=32, num_heads=2, img_size=64), 64
    ),
    "timm/deit_tiny_distilled": Other(
        partial(_timm, "deit_tiny_distilled_patch16_224", embed_dim=32, num_heads=2, img_size=64),
        64,
    ),
    "timm/pvt_v2_b0": Other(partial(_timm, "pvt_v2_b0", num_classes=10), 224),
    "timm/hiera_tiny": Other(
        partial(
            _timm,
            "hiera_tiny_224",
            img_size=(128, 128),
            embed_dim=32,
            num_heads=1,
            stages=(1, 1, 1, 1),
            num_classes=10,
        ),
        128,
    ),
    "timm/twins_svt_small": Other(
        partial(_timm, "twins_svt_small", img_size=128, depths=(1, 2, 1, 1), **_STAGES), 128
    ),
    "timm/davit_tiny": Other(partial(_timm, "davit_tiny", depths=(1, 1, 1, 1), **_STAGES), 224),
    "timm/eva02_tiny": Other(
        partial(_timm, "eva02_tiny_patch14_224", img_size=112, **_PATCHES), 112
    ),
    "timm/mvitv2_tiny": Other(partial(_timm, "mvitv2_tiny", img_size=128, num_classes=10), 128),
    "timm/gcvit_xxtiny": Other(partial(_timm, "gcvit_xxtiny", num_classes=10), 224),
    "timm/edgenext_xx_small": Other(partial(_timm, "edgenext_xx_small", num_classes=10), 224),
    "timm/vit_relpos_small": Other(
        partial(_timm, "vit_relpos_small_patch16_224", img_size=64, **_PATCHES), 64
    ),
    "timm/beit_base": Other(partial(_timm, "beit_base_patch16_224", img_size=64, **_PATCHES), 64),
    "timm/xcit_nano": Other(partial(_timm, "xcit_nano_12_p8_224", img_size=112, **_PATCHES), 112),
    "transformers/Swin2SR": Other(encoders.Swin2SR),
    "transformers/DINOv3": Other(encoders.dinov3),
    "transformers/SAM": Other(encoders.sam, 160),
    "transformers/SAM 2": Other(encoders.sam2, 128),
    "transformers/SigLIP": Other(encoders.siglip),
    "transformers/Swinv2": Other(encoders.swinv2, 128),
    "transformers/ViTDet": Other(encoders.vitdet, 112),
}
"""Library/network -> the small one."""

_SIDES = {"IPT": 24}
"""Of networks whose module takes one size: spandrel cuts the image into patches before it."""

PLAIN = {f"spandrel/{name}": Other(partial(build, name), _SIDES.get(name)) for name in SMALL}
"""The networks that spandrel lists, as modules that nobody knows."""


def toys() -> dict[str, Other]:
    """Return the toys of the tests: one idiom of attention each."""
    kinds = _toys()
    names = [
        name
        for name, kind in vars(kinds).items()
        if isinstance(kind, type) and issubclass(kind, kinds.Toy) and kind is not kinds.Toy
    ]
    sides = {"StridedSlices": 16}  # a window for each of its cells
    return {f"toys/{name}": Other(partial(_toy, name), sides.get(name)) for name in names}
