"""The table of architectures: what stands in the page and in README is what was measured."""

import pytest

from studies.networks import __main__ as foreign
from studies.networks.small import SMALL


def test_the_page_and_readme_say_what_was_measured() -> None:
    assert foreign.read().keys() <= SMALL.keys()
    for path, text in foreign.texts().items():
        assert path.read_text(encoding="utf-8") == text, path.name


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of spandrel's networks
@pytest.mark.parametrize("name", ["NAFNet", "SPAN"])
def test_an_architecture_comes_out_as_the_table_says(name: str) -> None:
    """Two of them; the whole takes an hour: ``python -m studies.networks measure``."""
    pytest.importorskip("spandrel", reason="the extra spandrel is not installed")
    found, recorded = foreign.outcome_of(name), foreign.read()[name]
    assert "failed" not in found
    assert found["static"] is recorded["static"] is None
    assert all(size["difference"] <= foreign.AGREES for size in found["compared"])
