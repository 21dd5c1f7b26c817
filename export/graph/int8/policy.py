"""The layers of an architecture that always stay float32 in an int8 file."""

from __future__ import annotations

from ....core.errors import UnsupportedModelError
from ....models.architecture import PrecisionPolicy
from ....models.registry import row_named


def int8_policy(architecture: str) -> PrecisionPolicy:
    """Return the layers that an architecture keeps in float32; each export measures the others.

    Raises:
        UnsupportedModelError: The architecture does not support int8.
    """
    policy = row_named(architecture).architecture().precision or PrecisionPolicy()
    if "int8" in policy.refused:
        raise UnsupportedModelError(
            f"{architecture} in int8 is refused: {policy.refused['int8']}. Use `precision` fp32; "
            "see docs/precision.md"
        )
    return policy
