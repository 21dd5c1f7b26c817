"""Which layers of an architecture stay float32 in an int8 file, whatever is measured."""

from __future__ import annotations

from ....core.errors import UnsupportedModelError
from ....models.architecture import PrecisionPolicy
from ....models.registry import row_named


def int8_policy(architecture: str) -> PrecisionPolicy:
    """Return what an architecture keeps in float32; every export measures the rest.

    Raises:
        UnsupportedModelError: The architecture says that int8 does not do.
    """
    policy = row_named(architecture).architecture().precision or PrecisionPolicy()
    if "int8" in policy.refused:
        raise UnsupportedModelError(
            f"{architecture} in int8 is refused: {policy.refused['int8']}. Use `precision` fp32"
        )
    return policy
