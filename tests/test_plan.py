"""Plans and sites: reading, writing, resolving, swapping."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nystra.export.attention.mechanism import SiteParameters
from nystra.export.attention.plan import Plan, parse_landmarks, parse_plan, read_plan
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.export.fidelity import measure_fidelity
from nystra.export.torch_backend import TorchBackend
from nystra.models.swinir.network import SwinIR
from nystra.plugins.errors import NystraError
from test_checkpoint import tiny

FIRST = "layers.0.residual_group.blocks.0.attn"
SECOND = "layers.0.residual_group.blocks.1.attn"


def network(**more: Any) -> SwinIR:
    torch.manual_seed(1)
    return SwinIR(**tiny(**more)).eval()


@pytest.mark.parametrize(
    ("text", "grid"),
    [("16", (4, 4)), ("8", (2, 4)), ("32", (4, 8)), ("3x5", (3, 5)), ("7", (1, 7))],
)
def test_landmarks(text: str, grid: tuple[int, int]) -> None:
    assert parse_landmarks(text) == grid


def test_a_plan_survives_its_json() -> None:
    plan = Plan(
        SiteParameters("nystra", (2, 4), 3, "batch", 4.0, 0.0, "none"),
        {FIRST: SiteParameters("full")},
        (8, 8),
        "abc",
    )
    again = parse_plan(json.loads(json.dumps(plan.as_dict())))
    assert again.default == plan.default
    assert again.at(FIRST).mechanism == "full"
    assert again.window == (8, 8)
    assert again.source_sha256 == "abc"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "not a JSON object"),
        ({"schema_version": 2}, "this nystra reads 1"),
        ({"schema_version": 1, "default": {"landmark": 3}}, "unknown key 'landmark' in default"),
        ({"schema_version": 1, "default": {"iterations": "6"}}, "not of type int"),
        ({"schema_version": 1, "default": {"iterations": True}}, "not of type int"),
        ({"schema_version": 1, "default": {"landmarks": 16}}, r"is not \[rows, columns\]"),
        ({"schema_version": 1, "default": {"mechanism": "magic"}}, "mechanism 'magic' is not"),
        ({"schema_version": 1, "sites": []}, "'sites' is not an object"),
        ({"schema_version": 1, "sites": {"a": {"mask": "x"}}}, "mask 'x' is not regions or none"),
    ],
)
def test_bad_plans(document: Any, message: str) -> None:
    with pytest.raises(NystraError, match=message):
        parse_plan(document)


def test_unreadable_plans(tmp_path: Path) -> None:
    with pytest.raises(NystraError, match="cannot be read"):
        read_plan(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(NystraError, match="is not JSON"):
        read_plan(tmp_path / "a.json")


def test_unknown_sites_are_refused() -> None:
    plan = Plan(sites={"layers.7": SiteParameters("nystra")})
    with pytest.raises(NystraError, match=r"1 sites that the network does not have.*'layers.7'"):
        resolve(plan, network())


@pytest.mark.parametrize(
    ("window", "landmarks", "mask", "reason"),
    [
        (7, (4, 4), "regions", "cuts a landmark cell"),
        (8, (1, 1), "regions", "cuts a landmark cell"),
        (4, (5, 5), "none", "more landmarks than rows"),
        (8, (2, 2), "regions", ""),
        (7, (4, 4), "none", ""),
    ],
)
def test_undefined_sites_keep_full_attention(
    window: int, landmarks: tuple[int, int], mask: str, reason: str
) -> None:
    plan = Plan(SiteParameters("nystra", landmarks, mask=mask))
    resolved = resolve(plan, network(window_size=window))
    assert resolved[SECOND].mechanism == ("full" if reason else "nystra")
    assert reason in resolved[SECOND].reason


def test_swapping_leaves_the_network_alone() -> None:
    whole = network(window_size=8)
    image = torch.rand(1, 3, 16, 16)
    before = whole(image)
    twin = swap(whole, resolve(Plan(SiteParameters("nystra", (2, 2))), whole))
    assert torch.equal(whole(image), before)
    assert not torch.allclose(twin(image), before, atol=1e-6)
    assert list(twin.state_dict()) == list(whole.state_dict())
    assert twin.norm.weight.data_ptr() == whole.norm.weight.data_ptr()


@pytest.mark.parametrize("mechanism", ["full", "nystra", "nystromformer"])
def test_operator_form_equals_plain_form(mechanism: str) -> None:
    whole = network(window_size=8)
    resolved = resolve(Plan(SiteParameters(mechanism, (2, 2))), whole)
    image = torch.rand(2, 3, 19, 13)
    torch.testing.assert_close(
        swap(whole, resolved, "operator")(image), swap(whole, resolved)(image), atol=1e-5, rtol=0
    )


def test_result_does_not_depend_on_the_batch_unless_asked_to() -> None:
    whole = network(window_size=8).double()  # float32's rounding differs with the batch
    with torch.no_grad():  # sharper attention, so that the start value matters
        for site in find_sites(whole):
            site.module.qkv.weight.mul_(4)
    image = torch.rand(3, 3, 16, 24, dtype=torch.float64)

    def alone(init: str) -> float:
        parameters = SiteParameters("nystra", (2, 2), iterations=2, init=init, guard=0.0)
        twin = swap(whole, resolve(Plan(parameters), whole))
        with torch.no_grad():
            return float((twin(image)[1:2] - twin(image[1:2])).abs().max())

    assert alone("matrix") < 1e-9
    assert alone("batch") > 1e-4


@pytest.mark.parametrize(("mechanism", "runs"), [("full", 0), ("nystromformer", 3)])
def test_full_attention_is_not_compared_with_itself(
    mechanism: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(window_size=8)
    asked = []
    run = TorchBackend.run
    monkeypatch.setattr(TorchBackend, "run", lambda *given: asked.append(given) or run(*given))
    picture = {"input": np.random.default_rng(0).random((1, 3, 16, 16), np.float32)}
    plan = resolve(Plan(SiteParameters(mechanism, (2, 2))), model)
    fidelity = measure_fidelity(model, plan, {"noise": picture})
    assert len(asked) == runs  # exact, planned, exact without the position bias
    assert (fidelity.mean == float("inf")) == (mechanism == "full")
    assert len(fidelity.sites) == (0 if mechanism == "full" else len(plan))
