"""What low precision does to an architecture: asked of the folder of its network."""

from __future__ import annotations

from ....models.architecture import PrecisionPolicy
from ....models.registry import row_named
from ....plugins.errors import UnsupportedModelError


def policy_for(architecture: str, precision: str) -> PrecisionPolicy:
    """Return what stays float32 in a file of an architecture.

    Raises:
        UnsupportedModelError: The precision was measured not to be safe, or was not measured.
    """
    policy = row_named(architecture).architecture().precision
    if policy is None:
        raise UnsupportedModelError(
            f"{precision} was not measured for {architecture}: use --precision fp32"
        )
    if precision in policy.refused:
        raise UnsupportedModelError(
            f"{architecture} in {precision} is not safe: {policy.refused[precision]}. "
            "Use --precision fp32"
        )
    return policy
