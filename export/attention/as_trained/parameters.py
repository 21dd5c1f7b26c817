"""The mechanism that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ..mechanism import Mechanism


@dataclass(frozen=True)
class AsTrained(Mechanism):
    """What the network came with; a plan with it is what every other plan is compared with."""

    name = "as_trained"
    summary = "the attention of the network"
