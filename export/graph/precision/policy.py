"""What each architecture keeps in float32 beyond `table`, and what is refused.

docs/precision.md has the measurement behind every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....plugins.errors import UnsupportedModelError


@dataclass(frozen=True)
class Policy:
    """One row.

    Attributes:
        keep: operator type -> why its nodes stay float32.
        refused: precision -> why there is no such file.
    """

    keep: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


POLICIES: dict[str, Policy] = {
    "swinir": Policy(),
    "csnln": Policy(),
    "contextual_attention": Policy(),
    "colorization": Policy(),
}


def policy_for(architecture: str, precision: str) -> Policy:
    """Return the policy of an architecture.

    Raises:
        UnsupportedModelError: the precision was measured not to be safe, or was not measured.
    """
    policy = POLICIES.get(architecture)
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
