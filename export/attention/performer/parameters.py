"""The parameters of ``performer``."""

from __future__ import annotations

from dataclasses import dataclass

from ....core.option import option
from ....core.option_kinds import Number
from ..mechanism import Mechanism


@dataclass(frozen=True)
class Performer(Mechanism):
    """Positive orthogonal random features of the softmax kernel (Choromanski et al., 2021).

    A network that was trained with it keeps its own features and its own kernel.
    """

    name = "performer"
    site_classes = ("Tokens",)
    summary = "random features of the softmax kernel: linear, meant for networks trained with it"
    keeps_bias = False
    takes_site = True
    advice = "more `features`"

    features: int = option(
        Number(64, "random features, if the network was not trained with its own", 1, 4096)
    )
    feature_seed: int = option(Number(0, "seed of the random features", 0, 1 << 31))

    def why_not_faster(self, tokens: int) -> str:
        """Return both counts where features are half as many as tokens, or more."""
        few = tokens <= 2 * self.features
        if few:
            return f"{tokens} tokens, {self.features} features"
        return ""
