"""A network that is a graph, with what PyTorch loses of one where it is copied."""

from __future__ import annotations

import copy
from typing import Any

from torch import fx

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


class FoundNetwork(fx.GraphModule):
    """A graph whose sites and layers are modules; copies keep its hooks."""

    def __deepcopy__(self, memo: dict[int, Any]) -> fx.GraphModule:
        """Return a copy."""
        copied = super().__deepcopy__(memo)
        for name in _HOOKS:
            setattr(copied, name, copy.deepcopy(getattr(self, name), memo))
        return copied
