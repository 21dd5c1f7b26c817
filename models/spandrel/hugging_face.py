"""Swin2SR with the keys of Hugging Face's transformers, renamed to those that spandrel reads.

Facts from public documentation: the state-dict keys of ``Swin2SRForImageSuperResolution`` and the
entries of its ``config.json``. Its files hold no buffers; those of a window come from spandrel.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...core.errors import CheckpointError, NystraError, UnsupportedModelError
from ..architecture import Request, State

_LAYER = r"swin2sr\.encoder\.stages\.(\d+)\.layers\.(\d+)\."
_BLOCK = r"layers.\1.residual_group.blocks.\2."
_RENAMED = (
    (r"swin2sr\.first_convolution\.", "conv_first."),
    (r"swin2sr\.embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"swin2sr\.embeddings\.patch_embeddings\.layernorm\.", "patch_embed.norm."),
    (rf"{_LAYER}attention\.self\.logit_scale", f"{_BLOCK}attn.logit_scale"),
    (rf"{_LAYER}attention\.self\.continuous_position_bias_mlp\.", f"{_BLOCK}attn.cpb_mlp."),
    (rf"{_LAYER}attention\.self\.(query|value)\.bias", rf"{_BLOCK}attn.\3_bias"),
    (rf"{_LAYER}attention\.output\.dense\.", f"{_BLOCK}attn.proj."),
    (rf"{_LAYER}layernorm_before\.", f"{_BLOCK}norm1."),
    (rf"{_LAYER}layernorm_after\.", f"{_BLOCK}norm2."),
    (rf"{_LAYER}intermediate\.dense\.", f"{_BLOCK}mlp.fc1."),
    (rf"{_LAYER}output\.dense\.", f"{_BLOCK}mlp.fc2."),
    (r"swin2sr\.encoder\.stages\.(\d+)\.conv\.", r"layers.\1.conv."),
    (
        r"swin2sr\.encoder\.stages\.(\d+)\.patch_embed\.projection\.",
        r"layers.\1.patch_embed.proj.",
    ),
    (r"swin2sr\.layernorm\.", "norm."),
    (r"swin2sr\.conv_after_body\.", "conv_after_body."),
    (r"upsample\.conv\.", "upsample.0."),
    (r"upsample\.upsample\.convolution\.", "upsample.0."),
    (r"upsample\.conv_before_upsample\.", "conv_before_upsample.0."),
    (r"(?:upsample\.)?final_convolution\.", "conv_last."),
    (r"upsample\.(conv_(?:bicubic|aux|after_aux|up1|up2|hr)\.)", r"\1"),
)
"""(beginning of a key of transformers, that of spandrel); the rest of the key is kept."""

_IDENTIFYING = (
    "swin2sr.first_convolution.weight",
    "swin2sr.encoder.stages.0.layers.0.attention.self.logit_scale",
    "swin2sr.layernorm.weight",
)
_STEP = re.compile(r"upsample\.upsample\.convolution_(\d{1,2})\.(.*)")
_PROJECTION = re.compile(rf"{_LAYER}attention\.self\.(query|key|value)\.weight")
_BUFFERS = ("relative_coords_table", "relative_position_index")
_LARGEST_WINDOW = 64
_FIXED = {
    "hidden_act": "gelu",
    "use_absolute_embeddings": False,
    "layer_norm_eps": 1e-5,
    "patch_size": 1,
}
"""Entries of ``config.json`` that all published networks share, and that spandrel assumes."""


def is_of_transformers(state: State) -> bool:
    """Return whether a state dict has the keys of Swin2SR in transformers."""
    return all(key in state for key in _IDENTIFYING)


def of_spandrel(state: State, request: Request) -> tuple[State, Request, tuple[str, ...]]:
    """Return a state dict of transformers as spandrel reads it, the rest of the request, warnings.

    Raises:
        NystraError: The window is unknown.
        CheckpointError: Projections of queries, keys or values are missing.
        UnsupportedModelError: The configuration is not one that spandrel builds.
    """
    overrides = dict(request.overrides)
    window, shifted = _window(request, overrides.pop("window_size", None))
    spread = 255.0 if window == 7 else 1.0
    for key, value in {**_FIXED, "img_range": spread}.items():
        if request.config.get(key, value) != value:
            raise UnsupportedModelError(
                f"{request.source}: its config.json has {key} {request.config[key]!r:.40}, "
                f"expected {value!r} for windows of {window}"
            )
    tensors = rename_keys(state, request.source)
    tensors |= _window_buffers(tensors, window, shifted=shifted)
    return tensors, replace(request, overrides=overrides), _difference(tensors)


def _difference(tensors: State) -> tuple[str, ...]:
    """Return how the network differs from that of transformers, if it does.

    In two of the upsamplers transformers adds the image as it came, whereas the authors' network,
    whose weights are published, subtracts the mean of its training images before.
    """
    if "conv_bicubic.weight" not in tensors and "upsample.0.weight" in tensors:
        return ()
    if "conv_hr.weight" in tensors:
        return ()
    text = (
        "in this upsampler transformers adds the image without subtracting the mean; this is the "
        "network of the authors, which subtracts it: its output differs from that of transformers"
    )
    return (text,)


def rename_keys(state: State, source: str) -> dict[str, Tensor]:
    """Return the tensors under the keys of spandrel, without buffers.

    Raises:
        CheckpointError: A projection of queries, keys or values is missing or has another shape.
    """
    tensors: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        if match := _PROJECTION.fullmatch(key):
            stage, layer, role = match.groups()
            path = f"layers.{stage}.residual_group.blocks.{layer}.attn.qkv.weight"
            parts.setdefault(path, {})[role] = value
        elif not key.endswith(_BUFFERS):  # which older versions wrote
            tensors[_rename(key)] = value
    for path, part in parts.items():
        rows = [part.get(role) for role in ("query", "key", "value")]
        present = [row for row in rows if row is not None]
        if len(present) < len(rows) or len({row.shape for row in present}) > 1:
            raise CheckpointError(
                f"{source}: {path} is made of query, key and value of one shape; the file has "
                f"{ {role: tuple(row.shape) for role, row in part.items()} }"
            )
        tensors[path] = torch.cat(present)
    return tensors


def _rename(key: str) -> str:
    if match := _STEP.fullmatch(key):
        return f"upsample.{2 * int(match[1])}.{match[2]}"
    for pattern, ours in _RENAMED:
        if match := re.match(pattern, key):
            name = match.expand(ours) + key[match.end() :]
            return name.replace("attn.query_bias", "attn.q_bias").replace(
                "attn.value_bias", "attn.v_bias"
            )
    return key


def _window(request: Request, requested: Any) -> tuple[int, bool]:
    window = request.config.get("window_size") if requested is None else requested
    if window is None:
        raise NystraError(
            f"{request.source}: the window of Swin2SR cannot be read from its tensors: give the "
            "folder with its config.json, or `window_size` (8 in the published networks)"
        )
    trained = request.config.get("image_size", 64)
    for name, side in (("window_size", window), ("image_size", trained)):
        if type(side) is not int or side < 1:
            raise NystraError(f"{request.source}: {name} is {side!r:.40}, expected a whole number")
    if window > _LARGEST_WINDOW:
        raise NystraError(
            f"{request.source}: window_size is {window}, expected {_LARGEST_WINDOW} at most"
        )
    return min(window, trained), trained > window


def _window_buffers(state: State, window: int, *, shifted: bool) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deprecated calls of PyTorch
        swin2sr = importlib.import_module("spandrel.architectures.Swin2SR").Swin2SR
        of_two = swin2sr(
            img_size=2 * window if shifted else window,
            window_size=window,
            depths=[2],
            embed_dim=2,
            num_heads=[1],
            upsampler="",
        ).state_dict()
    buffers: dict[str, Tensor] = {}
    for key in state:
        if not key.endswith(".attn.logit_scale"):
            continue
        block = key.removesuffix(".attn.logit_scale")
        for name in _BUFFERS:
            example = of_two[f"layers.0.residual_group.blocks.0.attn.{name}"]
            buffers[f"{block}.attn.{name}"] = example
        if shifted and int(block.rpartition(".")[2]) % 2:
            buffers[f"{block}.attn_mask"] = of_two["layers.0.residual_group.blocks.1.attn_mask"]
    return buffers
