"""The interface of a network's folder: its loading code and its precision policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .facts import Facts

State: TypeAlias = "Mapping[str, Tensor]"
Hyper: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """The inputs of a load other than the tensors.

    Attributes:
        source: Name of the file, for messages.
        overrides: Hyper-parameters of the caller: they take precedence over everything else.
        stored: Hyper-parameters from the file's metadata: they take precedence over the tensors.
        license: License of the weights, ``unknown`` if the file does not state it.
        config: Content of the ``config.json`` in the folder of the file.
    """

    source: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    license: str = "unknown"
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BuiltNetwork:
    """A network with its weights and facts.

    Attributes:
        network: The network with the weights of the state dict, in float32.
        facts: Its facts.
        hyper: Its hyper-parameters.
        warnings: Dropped tensors and assumptions, one sentence each.
        retargeted: The window was changed from the trained one.
    """

    network: nn.Module
    facts: Facts
    hyper: Hyper
    warnings: tuple[str, ...] = ()
    retargeted: bool = False


@dataclass(frozen=True)
class PrecisionPolicy:
    """The parts of a network that stay float32 in a low precision (docs/precision.md).

    Attributes:
        keep: Operator type -> why its nodes stay float32.
        modules: Pattern of module paths (``flow.*``) -> why their layers stay float32.
        refused: Precision -> why there is no such file.
    """

    keep: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def exact(self, path: str) -> str | None:
        """Return why the layer at a module path stays float32, or None if it does not."""
        return next((why for name, why in self.modules.items() if fnmatchcase(path, name)), None)


@dataclass(frozen=True)
class Architecture:
    """The loading code of an architecture in the registry.

    Attributes:
        load: Builds the network from a state dict and a request, in any way, also by another
            library. It raises ``CheckpointError`` if the tensors do not fit and ``NystraError`` if
            the hyper-parameters do not.
        precision: The policy for low precisions; None if none was measured: fp32 only.
        recognizes: Returns whether a state dict belongs to this architecture, if key patterns
            cannot tell.
        retargets: Its attention can run at another window than the trained one, with the
            hyper-parameter ``window_size``.
    """

    load: Callable[[State, Request], BuiltNetwork]
    precision: PrecisionPolicy | None = None
    recognizes: Callable[[State], bool] | None = None
    retargets: bool = False
