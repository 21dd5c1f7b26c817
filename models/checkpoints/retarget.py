"""Running a network of windows at another window than it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.ports.port import join_sides
from ..architecture import Hyper, State

_BUFFERS = (".relative_position_index", ".attn_mask")


@dataclass(frozen=True)
class WindowPart:
    """Trained tensors that depend on the window and cannot be used at another one.

    Attributes:
        switch: The hyper-parameter that builds them; false: without them.
        key: Ending of their keys.
        name: Their name in messages.
        unit: Unit of their values.
    """

    switch: str
    key: str
    name: str
    unit: str = ""

    def describe_dropped(self, state: State) -> str:
        """Return a text on the number and size of dropped tensors; "" if there are none."""
        tensors = [value for key, value in state.items() if key.endswith(self.key)]
        if not tensors:
            return ""
        largest = max(float(tensor.abs().max()) for tensor in tensors)
        return f"the {self.name} of {len(tensors)} blocks (largest entry {largest:.2f}{self.unit})"


POSITION_BIAS = WindowPart(
    "position_bias", ".relative_position_bias_table", "relative position bias", " in logits"
)


def retarget(
    hyper_read: Hyper, overrides: Mapping[str, Any], state: State, parts: tuple[WindowPart, ...]
) -> tuple[Hyper, State, str]:
    """Return the hyper-parameters and tensors of a network with the caller's hyper-parameters.

    At a window other than the trained one, its tensors and the shift mask are dropped, as
    PnP-Nystra does.

    Args:
        hyper_read: Hyper-parameters of the checkpoint.
        overrides: Those of the caller.
        state: The tensors.
        parts: The parts of the network that depend on its window.

    Returns:
        The hyper-parameters, the tensors that are kept, and a sentence that says what was
        dropped, or "" at the trained window.
    """
    trained, window = hyper_read.get("window_size"), overrides.get("window_size")
    if window is None or trained is None or _sides(window) == _sides(trained):
        return hyper_read | dict(overrides), state, ""
    off = {part.switch: False for part in parts}
    hyper = hyper_read | dict(overrides) | off | {"mask": overrides.get("mask", False)}
    endings = (*_BUFFERS, *(part.key for part in parts))
    remaining = {key: value for key, value in state.items() if not key.endswith(endings)}
    new, old = (join_sides(_sides(sides)) for sides in (window, trained))
    change = f"window {new} instead of the trained {old}"
    dropped = list(filter(None, (part.describe_dropped(state) for part in parts)))
    if not dropped:
        return hyper, remaining, change
    listed = f"{', '.join(dropped)} and the shift mask are dropped, as PnP-Nystra does"
    return hyper, remaining, f"{change}: {listed}"


def _sides(window: Any) -> tuple[int, ...]:
    return (window, window) if isinstance(window, int) else tuple(map(int, window))
