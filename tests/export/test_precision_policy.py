"""The precision policy of an architecture: the graph and the fake-quantized network follow it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import nn

from nystra.core.errors import UnsupportedModelError
from nystra.export.graph.policies import find_precision_policy
from nystra.export.graph.precision.choice import choose_nodes
from nystra.export.graph.precision.lowering import lower_model
from nystra.export.validate.fake_quantized import round_network
from nystra.models.architecture import Architecture, PrecisionPolicy
from nystra.models.registry import ARCHITECTURES
from nystra.models.rvrt.network import RVRT
from nystra.models.swinir import checkpoint as swinir
from small_graphs import small, types
from studies.precision.small import RVRT_HYPER

POLICY = PrecisionPolicy(modules={"flow.*": "it points"})


def test_every_shipped_architecture_says_what_low_precision_does_to_it() -> None:
    for row in ARCHITECTURES:
        if row.architecture().precision is not None:
            assert find_precision_policy(row.name, "fp16").keep == {}
    with pytest.raises(UnsupportedModelError, match="architecture 'dat' is unknown"):
        find_precision_policy("dat", "fp16")


def test_a_precision_that_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swinir, "ARCHITECTURE", Architecture(swinir.load))
    with pytest.raises(UnsupportedModelError, match="was not measured for swinir"):
        find_precision_policy("swinir", "fp16")


def test_what_a_policy_keeps_or_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose_nodes(small(), "fp16", {"Conv": "because"})
    assert chosen.reasons == {"first": "because", "last": "because"}
    refusing = Architecture(swinir.load, PrecisionPolicy(refused={"fp16": "it goes black"}))
    monkeypatch.setattr(swinir, "ARCHITECTURE", refusing)
    with pytest.raises(UnsupportedModelError, match="swinir in fp16 is not safe: it goes black"):
        find_precision_policy("swinir", "fp16")


@pytest.mark.parametrize("known_by", ["weight", "bias"])
def test_the_layers_of_a_module_stay_exact_in_the_graph(known_by: str) -> None:
    model = small()
    place = {"weight": 1, "bias": 2}[known_by]
    name = f"flow.conv.{known_by}"
    tensor = onnx.TensorProto()
    tensor.CopyFrom(next(t for t in model.graph.initializer if t.name == ("w0", "b0")[place - 1]))
    tensor.name = name
    model.graph.initializer.append(tensor)
    model.graph.node[0].input[place] = name
    done = lower_model(model, "fp16", POLICY, [{"x": np.zeros((1, 4, 6, 6), np.float32)}])
    assert set(done.reasons.values()) == {"it points"}
    assert types(model)["first"] == TensorProto.FLOAT
    assert types(model)["last"] == TensorProto.FLOAT16


def test_the_layers_of_a_module_stay_exact_when_fake_quantized() -> None:
    network = nn.ModuleDict({"flow": nn.Sequential(nn.Linear(4, 4)), "rest": nn.Linear(4, 4)})
    copied, x = round_network(network, "fp16", POLICY), torch.rand(5, 4)
    assert torch.equal(copied["flow"](x), network["flow"](x))
    assert not torch.equal(copied["rest"](x), network["rest"](x))


def test_flows_and_places_of_rvrt_stay_exact() -> None:
    """float16 has 11 bits; 20 pixels take five of them."""
    policy = find_precision_policy("rvrt", "fp16")
    with torch.device("meta"):
        network = RVRT(**RVRT_HYPER)
    layers = [path for path, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    exact = {path for path in layers if policy.exact(path)}
    assert exact == {path for path in layers if "spynet" in path or "conv_offset" in path}
    assert len(exact) == 6 * 5 + 4 * 6
