"""Running SwinIR at another window than it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..architecture import Hyper, State

_TABLE = ".relative_position_bias_table"


def retarget(told: Hyper, asked: Mapping[str, Any], state: State) -> tuple[Hyper, State, str]:
    """Return what to build when the caller asks for hyper-parameters of his own.

    A window other than the trained one drops the relative position bias, which is of that
    window, and the shift mask, as PnP-Nystra does.

    Args:
        told: What the checkpoint tells.
        asked: What the caller asks for.
        state: The tensors.

    Returns:
        The hyper-parameters, the tensors that are kept, and a sentence that says what was
        dropped, or "" at the trained window.
    """
    trained, window = told.get("window_size"), asked.get("window_size")
    if window is None or trained is None or _sides(window) == _sides(trained):
        return told | dict(asked), state, ""
    hyper = told | dict(asked) | {"position_bias": False, "mask": asked.get("mask", False)}
    if "img_size" not in asked:
        hyper.pop("img_size", None)
    dropped = (_TABLE, ".relative_position_index", ".attn_mask")
    kept = {key: value for key, value in state.items() if not key.endswith(dropped)}
    tables = [value for key, value in state.items() if key.endswith(_TABLE)]
    biggest = max((float(table.abs().max()) for table in tables), default=0.0)
    (rows, columns), (old_rows, old_columns) = _sides(window), _sides(trained)
    change = f"window {rows}x{columns} instead of the trained {old_rows}x{old_columns}"
    if not tables:
        return hyper, kept, change
    warning = (
        f"{change}: the relative position bias of {len(tables)} blocks (largest entry "
        f"{biggest:.2f} in logits) and the shift mask are dropped, as PnP-Nystra does"
    )
    return hyper, kept, warning


def _sides(window: Any) -> tuple[int, int]:
    return (window, window) if isinstance(window, int) else (int(window[0]), int(window[1]))
