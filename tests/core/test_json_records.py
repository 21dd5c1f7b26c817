"""Checks of JSON records: keys, version, numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nystra.core.errors import NystraError
from nystra.core.json_text import is_number, is_whole, quote, require_keys, require_version


def test_numbers_are_no_truth_values() -> None:
    assert is_number(1)
    assert is_number(0.5)
    assert is_whole(-3)
    for value in (True, "1", None, [1]):
        assert not is_number(value)
        assert not is_whole(value)
    assert not is_whole(1.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "the file is [1], expected an object of a, b"),
        ({"a": 1, "c": 2}, "the file: unknown keys ['c']; expected are a, b"),
        ({"b": 1}, "the file: missing keys ['a']; expected are a, b"),
        ({"c": 1}, "the file: unknown keys ['c'], missing keys ['a']; expected are a, b"),
    ],
)
def test_wrong_keys_are_named(value: Any, message: str) -> None:
    with pytest.raises(NystraError, match=re.escape(message)):
        require_keys(value, "the file", ("a", "b"), ["a"])


def test_right_keys_pass() -> None:
    assert require_keys({"a": 1}, "the file", ("a", "b"), ["a"]) == {"a": 1}


@pytest.mark.parametrize("version", [None, 2, True, 1.0, "1", [1]])
def test_another_version_is_named(version: Any) -> None:
    message = f"the file has the schema_version {version!r}, expected 1: write it again"
    with pytest.raises(NystraError, match=re.escape(message)):
        require_version({"schema_version": version}, "the file", 1, "write it again")
    with pytest.raises(NystraError, match=r"is \[\], expected an object of schema_version 1"):
        require_version([], "the file", 1, "write it again")


def test_long_values_are_cut() -> None:
    assert quote("x" * 99) == "'" + "x" * 56 + "..."
    assert quote([1]) == "[1]"
