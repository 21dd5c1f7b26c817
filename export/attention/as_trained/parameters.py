"""The mechanism that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ..mechanism import Mechanism


@dataclass(frozen=True)
class AsTrained(Mechanism):
    """The network's own attention, with which every other plan is compared."""

    name = "as_trained"
    summary = "the attention of the network"
