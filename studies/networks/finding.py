"""Which attention is found in networks and replaced, and whether the results are equal."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from nystra.core.errors import NystraError
from nystra.export.attention.site import find_sites
from nystra.export.differences import relative_difference
from nystra.export.load.images import validation_sizes
from nystra.export.load.module_sites import find_sited_graph
from nystra.export.rewrite.attention_search import SearchResult
from nystra.export.rewrite.graph_network import GraphNetwork
from nystra.export.tracing.trace_fault import trace_fault
from nystra.models.facts import Facts
from nystra.models.loading import LoadedModel, load
from nystra.models.sizes.given import copy_sharing_weights
from studies.networks.children import Outcome, short
from studies.networks.others import OTHERS, PLAIN, sharpened, toys
from studies.networks.small import SMALL, build

RESULTS = Path(__file__).with_name("found.json")


def names() -> list[str]:
    """Return the networks in which attention is looked for, as LIBRARY/NETWORK."""
    return [*PLAIN, *OTHERS, *toys()]


def outcome_of(name: str) -> Outcome:
    """Return what is found in a network."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _found(_loaded(name, Path(folder)))
        except NystraError as error:
            return {"failed": short(error)}
        except Exception as error:  # a fault of ours: it is to stand in the table
            return {"failed": f"{type(error).__name__}: {short(error)}"}


def _loaded(name: str, folder: Path) -> LoadedModel:
    """Return a network as nystra loads it, without sites."""
    library, _, kind = name.partition("/")
    other = ({**PLAIN, **OTHERS, **toys()})[name]
    if library == "spandrel" and other.side is None:
        path = folder / "small.pth"
        torch.save({"params": sharpened(build(kind)).state_dict()}, path)
        loaded = load(path, **SMALL[kind].hyper)
        if not find_sites(loaded.network):
            return loaded
    return load(other.network())


def _found(loaded: LoadedModel) -> Outcome:
    network, facts = loaded.network, loaded.facts
    outcome: Outcome = {"torch": torch.__version__}
    size = facts.sides or validation_sizes(facts)[0]
    inputs = tuple(torch.rand(port.shape(size)) for port in facts.inputs)
    outcome["softmaxes"] = softmaxes(network, inputs)
    if not outcome["softmaxes"]:
        return outcome
    begun = time.process_time()
    (sited, found), facts, why = _searched(loaded)
    outcome["seconds"] = round(time.process_time() - begun, 1)
    outcome["any_size"] = facts.sides is None
    if why:
        outcome["why"] = why
    levels = Counter(attention.level for attention in found.attentions)
    outcome |= {"map": levels["map"], "tokens": levels["tokens"]}
    outcome["reasons"] = dict(
        Counter(f"{a.level}: {a.reason}" for a in found.attentions if a.reason)
    )
    outcome["differences"] = _differences(network, sited, facts)
    return outcome


def _searched(loaded: LoadedModel) -> tuple[tuple[GraphNetwork, SearchResult], Facts, str]:
    """Return what is found, for any size where that can be; else for one, and why."""
    facts = loaded.facts
    if facts.sides is not None:
        return find_sited_graph(loaded, facts), facts, ""
    try:
        return find_sited_graph(loaded, facts), facts, ""
    except Exception as error:  # whatever a tracer raises
        side = 2 * facts.cell
        fixed = facts.fix_lengths((1, facts.input_channels, side, side))
        return find_sited_graph(loaded, fixed), fixed, trace_fault(error)


def _differences(network: nn.Module, sited: GraphNetwork, facts: Facts) -> dict[str, float]:
    """Return by how much the graph differs from the network, of the largest value, size by size."""
    differences = {}
    for size in [{}] if facts.sides is not None else validation_sizes(facts):
        inputs = tuple(torch.rand(port.shape(size)) for port in facts.inputs)
        with torch.no_grad():
            expected = copy_sharing_weights(network)(*inputs)
            outputs = expected if isinstance(expected, tuple) else (expected,)
            text = "x".join(map(str, inputs[0].shape[2:]))
            differences[text] = relative_difference(sited.with_sites(inputs), outputs)
    return differences


class _Softmaxes(TorchDispatchMode):
    """Counts the softmaxes of a run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator."""
        name = str(func)
        self.count += "_softmax" in name or "scaled_dot_product" in name
        return func(*args, **(kwargs or {}))


def softmaxes(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Return how many softmaxes a network computes in a run."""
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), _Softmaxes() as counted:
        copy_sharing_weights(network)(*(tensor.clone() for tensor in inputs))
    return counted.count
