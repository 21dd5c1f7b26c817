"""The number of images of different requests in one run of a model."""

from __future__ import annotations

from typing import Any

from ...core.metadata import ModelMetadata
from ..session import Session


def images_per_run(session: Session, most: int) -> int:
    """Return how many images of different requests may share a run.

    One if the attention depends on the whole batch (``init batch``): a response must not depend on
    other requests.

    Args:
        session: The model.
        most: The limit if the batch of the file is free.

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
