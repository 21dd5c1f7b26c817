"""A base class for modules that are traced once and copied."""

from __future__ import annotations

from typing import ClassVar

from torch import nn


class Repeated(nn.Module):
    """A module that a network runs many times, also as several equal modules.

    An export traces it once for every shape of its inputs and puts a copy of that graph, with the
    weights of the module, wherever one runs. ``forward`` takes tensors by place, gives a tensor or
    a tuple of tensors, and depends on nothing but its inputs, weights and settings.

    Attributes:
        shaped_like: For each output the place of an input that has its shape and type.
        copied_from: Number of modules of the class from which copying saves time: a trace
            of its own costs about as much as four in the trace of the network.
    """

    shaped_like: ClassVar[tuple[int, ...]] = (0,)
    copied_from: ClassVar[int] = 1
