"""Exact attention is replaced only where the file's own nodes are measured to be slower."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from ...core.arrays import Array
from ...core.files.scratch import scratch_folder
from ...core.ports.port import picture_size
from ...models.facts import Facts
from ...runtime.session import Session
from ..attention.full.parameters import Full
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites
from .file_network import FileNetwork
from .network import Cut, Values
from .pieces import attach_fitting_bodies, rewritten
from .reading import opset_of

_SIDE = 128
"""Of the picture, where the file takes any."""

_ROUNDS, _SECONDS = 9, 2.0
"""The least runs of each, and for how long more are made."""

_MOST_ROUNDS = 30

_GAIN = 0.9
"""Of its seconds a piece by itself has to take no more than this share: in the whole file less is
gained, since onnxruntime joins a piece's own nodes with those around it."""


def keep_what_pays(
    network: FileNetwork,
    facts: Facts,
    resolved: Mapping[str, Mechanism],
    progress: Callable[[str], None],
) -> dict[str, Mechanism]:
    """Return a plan in which what does not pay has its reason; such sites are left in the file.

    Measured are pieces all of whose sites are planned to be exact: the file's nodes against those
    of nystra, with the library where there is one, in interleaved runs. Pieces of one kind that
    take the same sizes are measured once.

    Args:
        network: Of the file; notes what is left as it is.
        facts: Of it.
        resolved: Mechanism of every site.
        progress: Is called with what is measured.
    """
    network.left.clear()
    exact = [
        cut
        for cut in network.cuts.values()
        if all(isinstance(resolved[path], Full) for path in cut.sites)
    ]
    if not exact:
        return dict(resolved)
    wanted = {name for cut in exact for name in _needed(network, cut)[1]}
    wanted |= {name for cut in exact for name in cut.inputs}
    values = _values(network, facts, wanted)
    kinds: dict[str, list[Cut]] = {}
    for cut in exact:
        kinds.setdefault(_kind(network, cut, values), []).append(cut)
    planned = dict(resolved)
    for number, cuts in enumerate(kinds.values(), 1):
        progress(f"{number}/{len(kinds)} time the file's attention")
        reason = _reason(network, cuts[0], values, resolved)
        if reason:
            network.left.update((path, reason) for cut in cuts for path in cut.sites)
    paths = {path for cut in exact for path in cut.sites}
    if paths - network.left.keys():
        progress("time the file with its attention replaced")
        reason = _reason_of_all(network, facts, resolved, paths)
        network.left.update((path, reason) for path in paths - network.left.keys() if reason)
    for path, reason in network.left.items():
        planned[path] = replace(planned[path], reason=reason)
    return planned


def _reason_of_all(
    network: FileNetwork, facts: Facts, resolved: Mapping[str, Mechanism], paths: set[str]
) -> str:
    """Return why all exact pieces together do not pay, or "": the file is timed as a whole."""
    others = {path for cut in network.cuts.values() for path in cut.sites} - paths
    replaced = rewritten(network.source.model, network, resolved, {*network.left, *others}).model
    attach_fitting_bodies(replaced)
    feeds = {facts.inputs[0].name: _picture(network, facts).numpy()}
    ratio = _ratio(_interleaved([network.source.model, replaced], feeds))
    if ratio <= 1.0:
        return ""
    return (
        "as they are in the file: with equal nodes in their place the whole file was measured "
        f"{ratio:.2f} times as slow"
    )


def left_sentences(network: FileNetwork) -> list[str]:
    """Return one sentence for each reason why attention stays as it is in the file."""
    groups: dict[str, list[str]] = {}
    for path, reason in network.left.items():
        groups.setdefault(reason, []).append(path)
    return [f"{len(paths)} sites, {paths[0]} first, stay {why}" for why, paths in groups.items()]


def _reason(
    network: FileNetwork, cut: Cut, values: Values, resolved: Mapping[str, Mechanism]
) -> str:
    """Return why a piece stays as it is in the file, or ""."""
    own = _model_of(network, cut, values)
    others = {path for other in network.cuts.values() if other != cut for path in other.sites}
    replaced = rewritten(own, network, resolved, others).model
    attach_fitting_bodies(replaced)
    feeds = {name: values[name].numpy() for name in cut.inputs}
    seconds = _interleaved([own, replaced], feeds)
    ratio = _ratio(seconds)
    if ratio <= _GAIN:
        return ""
    return (
        f"as it is in the file: replaced by an equal node it was measured {ratio:.2f} times as "
        f"slow ({1e3 * min(seconds[1]):.2g} ms, the file's {1e3 * min(seconds[0]):.2g} ms)"
    )


def _ratio(seconds: Sequence[Sequence[float]]) -> float:
    """Return how many times the seconds of the first the second takes.

    It is the median of the turns or the ratio of the least seconds, whichever is larger: on a busy
    machine one of them alone may be anything.
    """
    first, second = seconds
    turns = statistics.median(b / max(a, 1e-12) for a, b in zip(first, second, strict=True))
    return max(turns, min(second) / max(min(first), 1e-12))


def _interleaved(
    models: Sequence[onnx.ModelProto], feeds: Mapping[str, Array]
) -> list[list[float]]:
    """Return seconds of runs of models, in turns."""
    with scratch_folder() as folder:
        sessions = []
        for number, model in enumerate(models):
            path = folder / f"{number}.onnx"
            path.write_bytes(model.SerializeToString())
            sessions.append(Session(path))
        for session in sessions:
            session.run(feeds)
        seconds: list[list[float]] = [[] for _ in sessions]
        begun = time.perf_counter()
        while len(seconds[0]) < _ROUNDS or (
            len(seconds[0]) < _MOST_ROUNDS and time.perf_counter() - begun < _SECONDS
        ):
            for session, own in zip(sessions, seconds, strict=True):
                start = time.perf_counter()
                session.run(feeds)
                own.append(time.perf_counter() - start)
        return seconds


def _values(network: FileNetwork, facts: Facts, wanted: set[str]) -> Values:
    """Return values of the file for a picture of a size that is worth measuring."""
    with torch.inference_mode():
        values = network.values(wanted, _picture(network, facts))
    return {name: value.contiguous() for name, value in values.items()}


def _picture(network: FileNetwork, facts: Facts) -> Tensor:
    """Return noise of the size that is timed, of the type that the file takes."""
    size = facts.sides or picture_size(facts.taken(_SIDE), facts.taken(_SIDE))
    random = torch.Generator().manual_seed(0)
    return torch.rand(facts.inputs[0].shape(size), generator=random).to(network.types[0])


def _needed(network: FileNetwork, cut: Cut) -> tuple[set[str], set[str]]:
    """Return the values that a piece of the file computes, and those that it takes."""
    givers = {name: node for node in network.graph.nodes for name in node.outputs}
    inside: set[str] = set()
    taken: set[str] = set()
    todo = [cut.output]
    while todo:
        name = todo.pop()
        if name in inside or name in taken:
            continue
        border = name in cut.inputs or name in network.folded or name not in givers
        if border and name != cut.output:
            taken.add(name)
            continue
        inside.add(name)
        todo += [given for given in givers[name].inputs if given]
    return inside, taken


def _model_of(network: FileNetwork, cut: Cut, values: Values) -> onnx.ModelProto:
    """Return the part of a file that a piece stands for; all else that it takes is constant."""
    inside, taken = _needed(network, cut)
    source = network.source.model
    nodes = [node for node in source.graph.node if inside.intersection(node.output)]
    initial = [
        numpy_helper.from_array(values[name].numpy(), name) for name in taken - set(cut.inputs)
    ]
    inputs = [_declared(name, values[name]) for name in cut.inputs]
    graph = helper.make_graph(
        nodes, "piece", inputs, [onnx.ValueInfoProto(name=cut.output)], initial
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset_of(source))])
    model.ir_version = max(source.ir_version, 8)
    return model


def _declared(name: str, value: Tensor) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.numpy().dtype)
    return helper.make_tensor_value_info(name, kind, list(value.shape))


def _kind(network: FileNetwork, cut: Cut, values: Values) -> str:
    """Return what the time of a piece depends on."""
    shapes = [tuple(values[name].shape) for name in cut.inputs]
    sites = {site.path: site.module for site in find_sites(network)}
    geometries = [getattr(sites[path], "geometry", None) for path in cut.sites]
    inside, _ = _needed(network, cut)
    operators = [n.operator for n in network.graph.nodes if inside.intersection(n.outputs)]
    return repr((shapes, geometries, operators))
