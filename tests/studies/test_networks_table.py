"""The tables of networks: the page and README show the measured results."""

import os
from pathlib import Path

import pytest

from studies.networks import exporting, finding, page
from studies.networks.children import read, resume
from studies.networks.small import SMALL


def test_the_page_and_readme_say_what_was_measured() -> None:
    assert read(exporting.RESULTS).keys() <= SMALL.keys()
    assert read(finding.RESULTS).keys() <= set(finding.names())
    for path, text in page.texts().items():
        assert path.read_text(encoding="utf-8") == text, path.name


def test_every_attention_that_was_looked_for_is_served_or_named() -> None:
    for name, outcome in read(finding.RESULTS).items():
        if "map" in outcome:
            named = sum(n for why, n in outcome["reasons"].items() if why.startswith("as trained"))
            assert outcome["map"] + outcome["tokens"] + named <= outcome["softmaxes"], name
            assert max(outcome["differences"].values()) <= page.AGREES, name


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of spandrel's networks
@pytest.mark.parametrize("name", ["NAFNet", "SPAN"])
def test_an_architecture_comes_out_as_the_table_says(name: str) -> None:
    """Two of them; all take an hour: ``python -m studies.networks measure``."""
    pytest.importorskip("spandrel", reason="the extra spandrel is not installed")
    found, recorded = exporting.outcome_of(name), read(exporting.RESULTS)[name]
    assert "failed" not in found
    assert found["static"] is recorded["static"] is None
    assert all(size["difference"] <= page.AGREES for size in found["compared"])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["toys/RearrangedByHand", "torchvision/vit_b_16"])
def test_attention_is_found_as_the_table_says(name: str) -> None:
    pytest.importorskip("torchvision", reason="torchvision is absent")
    found, recorded = finding.outcome_of(name), read(finding.RESULTS)[name]
    for key in ("softmaxes", "map", "tokens", "reasons", "any_size"):
        assert found[key] == recorded[key], key
    assert max(found["differences"].values()) <= page.AGREES


@pytest.mark.full
def test_a_row_that_takes_too_long_or_too_much_memory_is_a_row_with_its_reason(
    tmp_path: Path,
) -> None:
    def outcome_of(name: str) -> dict[str, object]:
        if name == "long":
            while True:
                pass
        if name == "large":
            os._exit(9)
        return {"softmaxes": 0}

    results = tmp_path / "results.json"
    resume(results, ["long", "large", "fine"], [], outcome_of, minutes=1, seconds=1)
    assert read(results) == {
        "long": {"failed": "longer than 1 s"},
        "large": {"failed": "its process ended: memory above 6 GiB perhaps"},
        "fine": {"softmaxes": 0},
    }
    resume(results, ["long", "large", "fine"], [], pytest.fail, minutes=1, seconds=1)
