"""Attention inside third-party networks as sites: one file per form of attention.

An adapter takes a module of a third-party network and returns one that computes the same from the
same weights, with its windows in a `WindowSite`, or None for a variant that fits no site. Attention
without an adapter is exported as it was trained. Some files adapt layers that cannot be traced
instead: they branch on the values of an image, derive a number of cells from its sides, change
their own weights while they run, or depend on an order that the processor determines.

Attention is found in the graphs of networks without an adapter too. The adapters of windows stay
for the time of an export: without its adapter SwinIR light took 20 s of processor time with
``--attn full`` where it takes 8 s. Geometry and results are the same for DRCT and DAT without
theirs. RGT needs its own: PyTorch traces its code for one size only.
"""

from __future__ import annotations

import importlib

from torch import nn

from ...registry import MORE

ADAPTERS = {
    "ATD.AC_MSA": "atd",
    "DAT.Adaptive_Spatial_Attention": "dat",
    "DRCT.SwinTransformerBlock": "swin",
    "GRL.MixedAttention": "grl",
    "HVICIDNet.RGB_HVI": "hvi",
    "RGT.L_SA": "rgt",
    "SAFMN.SAFM": "safm",
    "SAFMNBCIE.SAFM": "safm",
    "SCUNet.WMSA": "scunet",
    "SPAN.Conv3XC": "span",
    "SRFormer.PSA_Block": "srformer",
    "SeemoRe.MoELayer": "experts",
    "Swin2SR.SwinTransformerBlock": "swin2sr",
    "SwinIR.SwinTransformerBlock": "swin",
}
"""Package and class in spandrel -> the file here that has its ``adapt(module, network)``."""

_PACKAGES = ("spandrel.architectures.", f"{MORE}.architectures.")


def adapt(network: nn.Module) -> int:
    """Replace modules of a network by adapters, in place; return their number."""
    count = 0
    for path, module in list(network.named_modules()):
        name = ADAPTERS.get(_name(module))
        if name is not None:
            adapter = importlib.import_module(f".{name}", __name__)
            adapted = adapter.adapt(module, network)
            if adapted is None:
                continue
            parent, _, child = path.rpartition(".")
            setattr(network.get_submodule(parent), child, adapted)
            count += 1
    return count


def _name(module: nn.Module) -> str:
    """Return package and class of a module, ``DRCT.SwinTransformerBlock``; "" of others."""
    kind = type(module)
    for package in _PACKAGES:
        if kind.__module__.startswith(package):
            return f"{kind.__module__.removeprefix(package).partition('.')[0]}.{kind.__name__}"
    return ""
