"""Modules of third-party networks that are replaced: one file per kind of module.

An adapter takes a module of a third-party network and returns one that computes the same from the
same weights, or None if it does not apply. Most replace layers that cannot be traced: they branch
on the values of an image, derive a number of cells from its sides, or change their own weights
while they run.

Attention is found in the graph of a network, without an adapter. The windows of SRFormer still have
one, which declares them as a `WindowSite`: docs/networks.md has the reason.
"""

from __future__ import annotations

import importlib

from torch import nn

from ...registry import MORE

ADAPTERS = {
    "HVICIDNet.RGB_HVI": "hvi",
    "SAFMN.SAFM": "safm",
    "SAFMNBCIE.SAFM": "safm",
    "SPAN.Conv3XC": "span",
    "SRFormer.PSA_Block": "srformer",
    "SeemoRe.MoELayer": "experts",
}
"""Package and class in spandrel -> the file here that has its ``adapt(module, network)``."""

_PACKAGES = ("spandrel.architectures.", f"{MORE}.architectures.")


def adapt(network: nn.Module) -> int:
    """Replace modules of a network by adapters, in place; return the number of replaced modules."""
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
    """Return package and class of a module, as ``DRCT.SwinTransformerBlock``, or "" for others."""
    kind = type(module)
    for package in _PACKAGES:
        if kind.__module__.startswith(package):
            return f"{kind.__module__.removeprefix(package).partition('.')[0]}.{kind.__name__}"
    return ""
