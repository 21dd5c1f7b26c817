"""The convolutions of SPAN: published code merges them into one in every run.

Here they are merged once.
"""

from __future__ import annotations

from typing import Any

from torch import nn

_SLOPE = 0.05


def adapt(own: Any, _: nn.Module) -> nn.Module:
    """Return the merged convolution, followed by the activation if the module has one."""
    own.update_params()
    fused: nn.Module = own.eval_conv
    return nn.Sequential(fused, nn.LeakyReLU(_SLOPE)) if own.has_relu else fused
