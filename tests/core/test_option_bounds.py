"""No number is passed on to an engine, or to an allocation, that it cannot take."""

from __future__ import annotations

import pytest

from nystra.core.errors import NystraError
from nystra.core.option_kinds import Bytes, Number
from nystra.core.ports.image_sizes import ImageSize
from nystra.export.options import ExportOptions
from nystra.runtime.options import BATCH, OVERLAP, THREADS, TILE, WORKERS


@pytest.mark.parametrize("kind", [BATCH, OVERLAP, THREADS, TILE, WORKERS])
def test_what_allocates_has_a_bound_of_its_own(kind: Number) -> None:
    assert kind.largest < 1 << 17
    with pytest.raises(NystraError, match=r"^`n` is 99999999999, expected \d+ or less$"):
        kind.read("n", "99999999999")
    assert kind.accept("n", int(kind.largest)) == kind.largest


def test_every_number_has_a_bound() -> None:
    with pytest.raises(NystraError, match="`n` is 2147483648, expected 2147483647 or less"):
        Number(1, "", 1).accept("n", 1 << 31)
    with pytest.raises(NystraError, match=r"`n` is 1e\+300, expected 1e\+09 or less"):
        Number(1.0, "", 0).read("n", "1e300")
    with pytest.raises(NystraError, match="expected 1125899906842624 or less"):
        Bytes(1, "", 1).read("n", "1025T")
    with pytest.raises(NystraError, match="`n` is 9, expected a whole number from 1 to 8"):
        Number(1, "", 1, 8).accept("n", 9)


def test_sizes_have_bounds() -> None:
    with pytest.raises(NystraError, match="`n` is 99999x99999, 9999800001 pixels; at most"):
        ImageSize(None, "").read("n", "99999x99999")
    with pytest.raises(NystraError, match=r"`static` is 1x3x99999x99999, .* values; at most"):
        ExportOptions(static=(1, 3, 99999, 99999))
