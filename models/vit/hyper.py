"""Reads the hyper-parameters of a vision transformer from a state dict."""

from __future__ import annotations

from ..architecture import Hyper, State
from ..checkpoints.construction import shape_of

_SITE = "encoder.blocks.0.attention."


def vit_hyper(state: State) -> Hyper:
    """Return the hyper-parameters in the tensors; image_size, and usually the heads, are not.

    Raises:
        CheckpointError: The tensors that they are read from are missing or of another rank.
    """
    patches = shape_of(state, "embedding.patch_embeddings.projection.weight", 4)
    stem = "embedding.backbone.0.weight"
    classes, width = shape_of(state, "classifier.weight", 2)
    hidden, _ = shape_of(state, "encoder.blocks.0.mlp.dense_1.weight", 2)
    class_token = "embedding.cls_token" in state
    return {
        "patch_size": patches[2],
        "num_channels": shape_of(state, stem, 4)[1] if stem in state else patches[1],
        "stem": "convolutions" if stem in state else "patches",
        "num_classes": classes,
        "hidden_size": width,
        "intermediate_size": hidden,
        "depth": _depth(state),
        "qkv_bias": f"{_SITE}qkv_projection.bias" in state,
        "output_projection": f"{_SITE}output_projection.weight" in state,
        "class_token": class_token,
        "pool": "class" if class_token else "mean",
        "norm": "tokens" if "layernorm.weight" in state else "none",
        **_attention(state, width),
    }


def _depth(state: State) -> int:
    depth = 0
    while f"encoder.blocks.{depth}.layernorm_1.weight" in state:
        depth += 1
    return depth


def _attention(state: State, width: int) -> Hyper:
    if f"{_SITE}E_K" in state:
        matrix = state[f"{_SITE}E_K"]
        shared = matrix.dim() == 2
        rank, length = shape_of(state, f"{_SITE}E_K", 2 if shared else 3)[-2:]
        lengths = {"linformer_k": rank, "linformer_length": length, "linformer_shared": shared}
        heads = {} if shared else {"num_heads": matrix.shape[0]}
        return {"attention": "linformer", **lengths, **heads}
    features = f"{_SITE}attn_fn.projection_matrix"
    if features in state:
        count, size = shape_of(state, features, 2)
        return {"attention": "performer", "rp_dim": count, "num_heads": width // size}
    convolution = f"{_SITE}conv.weight"
    if convolution in state:
        count, _, taps, _ = shape_of(state, convolution, 4)
        return {"attention": "nystromformer", "conv_kernel_size": taps, "num_heads": count}
    return {}
