"""The source of a model file: a network, and the mechanism of each of its sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from torch import nn

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata
from ...core.ports.port import Shape
from ...models.loading import LoadedModel
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan, decode_plan
from ..attention.site import find_sites, neutral, resolve, swap
from .file_type import ARCHITECTURE
from .network import load_for
from .with_preprocessing import with_preprocessing


@dataclass(frozen=True)
class Source:
    """The source of a model file.

    Attributes:
        loaded: The checkpoint, at the file's window; if the file prepares images itself, the
            network does too.
        resolved: Mechanism of every site, by path.
    """

    loaded: LoadedModel
    resolved: Mapping[str, Mechanism]

    @property
    def reference(self) -> str:
        """What a file is compared with, for messages."""
        return "the file" if self.loaded.facts.architecture == ARCHITECTURE else "PyTorch"

    def with_plan(self) -> nn.Module:
        """Return the network with the file's plan."""
        return swap(self.loaded.network, self.resolved)

    def exact(self) -> nn.Module:
        """Return the network with the attention it was trained with."""
        return swap(self.loaded.network, neutral(self.loaded.network))


def load_source(
    path: Path,
    metadata: Mapping[str, str],
    checkpoint: Path,
    hyper: Mapping[str, Any],
) -> Source:
    """Load the checkpoint of a model file.

    Args:
        path: The model file.
        metadata: Its metadata.
        checkpoint: Its checkpoint.
        hyper: Hyper-parameters that the checkpoint does not state.

    Raises:
        NystraError: The file has no plan, or was exported from another checkpoint.
    """
    stated = ModelMetadata.read(metadata)
    if stated.attention is None:
        raise NystraError(f"{path} has no plan: it was not written by nystra-export")
    plan = decode_plan(stated.attention, f"the plan in {path}")
    loaded = load_for(checkpoint, plan, hyper)
    if plan.source_sha256 != loaded.checkpoint.sha256:
        raise NystraError(
            f"{path} was exported from another checkpoint: sha256 {plan.source_sha256}, "
            f"{checkpoint} has {loaded.checkpoint.sha256}"
        )
    loaded = _with_sites(path, plan, loaded)
    if stated.preprocessing is not None and stated.preprocessing.in_graph:
        loaded = with_preprocessing(loaded)
    return Source(loaded, resolve(plan, loaded.network, loaded.unserved))


def _with_sites(path: Path, plan: Plan, loaded: LoadedModel) -> LoadedModel:
    """Return the network of a file with the sites that its plan names.

    Where they are in no graph of free sides, they are those of the size that the file is of.
    """
    if not plan.sites or find_sites(loaded.network):
        return loaded
    from .module_sites import with_found_sites

    with_sites = with_found_sites(loaded)
    paths = {site.path for site in find_sites(with_sites.network)}
    if plan.sites.keys() <= paths:
        return with_sites
    shape = _read_fixed_shape(path, loaded.facts.inputs[0].name)
    if shape is None:
        return with_sites
    fixed = replace(loaded, facts=loaded.facts.fix_lengths(shape))
    return with_found_sites(fixed)


def _read_fixed_shape(path: Path, name: str) -> Shape | None:
    graph = onnx.load(str(path), load_external_data=False).graph
    inputs = [value for value in graph.input if value.name == name]
    first = inputs[0] if inputs else None
    if first is None:
        return None
    lengths = tuple(dim.dim_value for dim in first.type.tensor_type.shape.dim)
    return lengths if all(lengths) else None
