"""The supported architectures, as data: importing this module imports none of them.

One row per network; the first whose keys are all in the state dict is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.errors import CheckpointError, UnsupportedModelError
from ..core.installation import install_command

if TYPE_CHECKING:
    from .architecture import Architecture, State


UNSUPPORTED = {
    "DRCT": ("layers.0.swin1.attn.qkv.weight|layers.0.residual_group.swin1.attn.qkv.weight",),
    "Swin2SR": ("layers.0.residual_group.blocks.0.attn.logit_scale",),
    "DAT": ("before_RG.1.weight", "layers.0.blocks.0.*"),
    "Restormer": ("encoder_level1.0.attn.temperature", "decoder_level1.0.attn.temperature"),
    "SRFormer": (
        "layers.0.residual_group.blocks.0.attn.q.weight",
        "layers.0.residual_group.blocks.0.attn.kv.weight",
    ),
    "SCUNet": ("m_body.0.trans_block.msa.relative_position_params",),
    "GRL": ("layers.0.blocks.0.attn.window_attn.attn_transform.logit_scale",),
    "NAFNet": ("intro.weight", "ending.weight"),
    "SPAN": ("block_1.c1_r.*", "conv_cat.weight"),
    "RRDBNet (ESRGAN, Real-ESRGAN)": (
        "body.0.rdb1.conv1.weight|RRDB_trunk.0.RDB1.conv1.weight|*1.sub.0.RDB1.conv1.0.weight",
    ),
}
"""Name -> patterns of its keys, as in the rows of the registry."""

FOREIGN = "spandrel"
"""The row of the networks that the library spandrel reads; facts have ``spandrel:DRCT``."""

MORE = "spandrel_extra_arches"
"""The package of spandrel's architectures whose licenses restrict their use."""

OTHERWISE = (
    "Your own network: give its code as `module` FILE.py:CALLABLE; or export it to ONNX with "
    "another program: nystra run, bench and serve accept such files; see docs/own.md"
)
"""The advice if no network is known for a checkpoint."""

_SIMILAR = 0.5  # the weighted share of its keys from which on a row is named in messages
_SHOWN_KEYS, _SHOWN_LETTERS = 3, 60


@dataclass(frozen=True)
class RegistryRow:
    """One architecture.

    Attributes:
        name: As in ``Facts.architecture``.
        keys: Patterns of the keys of its state dicts: each must match one; ``|`` separates
            alternatives. Without patterns ``Architecture.recognizes`` decides.
        module: Has ``ARCHITECTURE``; imported on use.
        without: Patterns of keys of another network that has all of these keys and more.
    """

    name: str
    keys: tuple[str, ...]
    module: str
    without: tuple[str, ...] = ()

    def architecture(self) -> Architecture:
        """Import the loading code of this architecture."""
        loaded: Architecture = importlib.import_module(self.module, __package__).ARCHITECTURE
        return loaded

    def matches(self, state: State) -> bool:
        """Whether a state dict belongs to this architecture."""
        if self.keys:
            more = any(_present(pattern, state) for pattern in self.without)
            return not more and all(_any_present(pattern, state) for pattern in self.keys)
        recognizes = self.architecture().recognizes
        return recognizes is not None and recognizes(state)


ARCHITECTURES = (
    RegistryRow(
        "hat",
        (
            "conv_first.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.weight",
            "layers.0.residual_group.blocks.0.conv_block.cab.0.weight",
            "layers.0.residual_group.overlap_attn.qkv.weight",
            "norm.weight",
        ),
        ".hat.checkpoint",
    ),
    RegistryRow(
        "swinir",
        (
            "conv_first.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.weight",
            "layers.0.residual_group.blocks.0.mlp.fc1.weight",
            "norm.weight",
            "conv_last.weight|upsample.0.weight",
        ),
        ".swinir.checkpoint",
        without=("layers.*.overlap_attn.*",),  # HAT has all of its keys
    ),
    RegistryRow(
        "uformer",
        (
            "input_proj.proj.0.weight",
            "encoderlayer_0.blocks.0.norm1.weight",
            "dowsample_0.conv.0.weight",
            "conv.blocks.0.norm1.weight",
            "output_proj.proj.0.weight",
        ),
        ".uformer.checkpoint",
    ),
    RegistryRow(
        "sst",
        (
            "body.0.0.norm_attn.weight",
            "body.0.0.attn.to_qkv.weight",
            "body.0.0.ffn.agg.weight",
            "proj.weight",
            "upsampler.up_conv.weight|upsampler.f.0.weight",
        ),
        ".sst.checkpoint",
    ),
    RegistryRow(
        "esc",
        (
            "plk_filter|lk_spatial",
            "blocks.0.convffns.0.aggr.weight",
            "blocks.0.pconvs.0.plk.dwc_proj.1.weight|blocks.0.pconvs.0.plk.proj.1.weight",
            "blocks.0.attn.to_qkv.weight",
            "blocks.0.conv_out.weight",
        ),
        ".esc.checkpoint",
    ),
    RegistryRow(
        "dehazeformer",
        (
            "patch_embed.proj.weight",
            "layer1.blocks.0.mlp.mlp.0.weight",
            "patch_merge1.proj.weight",
            "fusion2.mlp.0.weight",
            "patch_unembed.proj.0.weight",
        ),
        ".dehazeformer.checkpoint",
    ),
    RegistryRow(
        "rvrt",
        (
            "spynet.mean",
            "backbone.backward_1.main.1.weight",
            "deform_align.backward_1.proj_q.1.weight",
            "reconstruction.main.1.weight",
            "upsampler.0.weight",
        ),
        ".rvrt.checkpoint",
    ),
    RegistryRow(
        "vit",
        (
            "embedding.patch_embeddings.projection.weight|patch_embed.proj.weight|conv_proj.weight",
            "embedding.position_embeddings|pos_embed|encoder.pos_embedding",
            "encoder.blocks.0.layernorm_1.weight|blocks.0.norm1.weight|encoder.layers.*_0.ln_1.weight",
            "encoder.blocks.0.mlp.dense_1.weight|blocks.0.mlp.fc1.weight|encoder.layers.*_0.mlp.*",
            "classifier.weight|head.weight|heads.head.weight",
        ),
        ".vit.checkpoint",
    ),
    RegistryRow(
        "csnln",
        (
            "SEM.multi_source_projection.up_attention.conv_match_1.0.weight",
            "SEM.multi_source_projection.down_attention.conv_match1.0.weight",
            "SEM.multi_source_projection.upsample.0.weight",
            "tail.0.weight",
        ),
        ".csnln.checkpoint",
    ),
    RegistryRow(
        "contextual_attention",
        (
            "coarse_generator.conv1.conv.weight",
            "coarse_generator.conv10_atrous.conv.weight",
            "fine_generator.pmconv10.conv.weight",
            "fine_generator.allconv17.conv.weight",
        ),
        ".contextual_attention.checkpoint",
    ),
    RegistryRow(
        "colorization",
        ("embed.weight", "embed_color.weight", "project.weight"),
        ".colorization.checkpoint",
    ),
    RegistryRow(FOREIGN, (), ".spandrel.checkpoint"),  # last: our own networks first
)

OWN = RegistryRow("own", (), ".own.checkpoint")
"""The user's own module, given by name and never detected; facts have ``own:MyNet``."""

GRAPH = RegistryRow("onnx", (), OWN.module)
"""An ONNX file of another program, which is no checkpoint: as a module of the user."""


def is_own(architecture: str) -> bool:
    """Return whether the facts' name of an architecture is that of a user's own module."""
    return architecture.startswith(f"{OWN.name}:")


def find_missing(patterns: Collection[str], keys: Collection[str]) -> list[str]:
    """Return the patterns that no key matches."""
    return [pattern for pattern in patterns if not _any_present(pattern, keys)]


def _any_present(pattern: str, keys: Collection[str]) -> bool:
    return any(_present(choice, keys) for choice in pattern.split("|"))


def _present(pattern: str, keys: Collection[str]) -> bool:
    if "*" not in pattern:
        return pattern in keys
    return any(fnmatchcase(key, pattern) for key in keys)


def recognize(state: State) -> bool:
    """Whether a state dict belongs to one of nystra's own networks."""
    return any(row.matches(state) for row in ARCHITECTURES if row.keys)


def read_by_another(state: State) -> bool:
    """Whether a library in the table reads a state dict."""
    return any(row.matches(state) for row in ARCHITECTURES if not row.keys)


def nearness(state: State) -> float:
    """Return the share of the keys of the nearest row that a state dict has, 0 to 1."""
    return max(_nearness(row, state) for row in ARCHITECTURES if row.keys)


def row_named(name: str) -> RegistryRow:
    """Return the row of an architecture, by its name or that of one of spandrel's.

    Raises:
        UnsupportedModelError: There is none; the message lists the supported ones.
    """
    for row in (*ARCHITECTURES, OWN, GRAPH):
        if row.name == str(name).partition(":")[0]:
            return row
    raise UnsupportedModelError(
        f"architecture {name!r:.80} is unknown; supported are: {_list_architectures()}; "
        "see docs/networks.md"
    )


def find_architecture(state: State, name: str | None = None) -> RegistryRow:
    """Return the row of a state dict.

    Args:
        state: The tensors by key.
        name: Name of the architecture, if the file or the caller states it.

    Raises:
        UnsupportedModelError: None matches, or the name is unknown. The message describes the keys,
            or names the most similar row and the missing keys.
        CheckpointError: The keys do not fit the named architecture.
    """
    if name is not None:
        row = row_named(name)
        lacking = find_missing(row.keys, state)
        if lacking:
            raise CheckpointError(
                f"the architecture is given as {name}, but the file has no "
                f"{_alternatives(lacking)}. {likeness(state)}"
            )
        return row
    foreign = _foreign(state) is not None
    for row in ARCHITECTURES:
        if not (foreign and row.keys) and row.matches(state):
            return row
    raise UnsupportedModelError(
        f"no known architecture: {likeness(state)}; {_try_elsewhere()}. {OTHERWISE}"
    )


def _foreign(state: State) -> str | None:
    return next((name for name, keys in UNSUPPORTED.items() if not find_missing(keys, state)), None)


def likeness(state: State) -> str:
    """Describe a state dict that matches no row."""
    foreign = _foreign(state)
    if foreign is not None:
        return f"its keys look like those of {foreign}, which nystra does not support"
    scores = {row: _nearness(row, state) for row in ARCHITECTURES if row.keys}
    nearest = max(scores, key=lambda row: scores[row])
    if scores[nearest] == 1:
        return f"its keys are those of {nearest.name}"
    if scores[nearest] >= _SIMILAR:
        return (
            f"the nearest is {nearest.name}, but the file has no "
            f"{_alternatives(find_missing(nearest.keys, state))}: it may be a part or a variant of "
            "that network"
        )
    keys = ", ".join(key[:_SHOWN_LETTERS] for key in list(state)[:_SHOWN_KEYS])
    return f"its {len(state)} keys ({keys}, ...) are not those of {_list_architectures()}"


def _nearness(row: RegistryRow, state: State) -> float:
    """Return the share of a row's keys that a state dict has, 0 to 1.

    A key counts by the number of names in it: ``norm.weight`` is in many networks, a layer's
    attention in few.
    """
    missing = find_missing(row.keys, state)
    return 1 - sum(map(_count_names, missing)) / sum(map(_count_names, row.keys))


def _count_names(pattern: str) -> int:
    return max(choice.count(".") for choice in pattern.split("|"))


def _try_elsewhere() -> str:
    if find_spec(FOREIGN) is None:
        return f"{FOREIGN}, which reads many others, is not installed: {install_command(FOREIGN)}"
    if find_spec(MORE) is None:
        return f"{FOREIGN} does not read it either ({MORE}, which reads more, is not installed)"
    return f"neither {FOREIGN} nor {MORE} reads it"


def _alternatives(patterns: Collection[str]) -> str:
    return ", ".join(pattern.replace("|", " or ") for pattern in patterns)


def _list_architectures() -> str:
    return ", ".join(row.name for row in ARCHITECTURES if row.keys)
