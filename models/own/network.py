"""A network of the user, with its declared properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ...core.errors import NystraError
from ...core.plain_text import PLAIN_NAME, is_plain_line, is_plain_name
from ...core.ports.port import ROLES, Port
from ...core.ports.preprocessing import Preprocessing

__all__ = ["OwnNetwork", "Port"]


@dataclass(frozen=True)
class OwnNetwork:
    """Your own module with its weights; properties that are not given are measured.

    Attributes:
        module: Takes tensors in the order of ``inputs`` and returns those of ``outputs``: one
            tensor, a tuple or list, or a dictionary by name. It is not modified.
        inputs: Its inputs; (): one image (B, C, H, W) in 0..1 of 3 channels, otherwise of 1 or 4.
            ``Port.multiple`` is the size multiple, ``Port.lengths`` has the axes of fixed length.
        outputs: Its outputs; (): one image (B, C, H, W) of an integer scale, or logits (B, K).
        name: Its name in files and metadata, letters and digits; "": the name of its class.
        license: License of the weights.
        preprocessing: How an image becomes the input of a classifier.
    """

    module: nn.Module
    inputs: Sequence[Port] = ()
    outputs: Sequence[Port] = ()
    name: str = ""
    license: str = "unknown"
    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.module, nn.Module):
            raise NystraError(
                f"got a {type(self.module).__name__}, expected a torch.nn.Module with its weights"
            )
        if self.name and not is_plain_name(self.name):
            raise NystraError(
                f"the name of the network is {self.name!r:.80}, expected {PLAIN_NAME}"
            )
        if not is_plain_line(self.license):
            raise NystraError(
                f"the license is {self.license!r:.80}, expected one line of words without "
                "quotation marks"
            )
        for port in (*self.inputs, *self.outputs):
            if port.role not in ROLES:
                raise NystraError(
                    f"the port {port.name!r:.80} has the role {port.role!r:.80}, expected one of "
                    f"{', '.join(ROLES)}"
                )

    @classmethod
    def of(cls, network: nn.Module | OwnNetwork) -> OwnNetwork:
        """Return the network of a module, with defaults."""
        return network if isinstance(network, OwnNetwork) else cls(network)

    @property
    def title(self) -> str:
        """Its name in files and metadata."""
        return self.name or type(self.module).__name__
