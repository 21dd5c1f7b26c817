"""How many images of different requests one run of a model may take."""

from __future__ import annotations

from typing import Any

from ...core.metadata import ModelMetadata
from ..session import Session


def images_per_run(session: Session, most: int) -> int:
    """Return how many images a model may take at once.

    One where a file's attention looks at all of them together (``init batch``): an answer must
    not depend on who else is there.

    Args:
        session: The model.
        most: Where the file leaves it open.

    Raises:
        NystraError: The plan in its metadata cannot be read.
    """
    port = session.facts.image
    if port is None or "batch" not in port.axes:
        return 1
    if _asks_for_batch(ModelMetadata.read(session.metadata).attention_plan()):
        return 1
    return port.lengths.get("batch", most)


def _asks_for_batch(plan: Any) -> bool:
    if not isinstance(plan, dict):
        return False
    return plan.get("init") == "batch" or any(map(_asks_for_batch, plan.values()))
