"""Plans and sites: reading, writing, resolving, swapping."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nystra.core.errors import NystraError
from nystra.export import ExportOptions
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.nystra.parameters import Nystra
from nystra.export.attention.nystromformer.parameters import Nystromformer
from nystra.export.attention.plan import Plan, parse_plan, read_plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.export.pytorch.network_session import NetworkSession
from nystra.export.validate.fidelity import measure_fidelity
from nystra.models.swinir.network import SwinIR
from small_swinir import tiny

NYSTRA = {"mechanism": "nystra"}
FIRST = "layers.0.residual_group.blocks.0.attn"
SECOND = "layers.0.residual_group.blocks.1.attn"


def network(**more: Any) -> SwinIR:
    torch.manual_seed(1)
    return SwinIR(**tiny(**more)).eval()


def test_a_plan_survives_its_json() -> None:
    plan = Plan(
        Nystra((2, 4), 3, "batch", 4.0, 0.0, mask="none"),
        {FIRST: mechanism("full")},
        (8, 8),
        "abc",
    )
    again = parse_plan(json.loads(json.dumps(plan.as_dict())))
    assert again.default == plan.default
    assert again.at(FIRST).name == "full"
    assert again.window == (8, 8)
    assert again.source_sha256 == "abc"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"the plan is \[\], expected an object"),
        ({"schema_version": 2}, "schema_version 2, expected 1"),
        (
            {"schema_version": 1, "default": {"landmark": 3}},
            "default: unknown key 'landmark'; full has mask",
        ),
        (
            {"schema_version": 1, "default": NYSTRA | {"iterations": "6"}},
            "expected a whole number from 1 to 8",
        ),
        (
            {"schema_version": 1, "default": NYSTRA | {"iterations": True}},
            "expected a whole number from 1 to 8",
        ),
        (
            {"schema_version": 1, "default": NYSTRA | {"landmarks": 16}},
            "expected rows and columns of 1 to 64",
        ),
        ({"schema_version": 1, "default": {"mechanism": "magic"}}, "mechanism 'magic' is unknown"),
        ({"schema_version": 1, "sites": []}, "'sites' is not an object"),
        (
            {"schema_version": 1, "sites": {"a": {"mask": "x"}}},
            "site a: `mask` is 'x', expected regions or none",
        ),
    ],
)
def test_bad_plans(document: Any, message: str) -> None:
    with pytest.raises(NystraError, match=message):
        parse_plan(document)


def test_unreadable_plans(tmp_path: Path) -> None:
    with pytest.raises(NystraError, match="cannot read the plan"):
        read_plan(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(NystraError, match="is not valid JSON"):
        read_plan(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested more than 64 levels deep"),
        ('{"schema_version": ' + "1" * 5000 + "}", "a whole number of 5000 digits"),
        (
            '{"schema_version": 1, "default": {"mechanism": "nystra", "guard": NaN}}',
            "number is NaN",
        ),
        ('{"schema_version": 1, "default": {"mechanism": "nystra", "guard": 1e400}}', "too large"),
        (
            '{"schema_version": 1, "default": {"mechanism": "nystra", "guard": 1'
            + "0" * 400
            + "}}",
            "a whole number of 401 digits",
        ),
        (
            '{"schema_version": 1, "window": [1000000, 8]}',
            "`window` is 1000000, expected a whole number",
        ),
        ('{"schema_version": 1, "window": [8]}', r"is neither \[rows, columns\]"),
        ('{"schema_version": 1, "window": [2, 2, 2, 8]}', r"or \[frames, rows, columns\]"),
        ('{"schema_version": 1, "default": {"mechanism": ["full"]}}', "is not a string"),
        ('{"schema_version": 1, "source_sha256": 3}', "source_sha256 3 is not a string"),
        (
            '{"schema_version": 1, "default": {"landmarks": [2, 2]}}',
            "does not apply to full: it is",
        ),
    ],
)
def test_hostile_plans(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(NystraError, match=message) as raised:
        read_plan(tmp_path / "a.json")
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("window", [(8, 16), (2, 8, 8)])
def test_windows_of_two_and_three_sides(window: tuple[int, ...]) -> None:
    assert parse_plan(json.loads(json.dumps(Plan(window=window).as_dict()))).window == window


def test_what_is_no_regular_file_is_no_plan(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(NystraError, match="expected a regular file"):
            read_plan(tmp_path / name)


def test_a_site_takes_from_the_default_what_both_have() -> None:
    document = {
        "schema_version": 1,
        "default": {"mechanism": "nystra", "landmarks": [2, 3], "guard": 0.1, "mask": "none"},
        "sites": {"a": {"mechanism": "nystromformer", "iterations": 2}, "b": {"guard": 0.2}},
    }
    plan = parse_plan(document)
    assert plan.at("a") == Nystromformer((2, 3), 2, mask="none")
    assert plan.at("b") == Nystra((2, 3), guard=0.2, mask="none")


@pytest.mark.parametrize(
    ("tokens", "landmarks", "pays"),
    # Measured on one thread with AVX-512 and heads of 10 and 30: 1.1 to 1.4 times the time of
    # exact attention, 0.8 to 0.99, 3 to 4.5; 0.4, 0.7 at window 16
    [(64, (4, 4), False), (64, (2, 4), True), (64, (4, 8), False), (256, (4, 4), True),
     (256, (4, 8), True), (256, (8, 8), False)],
)  # fmt: skip
def test_where_landmarks_cannot_pay(tokens: int, landmarks: tuple[int, int], pays: bool) -> None:
    for name in ("nystra", "nystromformer"):
        why = mechanism(name, landmarks=landmarks).why_not_faster(tokens)
        assert (why == "") is pays, why
        assert pays or why == f"{tokens} tokens, {landmarks[0] * landmarks[1]} landmarks"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExportOptions("full"),
        lambda: ExportOptions(None),
        lambda: Plan("full"),
        lambda: Plan(sites={"a": "full"}),
        lambda: Plan(default=Full),
    ],
)
def test_the_name_of_a_mechanism_is_no_plan(make: Any) -> None:
    with pytest.raises(
        NystraError, match=r"expected a (Plan or AutoOptions|mechanism).*mechanism\("
    ):
        make()


def test_unknown_sites_are_refused() -> None:
    plan = Plan(sites={"layers.7": mechanism("nystra")})
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
    plan = Plan(mechanism("nystra", landmarks=landmarks, mask=mask))
    resolved = resolve(plan, network(window_size=window))
    assert resolved[SECOND].name == ("full" if reason else "nystra")
    assert reason in resolved[SECOND].reason


def test_swapping_leaves_the_network_alone() -> None:
    whole = network(window_size=8)
    image = torch.rand(1, 3, 16, 16)
    before = whole(image)
    copied = swap(whole, resolve(Plan(mechanism("nystra", landmarks=(2, 2))), whole))
    assert torch.equal(whole(image), before)
    assert not torch.allclose(copied(image), before, atol=1e-6)
    assert list(copied.state_dict()) == list(whole.state_dict())
    assert copied.norm.weight.data_ptr() == whole.norm.weight.data_ptr()


@pytest.mark.parametrize("planned", [Full(), Nystra((2, 2)), Nystromformer((2, 2))], ids=str)
def test_operator_form_equals_plain_form(planned: Mechanism) -> None:
    whole = network(window_size=8)
    resolved = resolve(Plan(planned), whole)
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
        parameters = mechanism("nystra", landmarks=(2, 2), iterations=2, init=init, guard=0.0)
        copied = swap(whole, resolve(Plan(parameters), whole))
        with torch.no_grad():
            return float((copied(image)[1:2] - copied(image[1:2])).abs().max())

    assert alone("matrix") < 1e-9
    assert alone("batch") > 1e-4


@pytest.mark.parametrize(("planned", "runs"), [(Full(), 0), (Nystromformer((2, 2)), 3)])
def test_full_attention_is_not_compared_with_itself(
    planned: Mechanism, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(window_size=8)
    asked = []
    run = NetworkSession._arrays  # what every run calls
    monkeypatch.setattr(
        NetworkSession, "_arrays", lambda *given: asked.append(given) or run(*given)
    )
    image = {"input": np.random.default_rng(0).random((1, 3, 16, 16), np.float32)}
    plan = resolve(Plan(planned), model)
    fidelity = measure_fidelity(model, plan, {"noise": image})
    assert len(asked) == runs  # exact, planned, exact without the position bias
    assert (fidelity.mean == float("inf")) == (planned == Full())
    assert len(fidelity.sites) == (0 if planned == Full() else len(plan))


@pytest.mark.parametrize(
    ("architecture", "hyper", "iterations", "threshold"),
    [
        ("swinir", {}, 2, 5.0),
        ("uformer", {"img_size": 128}, 6, 0.0),
        ("uformer", {"img_size": 256}, 3, 0.0),
        ("rvrt", {}, 6, 0.0),
        ("hat", {}, 6, 5.0),
    ],
)
def test_published_settings_are_those_of_the_network(
    architecture: str, hyper: dict[str, int], iterations: int, threshold: float
) -> None:
    """Where they are not given: of the authors' scripts, by architecture and by task."""
    plan = Plan(mechanism("nystra-published")).for_network(architecture, hyper)
    assert plan.default == Nystra((4, 4), iterations, "batch", threshold, 0.0, mask="none")
    given = mechanism("nystra-published", iterations=5).for_network(architecture, hyper)
    assert given.values()["iterations"] == 5
