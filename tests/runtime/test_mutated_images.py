"""Faulty image files: no wrong pixels without an error, no memory beyond the estimate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mutation_outcomes import in_process
from nystra.runtime.images.images import DECODING_BYTES
from nystra.runtime.machine.memory import PeakMemory


def test_some_files_with_a_fault() -> None:
    outcome, errors = in_process("400", "0")
    assert sorted(outcome) == ["JPEG", "PNG", "TIFF", "WEBP"]
    assert all(counts["refused"] > 10 for counts in outcome.values())
    assert errors == ""


@pytest.mark.release
def test_ten_thousand_files_with_a_fault(
    record_property: Callable[[str, object], None],
) -> None:
    outcome, _ = in_process("10000", "1")
    record_property("outcome", outcome)
    print(outcome)  # noqa: T201  the counts of studies/measurements/security.md
    assert sum(sum(counts.values()) for counts in outcome.values()) >= 10_000


@pytest.mark.full
@pytest.mark.skipif(not PeakMemory().exact, reason="the system keeps no mark to reset")
def test_decoding_takes_what_it_is_costed_at() -> None:
    costs, _ = in_process()
    assert max(costs.values()) <= DECODING_BYTES, costs
    assert min(costs.values()) > 12, costs
