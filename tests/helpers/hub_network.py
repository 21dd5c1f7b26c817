"""A network in the form of those of transformers, which no test environment has.

Activations and attentions by name from dictionaries that build them, settings that answer to two
names, outputs that are dictionaries and tuples at once, layers and methods that are wrapped.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Factories(OrderedDict[str, Any]):
    """Builds what it holds at each access, as the activations by name do."""

    def __getitem__(self, key: str) -> Any:
        content = super().__getitem__(key)
        made, keywords = content if isinstance(content, tuple) else (content, {})
        return made(**keywords)


ACTIVATIONS = Factories(gelu=nn.GELU, gelu_fast=(nn.GELU, {"approximate": "tanh"}), relu=nn.ReLU)


class Overlay(MutableMapping[str, Callable[..., Any]]):
    """Entries of the class, and those of an object in front of them, as attentions by name are."""

    shared: dict[str, Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.own: dict[str, Callable[..., Any]] = {}

    def __getitem__(self, key: str) -> Callable[..., Any]:
        return self.own[key] if key in self.own else self.shared[key]

    def __setitem__(self, key: str, value: Callable[..., Any]) -> None:
        self.own[key] = value

    def __delitem__(self, key: str) -> None:
        del self.own[key]

    def __iter__(self) -> Any:
        return iter({**self.shared, **self.own})

    def __len__(self) -> int:
        return len({**self.shared, **self.own})


def eager(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Return softmax attention (B, N, heads, d), and its weights."""
    scores = q @ k.transpose(2, 3) * settings["scaling"]
    if mask is not None:
        scores = scores + mask
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = F.dropout(weights, p=settings["dropout"], training=module.training)
    return (weights @ v).transpose(1, 2).contiguous(), weights


def fused(
    _: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """Return softmax attention (B, N, heads, d)."""
    out = F.scaled_dot_product_attention(q, k, v, mask, scale=settings["scaling"])
    return out.transpose(1, 2).contiguous(), None


Overlay.shared = {"eager": eager, "sdpa": fused}
ATTENTIONS = Overlay()


class Settings:
    """Attributes of which some have two names."""

    other_names = {"hidden_size": "embed_dim"}  # noqa: RUF012

    def __init__(self, attention: str = "eager", activation: str = "gelu") -> None:
        self.embed_dim, self.heads, self.window = 16, 2, 8
        self.activation, self.attention = activation, attention
        self.return_dict, self.output_attentions = True, False

    def __getattribute__(self, name: str) -> Any:
        names = object.__getattribute__(self, "other_names")
        return object.__getattribute__(self, names.get(name, name))


@dataclass
class Output(OrderedDict[str, Any]):
    """A dictionary whose entries are attributes, and, in their order, those of a tuple."""

    reconstruction: Tensor | None = None
    attentions: tuple[Tensor, ...] | None = field(default=None)

    def __post_init__(self) -> None:
        for entry in fields(self):
            if getattr(self, entry.name) is not None:
                OrderedDict.__setitem__(self, entry.name, getattr(self, entry.name))

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]

    def update(self, *_: Any, **__: Any) -> None:
        """Refuse, as the original does."""
        raise TypeError("an output has no update")


def returns_tuple(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it returns a tuple where the settings or the call ask for one."""

    @functools.wraps(method)
    def wrapped(self: Any, *inputs: Any, **keywords: Any) -> Any:
        as_dictionary = keywords.pop("return_dict", self.config.return_dict)
        output = method(self, *inputs, **keywords)
        return output if as_dictionary else tuple(output.values())

    return wrapped


@functools.lru_cache(None)
def warn_once(text: str) -> None:
    """Warn the first time."""
    warnings.warn(text, stacklevel=2)


class Layer(nn.Module):
    """A layer whose call is its own."""

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.config = config
        self.before, self.after = (nn.LayerNorm(config.hidden_size) for _ in range(2))
        self.qkv = nn.Linear(config.hidden_size, 3 * config.embed_dim)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if self.training:
            warn_once("no gradient checkpoints")
        return super().__call__(*inputs, **keywords)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return tokens (B, N, C), and their weights of attention."""
        heads = self.config.heads
        each = tokens.shape[-1] // heads
        q, k, v = (
            part.view(*tokens.shape[:2], heads, each).transpose(1, 2)
            for part in self.qkv(self.before(tokens)).chunk(3, -1)
        )
        attend = ATTENTIONS[self.config.attention]
        mixed, weights = attend(self, q, k, v, None, scaling=each**-0.5, dropout=0.0)
        tokens = tokens + self.out(mixed.reshape(*tokens.shape[:2], -1))
        return tokens + self.activation(self.after(tokens)), weights


class Restorer(nn.Module):
    """Attention in windows; (B, 3, H, W) to an `Output`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.config = Settings(**settings)
        width = self.config.hidden_size
        self.embed, self.head = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.layers = nn.ModuleList(Layer(self.config) for _ in range(2))

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights."""
        return next(iter(self.parameters())).dtype

    @returns_tuple
    def forward(
        self, pixel_values: Tensor, output_attentions: bool | None = None, **_: Any
    ) -> Output:
        """Return the restored images."""
        wanted = self.config.output_attentions if output_attentions is None else output_attentions
        x = self.embed(pixel_values.to(self.dtype))
        b, c, h, w = x.shape
        side = self.config.window
        tokens = x.view(b, c, h // side, side, w // side, side).permute(0, 2, 4, 3, 5, 1)
        shape, tokens = tokens.shape, tokens.reshape(-1, side * side, c)
        kept: tuple[Any, ...] = ()
        for layer in self.layers:
            tokens, weights = layer(tokens)
            kept = (*kept, weights) if wanted else kept
        x = tokens.view(shape).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)
        return Output(pixel_values + self.head(x), kept if wanted else None)
