"""The facts of a network for one shape of its input."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import NystraError, UnsupportedModelError
from ...core.ports.port import join_sides, size_text
from ...models.facts import Facts


def fix_facts(facts: Facts, static: Sequence[int] | None) -> Facts:
    """Return the facts of a network for one input shape only, or for any if that is None.

    Raises:
        NystraError: The network does not support that shape, or supports one size and none was
            given.
    """
    first = facts.inputs[0]
    if static is not None:
        if len(static) != len(first.axes):
            raise NystraError(
                f"`static` has {len(static)} numbers, expected {len(first.axes)}: "
                f"{', '.join(first.axes)}"
            )
        channels = static[first.axes.index("channels")]
        if first.channels not in (None, channels):
            raise NystraError(
                f"`static` has {channels} channels, the network {first.channels}: it is "
                f"{', '.join(first.axes)}"
            )
        return facts.fix_lengths(static)
    if facts.sides is not None and "height" in facts.outputs[0].axes:
        shape = first.shape({})
        raise UnsupportedModelError(
            f"the network takes {size_text(facts.sides)} only (its position embedding is "
            f"absolute): give `static` {join_sides(shape)}"
        )
    return facts
