"""The flags of mechanisms, generated from their parameters."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest

from nystra.cli.flags.plan_flags import (
    add_mechanism_argument,
    add_parameter_arguments,
    add_plan_arguments,
    plan_from,
)
from nystra.core.errors import NystraError
from nystra.core.option import Option
from nystra.core.option_kinds import Number, Switch
from nystra.export import mechanism
from nystra.export.attention.as_trained.parameters import AsTrained
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.nystra.parameters import Nystra
from nystra.export.attention.nystromformer.parameters import Nystromformer
from nystra.export.attention.plan import Plan
from nystra.export.attention.psal.parameters import Psal
from nystra.export.attention.registry import MECHANISMS, mechanism_class
from nystra.plugins.operators import find_schema

EVERY = {
    (name, key): kind
    for name in MECHANISMS
    for key, kind in mechanism_class(name).list_options().items()
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_mechanism_argument(made)
    add_plan_arguments(made)
    add_parameter_arguments(made)
    return made


def parsed(*arguments: str) -> Plan:
    return plan_from(parser().parse_args(arguments))


@pytest.mark.parametrize(
    ("text", "grid"),
    [("16", (4, 4)), ("8", (2, 4)), ("32", (4, 8)), ("3x5", (3, 5)), ("7", (1, 7))],
)
def test_landmarks(text: str, grid: tuple[int, int]) -> None:
    assert parsed("--attn", "nystra", "--landmarks", text).default == Nystra(grid)


def test_flags_make_the_plan() -> None:
    plan = parsed(
        "--attn", "psal", "--neighbors", "8", "--search-iterations", "3", "--seed", "2",
        "--patch-size", "5", "--metric", "dot", "--temperature", "2", "--aggregate",
        "--full-size", "--local-window", "64", "--shift-mask", "none",
    )  # fmt: skip
    assert plan.default == Psal(8, 3, 5, "dot", 2, 2.0, True, True, 64, mask="none")
    plan = parsed(
        "--attn", "nystra", "--landmarks", "2x4", "--iterations", "3", "--init", "batch",
        "--threshold", "-1.5", "--guard", "0", "--shift-mask", "none",
    )  # fmt: skip
    assert plan.default == Nystra((2, 4), 3, "batch", -1.5, 0.0, mask="none")
    assert parsed("--attn", "nystromformer").default == Nystromformer()
    assert parsed().default == AsTrained()
    assert parsed("--attn", "full").default == Full()


@pytest.mark.parametrize(("name", "key"), EVERY)
def test_every_parameter_has_a_flag_that_refuses_nonsense(name: str, key: str) -> None:
    kind = EVERY[name, key]
    flag = kind.flag or "--" + key.replace("_", "-")
    assert flag in parser().format_help()
    if isinstance(kind, Switch):
        assert getattr(parsed("--attn", name, flag).default, key) is True
    else:
        least = f"{max(1, kind.minimum)}" if isinstance(kind, Number) else "4"
        text = least if kind.default is None else kind.show(kind.default)
        given = parsed("--attn", name, f"{flag}={text}").default
        assert given == mechanism(name, **{key: kind.read(key, text)})
        with pytest.raises(NystraError, match=f"^`{key}` is 'nonsense', expected "):
            parsed("--attn", name, flag, "nonsense")


def test_one_flag_is_one_parameter() -> None:
    """The same name in two mechanisms must be the same kind of flag."""
    kinds: dict[str, tuple[type[Option], str]] = {}
    for (_, key), kind in EVERY.items():
        assert kinds.setdefault(key, (type(kind), kind.flag)) == (type(kind), kind.flag)


@pytest.mark.parametrize(
    ("name", "key", "operator", "attribute"),
    [
        ("nystra", "iterations", "NystraPinv", "iterations"),
        ("nystra", "threshold", "NystraWindowNystrom", "threshold"),
        ("nystra", "guard", "NystraWindowNystrom", "guard"),
        ("psal", "neighbors", "NystraPatchMatch", "neighbors"),
        ("psal", "search_iterations", "NystraPatchMatch", "iterations"),
        ("psal", "patch_size", "NystraPatchMatch", "patch_size"),
        ("psal", "seed", "NystraPatchMatch", "seed"),
        ("psal", "local_window", "NystraWindowSoftmax", "window_w"),
    ],
)
def test_ranges_are_the_operators(name: str, key: str, operator: str, attribute: str) -> None:
    kind = EVERY[name, key]
    assert isinstance(kind, Number)
    limits = next(known for known in find_schema(operator).attributes if known.name == attribute)
    assert (kind.minimum, kind.maximum) == (limits.minimum, limits.maximum)
    outside = math.nextafter(limits.maximum, math.inf)
    beyond = type(kind.default)(limits.maximum + 1 if limits.kind == "int" else outside)
    mechanism(name, **{key: type(kind.default)(limits.maximum)})
    with pytest.raises(NystraError, match=f"^`{key}` is "):
        mechanism(name, **{key: beyond})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--neighbors", "3"], "--neighbors does not apply to --attn full: it is for --attn psal"),
        (
            ["--attn", "psal", "--landmarks", "16"],
            "--landmarks does not apply to --attn psal: it is for --attn nystra or nystromformer",
        ),
        (["--attn", "nystra", "--full-size"], "--full-size does not apply to --attn nystra"),
        (["--attn", "as_trained", "--shift-mask", "none"], "--shift-mask does not apply to"),
        (
            ["--attn", "nystra", "--landmarks", "16x16"],
            "`landmarks` is 16x16, 256 landmarks; at most 64",
        ),
        (
            ["--attn", "nystra", "--landmarks", "1000"],
            "`landmarks` is '1000', expected rows and columns of 1 to 64",
        ),
        (["--attn", "nystra", "--landmarks", "9" * 400], "expected rows and columns of 1 to 64"),
        (["--attn", "nystra", "--landmarks", "9" * 400 + "x2"], "expected rows and columns"),
        (["--attn", "nystra", "--landmarks", "0x4"], "expected rows and columns"),
        (["--attn", "nystra", "--guard", "nan"], "`guard` is nan, expected a number from 0 to 0.5"),
        (
            ["--attn", "nystra", "--guard", "1e999"],
            "`guard` is inf, expected a number from 0 to 0.5",
        ),
        (["--attn", "nystra", "--iterations", "9" * 5000], "expected a whole number from 1 to 8"),
        (
            ["--attn", "psal", "--seed", "1.5"],
            "`seed` is '1.5', expected a whole number from 0 to 4095",
        ),
        (["--plan", "a.json", "--seed", "1"], "--plan and --seed contradict each other"),
        (["--plan", "a.json", "--attn", "full"], "--plan and --attn contradict each other"),
    ],
)
def test_flags_that_do_not_fit(arguments: list[str], message: str) -> None:
    with pytest.raises(NystraError) as raised:
        parsed(*arguments)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 200


def test_sites_kept_full(tmp_path: Path) -> None:
    plan = parsed(
        "--attn", "nystra", "--shift-mask", "none", "--keep-full", "a", "--keep-full", "b"
    )
    assert plan.sites == {"a": Full(mask="none"), "b": Full(mask="none")}
    file = tmp_path / "plan.json"
    document: dict[str, Any] = {
        "schema_version": 1,
        "sites": {"a": {"mechanism": "psal"}, "c": {"mechanism": "nystra"}},
    }
    file.write_text(json.dumps(document))
    plan = parsed("--plan", str(file), "--keep-full", "a")
    assert plan.sites == {"a": Full(), "c": Nystra()}
